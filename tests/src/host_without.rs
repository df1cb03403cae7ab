// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kinds of host on which a machine must be confined: they differ in the user's rights and in
//! the features of the host's kernel. A launcher (`src/bin/without.rs`) imitates them on the host
//! that runs the tests.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use crate::program;
use rustix::process::geteuid;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use tempfile::TempDir;

/// The ordinary user that root becomes.
pub const NOBODY: u32 = 65534;

/// What a host lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacks {
    /// All namespaces: EPERM.
    pub namespaces: bool,
    /// Landlock in the host's kernel: ENOSYS.
    pub landlock: bool,
    /// KVM's interface of today: its version is 0.
    pub kvm_version: bool,
    /// KVM_CAP_SPLIT_IRQCHIP.
    pub kvm_irqchip: bool,
    /// More than four virtual CPUs of KVM: KVM_CAP_MAX_VCPUS and KVM_CAP_NR_VCPUS.
    pub kvm_vcpus: bool,
}

impl FromStr for Lacks {
    type Err = String;

    /// Parses `nothing`, or `namespaces`, `landlock`, `kvm-version`, `kvm-irqchip` and
    /// `kvm-vcpus` with commas.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut lacks = Lacks::default();
        for word in text.split(',') {
            match word {
                "namespaces" => lacks.namespaces = true,
                "landlock" => lacks.landlock = true,
                "kvm-version" => lacks.kvm_version = true,
                "kvm-irqchip" => lacks.kvm_irqchip = true,
                "kvm-vcpus" => lacks.kvm_vcpus = true,
                "nothing" => {}
                _ => {
                    return Err(format!(
                        "a host cannot lack `{word}`: say namespaces, landlock, kvm-version, \
                         kvm-irqchip, kvm-vcpus or nothing"
                    ));
                }
            }
        }
        Ok(lacks)
    }
}

/// A kind of host, as a user sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// Everything, as root.
    Root,
    /// Everything, as an ordinary user.
    User,
    /// An ordinary user without namespaces.
    NoNamespaces,
    /// An ordinary user without Landlock.
    NoLandlock,
    /// An ordinary user without both.
    Neither,
}

impl Host {
    /// The kinds that the caller can use: only root can run programs as another user.
    #[must_use]
    pub fn all() -> Vec<Host> {
        let mut all = vec![
            Host::User,
            Host::NoNamespaces,
            Host::NoLandlock,
            Host::Neither,
        ];
        if geteuid().is_root() {
            all.insert(0, Host::Root);
        }
        all
    }

    /// The user that programs run as.
    #[must_use]
    pub fn user(self) -> u32 {
        let me = geteuid();
        if me.is_root() && self != Host::Root {
            NOBODY
        } else {
            me.as_raw()
        }
    }

    /// The launcher's word for what is missing.
    fn lacks(self) -> &'static str {
        match self {
            Host::Root | Host::User => "nothing",
            Host::NoNamespaces => "namespaces",
            Host::NoLandlock => "landlock",
            Host::Neither => "namespaces,landlock",
        }
    }
}

/// Copies of programs that every user can run: the build folder may be root's alone.
#[derive(Debug)]
pub struct Programs(TempDir);

impl Programs {
    /// A folder with the `paravane` program, the launcher and these other programs of the tests.
    ///
    /// # Panics
    /// When they cannot be copied.
    #[must_use]
    pub fn new(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::copy(program::path(), folder.path().join("paravane")).unwrap();
        for name in more.iter().chain([&"without"]) {
            fs::copy(program::tool(name), folder.path().join(name)).unwrap();
        }
        Programs(folder)
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    /// The path of a program.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A command that runs a program on that host.
    #[must_use]
    pub fn on(&self, host: Host, name: &str) -> Command {
        let mut command = Command::new(self.path("without"));
        command.args([host.lacks(), &host.user().to_string()]);
        command.arg(self.path(name)).stdin(Stdio::null());
        command
    }
}
