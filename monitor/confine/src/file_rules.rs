// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files that a thread may open, enforced by Landlock. On a host without Landlock the seccomp
//! policies alone limit what a thread opens.

use anyhow::Context;
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr,
};
use std::path::{Path, PathBuf};

/// The newest Landlock ABI whose file rights are handled. An older host handles those that it
/// knows.
const NEWEST: ABI = ABI::V5;
/// The first ABI version that can allow renames and links between folders. Older versions refuse
/// them all.
const RENAMES: u32 = 2;

/// Files that a thread may still open. Open descriptors stay usable.
#[derive(Clone, Debug)]
pub struct Files(Option<Below>);

/// Files below folders.
#[derive(Clone, Debug, Default)]
struct Below {
    read: Vec<PathBuf>,
    all: Vec<PathBuf>,
    /// Empty folders below these folders may be removed, and no files.
    remove: Vec<PathBuf>,
    /// Files below these folders may be removed, and no folders.
    remove_files: Vec<PathBuf>,
    /// Devices that may be opened and controlled.
    devices: Vec<PathBuf>,
}

impl Files {
    /// No files.
    pub fn none() -> Self {
        Files(Some(Below::default()))
    }

    /// All files that this user may open.
    pub fn any() -> Self {
        Files(None)
    }

    /// The files in which the host reports figures about itself (`/proc`, `/sys`).
    pub fn figures() -> Self {
        Files(Some(Below {
            read: vec![
                "/proc".into(),
                "/sys/devices/system/cpu".into(),
                "/sys/fs/cgroup".into(),
            ],
            ..Below::default()
        }))
    }

    /// A folder that the guest reads and writes.
    pub fn shared(path: &Path) -> Self {
        Files(Some(Below {
            // A known file is opened through /proc/self/fd. Landlock checks the file that it leads
            // to, which must also lie below the folder.
            read: vec!["/proc/self/fd".into(), "/proc/self/mountinfo".into()],
            all: vec![path.to_path_buf()],
            ..Below::default()
        }))
    }

    /// A folder that the guest may only read.
    pub fn shared_to_read(path: &Path) -> Self {
        Files(Some(Below {
            read: vec![
                "/proc/self/fd".into(),
                "/proc/self/mountinfo".into(),
                path.to_path_buf(),
            ],
            ..Below::default()
        }))
    }

    /// The device by which taps are opened.
    pub fn taps() -> Self {
        Files(Some(Below {
            devices: vec!["/dev/net/tun".into()],
            ..Below::default()
        }))
    }

    /// A machine's own folder, if it has one, and sockets that the thread removes.
    pub fn state<'a>(folder: Option<&Path>, sockets: impl IntoIterator<Item = &'a Path>) -> Self {
        Files(Some(Below {
            all: folder.map(Path::to_path_buf).into_iter().collect(),
            remove: parent(folder),
            remove_files: sockets
                .into_iter()
                .filter_map(|path| parent(Some(path)).pop())
                .collect(),
            ..Below::default()
        }))
    }

    /// Limits the calling thread to these files, for good.
    pub(super) fn keep_only(&self) -> anyhow::Result<()> {
        let Some(below) = &self.0 else {
            return Ok(());
        };
        let version = landlock_version();
        // This ABI version would refuse renames between the shared folders. A file system without
        // renames is of no use, so the policy alone confines the thread.
        if version == 0 || (version < RENAMES && !below.all.is_empty()) {
            return Ok(());
        }
        let mut rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(NEWEST))?
            .create()?;
        for path in &below.read {
            rules = rule(
                rules,
                path,
                AccessFs::from_read(NEWEST) & !AccessFs::Execute,
            )?;
        }
        for path in &below.all {
            let all = AccessFs::from_all(NEWEST) & !(AccessFs::Execute | AccessFs::IoctlDev);
            rules = rule(rules, path, all)?;
        }
        for path in &below.remove {
            rules = rule(rules, path, AccessFs::RemoveDir.into())?;
        }
        for path in &below.remove_files {
            rules = rule(rules, path, AccessFs::RemoveFile.into())?;
        }
        for path in &below.devices {
            let all = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
            rules = rule(rules, path, all)?;
        }
        rules.restrict_self()?;
        Ok(())
    }
}

fn parent(path: Option<&Path>) -> Vec<PathBuf> {
    path.and_then(Path::parent)
        .map(Path::to_path_buf)
        .into_iter()
        .collect()
}

/// Adds one path. A path to a file gets only the rights that apply to files.
fn rule(
    rules: RulesetCreated,
    path: &Path,
    access: landlock::BitFlags<AccessFs>,
) -> anyhow::Result<RulesetCreated> {
    let folder = match PathFd::new(path) {
        Ok(folder) => folder,
        // A host without this path has nothing to open there.
        Err(_) if !path.exists() => return Ok(rules),
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    };
    let access = if path.is_dir() {
        access
    } else {
        access & AccessFs::from_file(NEWEST)
    };
    Ok(rules.add_rule(PathBeneath::new(folder, access))?)
}

/// The version of this host's Landlock ABI; 0 where Landlock is missing or switched off.
pub fn landlock_version() -> u32 {
    const ASK_VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the call reads no attributes and returns only a number.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            0usize,
            0usize,
            ASK_VERSION,
        )
    };
    u32::try_from(version).unwrap_or(0)
}
