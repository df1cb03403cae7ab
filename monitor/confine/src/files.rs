// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files that a thread keeps, by Landlock. Where the host has none, the seccomp policies alone say what may be opened by whom.

use anyhow::Context;
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr,
};
use std::path::{Path, PathBuf};

/// The newest version whose rights on files are asked for; older hosts are asked for what they know.
const NEWEST: ABI = ABI::V5;
/// The first that can be told of renames and links between folders; before, there are none.
const RENAMES: u32 = 2;

/// Files that a thread may go on opening. What is open already stays usable.
#[derive(Clone, Debug)]
pub struct Files(Option<Below>);

/// Files below folders.
#[derive(Clone, Debug, Default)]
struct Below {
    read: Vec<PathBuf>,
    all: Vec<PathBuf>,
    /// Only empty folders below can be removed.
    remove: Vec<PathBuf>,
    /// Only files below can be removed.
    remove_files: Vec<PathBuf>,
}

impl Files {
    /// Nothing.
    pub fn none() -> Self {
        Files(Some(Below::default()))
    }

    /// Whatever this user may open.
    pub fn any() -> Self {
        Files(None)
    }

    /// What the host says of itself.
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

    /// A folder that a guest has.
    pub fn shared(path: &Path) -> Self {
        Files(Some(Below {
            // By which files that are known are opened for real; they must lie below the folder all the same.
            read: vec!["/proc/self/fd".into(), "/proc/self/mountinfo".into()],
            all: vec![path.to_path_buf()],
            ..Below::default()
        }))
    }

    /// A folder that a guest may read.
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

    /// A machine's own folder, if it has one; and a socket to be removed.
    pub fn state(folder: Option<&Path>, socket: Option<&Path>) -> Self {
        Files(Some(Below {
            all: folder.map(Path::to_path_buf).into_iter().collect(),
            remove: parent(folder),
            remove_files: parent(socket),
            ..Below::default()
        }))
    }

    /// The calling thread can open nothing else from now on.
    pub(super) fn keep_only(&self) -> anyhow::Result<()> {
        let Some(below) = &self.0 else {
            return Ok(());
        };
        let version = landlock_version();
        // Renames between the folders that are given would fail: better the policy alone than a file system that is none.
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

/// One more path; of a file only what is possible with files.
fn rule(
    rules: RulesetCreated,
    path: &Path,
    access: landlock::BitFlags<AccessFs>,
) -> anyhow::Result<RulesetCreated> {
    let folder = match PathFd::new(path) {
        Ok(folder) => folder,
        // A host without it: then there is nothing to open there either.
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

/// The version of Landlock's interface that this host has; 0: none, or switched off.
pub fn landlock_version() -> u32 {
    const ASK_VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the call takes no attributes and only gives a number.
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
