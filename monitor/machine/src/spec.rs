// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The properties of a machine and its command, as the options of `run` and `create` give them.

use crate::heuristic::Heuristic;
use crate::restart::Restart;
use clap::ValueEnum;
use paravane_hypervisor::Layer;
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A machine, as it is stored in a file for `start`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The kernel's ELF file; `None` for the one that was built.
    pub kernel: Option<PathBuf>,
    /// An archive in place of the built-in root.
    pub initrd: Option<PathBuf>,
    /// Additions to the kernel's command line.
    pub append: Vec<String>,
    /// What runs the machine.
    #[serde(default)]
    pub hypervisor: Hypervisor,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Guest memory, in MiB.
    pub memory_mib: u32,
    /// Largest number of address-space processes; `None` for as many as the host allows.
    pub spaces: Option<u32>,
    /// Shared folders.
    #[serde(default)]
    pub volumes: Vec<Volume>,
    /// The root in place of the built-in one: a disk image, which is the first disk, or a folder.
    #[serde(default)]
    pub rootfs: Option<Disk>,
    /// What runs as process 1.
    #[serde(default)]
    pub init: Init,
    /// Disks, in the guest's order.
    #[serde(default)]
    pub disks: Vec<Disk>,
    /// The network of the machine.
    pub net: Net,
    /// Attributes of its cards on a virtual bus.
    #[serde(default)]
    pub card: CardAttributes,
    /// The bus of this user's vbusd of which the machine has all devices.
    #[serde(default)]
    pub bus: Option<String>,
    /// Published ports.
    #[serde(default)]
    pub publish: Vec<String>,
    /// The socket that serves metrics.
    #[serde(default)]
    pub metrics: Option<PathBuf>,
    /// The sockets of its consoles.
    #[serde(default)]
    pub consoles: Vec<PathBuf>,
    /// Debuggers may trace the machine's processes.
    pub debuggable: bool,
    /// The layer counts its calls.
    #[serde(default)]
    pub stats: bool,
    /// On KVM, the ROM in place of the layer `kvm`.
    #[serde(default)]
    pub layer: Option<RomLayer>,
    /// When the machine starts again.
    #[serde(default)]
    pub restart: Restart,
    /// The time after which the machine ends, in seconds.
    pub timeout: Option<u64>,
    /// The command. If it is empty, a shell runs, or in the background nothing.
    pub command: Vec<Word>,
    /// Environment variables of the command: names and values.
    pub env: Vec<(Word, Word)>,
    /// The command's working folder.
    pub workdir: Option<PathBuf>,
    /// The user that the command runs as.
    pub user: Option<String>,
    /// The signal by which `paravane stop` asks the command to end; `None` for SIGTERM.
    #[serde(default)]
    pub stop_signal: Option<u8>,
    /// In the background, the command's input stays open for `attach`.
    #[serde(default)]
    pub interactive: bool,
    /// In the background, the command gets a terminal.
    #[serde(default)]
    pub tty: bool,
    /// Heuristics that are off.
    #[serde(default)]
    pub without: Vec<Heuristic>,
}

impl Spec {
    /// The most consoles of a machine: as many terminals has the guest's driver (`MINORS`).
    pub const CONSOLES: usize = 16;

    /// The sockets that the machine makes.
    pub fn sockets(&self) -> impl Iterator<Item = &Path> {
        let all = self.metrics.iter().chain(&self.consoles);
        all.map(PathBuf::as_path)
    }

    /// The first option by which the machine has a device of a virtual bus.
    pub fn on_bus(&self) -> Option<&'static str> {
        let mut disks = self.disks.iter().chain(&self.rootfs);
        let net = match self.net {
            Net::Venet(_) => Some("--net venet"),
            Net::VenetTap(_) => Some("--net venet-tap"),
            Net::VenetPasst(_) => Some("--net venet-passt"),
            Net::Bus { .. } => Some("--net bus"),
            _ => None,
        };
        net.or_else(|| disks.any(Disk::is_on_bus).then_some("a disk with :vbus"))
            .or_else(|| (!self.consoles.is_empty()).then_some("--console"))
    }

    /// Whether the machine may have a card on a virtual bus.
    pub fn has_card_on_bus(&self) -> bool {
        let net = matches!(
            self.net,
            Net::Venet(_) | Net::VenetTap(_) | Net::VenetPasst(_) | Net::Bus { .. }
        );
        net || self.bus.is_some()
    }

    /// Whether a heuristic is on.
    pub fn uses(&self, heuristic: Heuristic) -> bool {
        !self.without.contains(&heuristic)
    }
}

/// What runs a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hypervisor {
    /// Ordinary processes of this host: no hardware virtualization, no privilege
    Process,
    /// The host kernel's KVM (experimental)
    Kvm,
    /// KVM where /dev/kvm is usable and fast, else processes
    #[default]
    Auto,
}

impl Hypervisor {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Hypervisor::Process => "process",
            Hypervisor::Kvm => "kvm",
            Hypervisor::Auto => "auto",
        }
    }
}

/// The layer that a machine on KVM finds in an option ROM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RomLayer {
    /// No ROM
    None,
    /// Every call is the native instruction
    Native,
    /// As native, with what KVM offers its guests
    Kvm,
}

