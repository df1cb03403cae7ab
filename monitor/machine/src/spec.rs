// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What machine it is to be and what runs in it: all that the options of `run` and `create` say.

use clap::ValueEnum;
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A machine, as it is kept in a file for `start`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The kernel's ELF file; the one that was built, if none.
    pub kernel: Option<PathBuf>,
    /// An archive in place of the built-in root.
    pub initrd: Option<PathBuf>,
    /// More of the kernel's command line.
    pub append: Vec<String>,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Guest memory in MiB.
    pub memory_mib: u32,
    /// Address-space processes; as many as the host allows unless said.
    pub spaces: Option<u32>,
    /// Folders of the host's that the guest sees.
    #[serde(default)]
    pub volumes: Vec<Volume>,
    /// What its root is, in place of the built-in one: an image, which is its first disk, or a folder.
    #[serde(default)]
    pub rootfs: Option<Disk>,
    /// What process 1 is.
    #[serde(default)]
    pub init: Init,
    /// Disks, in the guest's order.
    #[serde(default)]
    pub disks: Vec<Disk>,
    /// What its network card is connected to.
    pub net: Net,
    /// Ports of the host that lead to it.
    #[serde(default)]
    pub publish: Vec<String>,
    /// The socket on which its figures can be read.
    #[serde(default)]
    pub metrics: Option<PathBuf>,
    /// Processes can be attached to with a debugger.
    pub debuggable: bool,
    /// Seconds after which the machine is ended.
    pub timeout: Option<u64>,
    /// What runs in it; if empty a shell, or in the background nothing.
    pub command: Vec<Word>,
    /// Environment variables of the command: names and values.
    pub env: Vec<(Word, Word)>,
    /// The command's working directory.
    pub workdir: Option<PathBuf>,
    /// The user that the command runs as.
    pub user: Option<String>,
    /// In the background, the command's input stays open for who attaches.
    #[serde(default)]
    pub interactive: bool,
    /// In the background, the command gets a terminal.
    #[serde(default)]
    pub tty: bool,
}

/// What process 1 is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Init {
    /// With a command the agent; without one the root's systemd, if it has that
    #[default]
    Auto,
    /// Paravane's agent: the machine is nothing but the command
    Agent,
    /// The root's systemd: the command runs when the system has come up
    Systemd,
}

/// A folder of the host's that the guest sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// The folder on the host.
    pub host: PathBuf,
    /// Absolute path in the guest.
    pub guest: String,
    /// Nothing in it is changed.
    pub read_only: bool,
    /// Programs in it can be made setuid, setgid and capable of more than their callers.
    #[serde(default)]
    pub suid: bool,
}

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// The image, or for a root the folder.
    pub file: PathBuf,
    /// What the guest may do with it.
    pub mode: DiskMode,
}

/// What the guest may do with a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskMode {
    /// Read and write.
    Write,
    /// Only read.
    ReadOnly,
    /// Write, and all of it is forgotten at the end.
    Snapshot,
    /// Write, but of what was not flushed nothing is left at the end, as when the power fails.
    Cut,
    /// The same of a disk that does not do what a flush asks for.
    CutUnsafe,
}

/// What a network card is connected to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Net {
    /// There is no card.
    None,
    /// A user-mode network: passt where that runs, else the stack.
    User {
        /// The gateway leads to the host's loopback.
        loopback: bool,
    },
    /// The user-mode network inside the monitor.
    Stack {
        /// The same.
        loopback: bool,
    },
    /// A network of passt's.
    Passt {
        /// The same.
        loopback: bool,
    },
    /// An interface of the host's.
    Tap(String),
}

/// A word of a command line: any bytes, but only text can be kept in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word(pub OsString);

impl Word {
    /// Its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.as_bytes().to_vec()
    }
}

impl From<&OsStr> for Word {
    fn from(word: &OsStr) -> Self {
        Word(word.to_os_string())
    }
}

impl Serialize for Word {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.0.to_str();
        let text = text.ok_or_else(|| {
            S::Error::custom(format!("{} is not UTF-8", self.0.to_string_lossy()))
        })?;
        serializer.serialize_str(text)
    }
}

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.contains('\0') {
            return Err(D::Error::custom("a zero byte in a word"));
        }
        Ok(Word(text.into()))
    }
}