impl RomLayer {
    /// The layer of the program.
    pub fn layer(self) -> Layer {
        match self {
            RomLayer::None => Layer::None,
            RomLayer::Native => Layer::Native,
            RomLayer::Kvm => Layer::Kvm,
        }
    }
}

/// What runs as process 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
// The aliases are the words of machines that an older build has made.
#[serde(rename_all = "kebab-case")]
pub enum Init {
    /// With a command the agent; without one the root's systemd, if it has one
    #[default]
    #[serde(alias = "Auto")]
    Auto,
    /// Paravane's agent: the machine only runs the command
    #[serde(alias = "Agent")]
    Agent,
    /// The root's systemd: the command runs when the system has started
    #[serde(alias = "Systemd")]
    Systemd,
}

/// A shared folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// The folder on the host.
    pub host: PathBuf,
    /// Absolute path in the guest.
    pub guest: String,
    /// The guest cannot change it.
    pub read_only: bool,
    /// The guest may create setuid and setgid programs in it and set file capabilities.
    #[serde(default)]
    pub suid: bool,
    /// What the guest may keep of it.
    #[serde(default)]
    pub cache: VolumeCache,
    /// Worker threads carry out every request.
    #[serde(default)]
    pub workers: bool,
}

/// What a guest may keep of a shared folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeCache {
    /// Nothing.
    None,
    /// Names, attributes and contents, until it hears of a change on the host or asks again.
    #[default]
    Auto,
    /// Everything: the host does not change the folder.
    Always,
}

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// The disk image, or for a root the folder, or for [`DiskDevice::Bus`] the place on a bus.
    pub file: PathBuf,
    /// What the guest may do with it.
    pub mode: DiskMode,
    /// What kind of device it is.
    #[serde(default)]
    pub device: DiskDevice,
    /// What is in the file.
    #[serde(default)]
    pub format: DiskFormat,
}

impl Disk {
    /// Whether it is a device of a virtual bus.
    pub fn is_on_bus(&self) -> bool {
        self.device != DiskDevice::Virtio
    }
}

/// What is in the file of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskFormat {
    /// What the name of the file says.
    #[default]
    Named,
    /// The disk's bytes, whatever they are.
    Raw,
    /// A qcow2 image.
    Qcow2,
}

/// What kind of device a disk is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskDevice {
    /// virtio-blk.
    #[default]
    Virtio,
    /// virtio-blk, which is slow on one CPU of the host.
    #[cfg(feature = "test-hooks")]
    VirtioSlow,
    /// A device of a virtual bus.
    Vbus,
    /// A device of a bus of this user's vbusd.
    Bus,
    /// One that ends the connection to its driver at each 500th request.
    #[cfg(feature = "test-hooks")]
    VbusBreaks,
    /// One that disappears at the 500th request.
    #[cfg(feature = "test-hooks")]
    VbusVanishes,
}

/// What the guest may do with a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskMode {
    /// Read and write.
    Write,
    /// Only read.
    ReadOnly,
    /// Write; all changes are discarded at the end.
    Snapshot,
    /// Write; changes that were not flushed are discarded at the end, as after a power failure.
    Cut,
    /// As `Cut`, with a disk that ignores flushes.
    #[cfg(feature = "test-hooks")]
    CutUnsafe,
}

/// What a user-mode network lets the guest reach besides other hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// The gateway's address leads to the host's loopback.
    pub loopback: bool,
    /// Link-local addresses, such as a cloud's metadata service.
    #[serde(default)]
    pub link_local: bool,
}

/// What attributes of cards on a virtual bus are set to, in microseconds; `None`: as at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct CardAttributes {
    /// How long a card looks for work by itself before it wants a notification again.
    pub poll_us: Option<u32>,
    /// How long after the last notification one comes at least, for a vCPU to do the work.
    pub kick_us: Option<u32>,
}

impl CardAttributes {
    /// Their names.
    pub const POLL: &'static str = "poll-us";
    /// See [`CardAttributes::kick_us`].
    pub const KICK: &'static str = "kick-us";

    /// Those that are set.
    pub fn each(self) -> Vec<(&'static str, u32)> {
        let all = [(Self::POLL, self.poll_us), (Self::KICK, self.kick_us)];
        all.into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }
}

/// The network that the guest's card is connected to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Net {
    /// There is no card.
    None,
    /// A user-mode network: passt where it works, else the stack.
    User(Reach),
    /// The user-mode network inside the monitor.
    Stack(Reach),
    /// A network by passt.
    Passt(Reach),
    /// A tap interface of the host.
    Tap(String),
    /// A tap interface of the host, by a card of the virtual bus.
    VenetTap(String),
    /// The user-mode network inside the monitor, by a card of the virtual bus.
    Venet(Reach),
    /// A network by passt, by a card of the virtual bus.
    VenetPasst(Reach),
    /// A device of a virtual bus.
    Bus {
        /// The bus of this user's vbusd.
        bus: String,
        /// The device there. `None`: the only network.
        #[serde(default)]
        device: Option<String>,
        /// Others of the device that agree may read what the guest sends, from the monitor's
        /// memory.
        #[serde(default)]
        share: bool,
    },
}

/// A word of a command line. It may contain any bytes, but only text can be stored in a file.
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
