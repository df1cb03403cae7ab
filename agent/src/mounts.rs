// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The mounts of a machine of which the agent is process 1.

use crate::path;
use paravane_agent_protocol::Mount;
use rustix::fs::{CWD, Mode, mkdirat, symlinkat};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use std::ffi::CString;
use std::fs;
use std::io;
use std::path::Path;

/// Kind, place, options.
const MOUNTS: [(&str, &str, &str); 9] = [
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devtmpfs", "/dev", "mode=755"),
    ("devpts", "/dev/pts", "mode=620,gid=5,ptmxmode=666"),
    ("tmpfs", "/dev/shm", "mode=1777"),
    ("mqueue", "/dev/mqueue", ""),
    ("tmpfs", "/run", "mode=755"),
    ("tmpfs", "/tmp", "mode=1777"),
    ("cgroup2", "/sys/fs/cgroup", ""),
];

const LINKS: [(&str, &str); 4] = [
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
];

/// Mounts them all.
pub fn mount_all() -> io::Result<()> {
    for (_, place, _) in MOUNTS {
        // An image that has files in /tmp means them to be found.
        if place != "/tmp" || is_empty(place) {
            mount_memory(place)?;
        }
    }
    for (target, link) in LINKS {
        // It is there already, or nobody needs it.
        let _ = symlinkat(target, CWD, link);
    }
    Ok(())
}

/// Whether there is no such directory, or nothing in it.
fn is_empty(path: &str) -> bool {
    fs::read_dir(path).map_or(true, |mut entries| entries.next().is_none())
}

/// Mounts one of those that are only in memory, and the folder for it.
pub fn mount_memory(place: &str) -> io::Result<()> {
    let Some((kind, _, options)) = MOUNTS.into_iter().find(|(_, known, _)| *known == place) else {
        return Ok(());
    };
    make_folder(Path::new(place))?;
    let quiet = MountFlags::NOSUID
        | if place == "/dev" {
            MountFlags::empty()
        } else {
            MountFlags::NODEV
        };
    let options = CString::new(options)?;
    match mount(kind, place, kind, quiet, &*options) {
        Ok(()) => Ok(()),
        // The kernel was built without it, or has mounted it itself.
        Err(rustix::io::Errno::NODEV | rustix::io::Errno::BUSY) => Ok(()),
        Err(error) => Err(io::Error::other(format!("cannot mount {place}: {error}"))),
    }
}

pub fn make_folder(path: &Path) -> io::Result<()> {
    let mut so_far = std::path::PathBuf::new();
    for part in path.components() {
        so_far.push(part);
        match mkdirat(CWD, &so_far, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

pub fn mount_one(entry: &Mount) -> Result<(), String> {
    let target = path::from_bytes(entry.target.clone());
    let fail = |error: &dyn std::fmt::Display| {
        format!(
            "cannot mount {} on {}: {error}",
            entry.source,
            target.display()
        )
    };
    if !target.is_absolute() {
        return Err(fail(&"not an absolute path"));
    }
    make_folder(&target).map_err(|error| fail(&error))?;
    let flags = if entry.read_only {
        MountFlags::RDONLY
    } else {
        MountFlags::empty()
    };
    mount(
        entry.source.as_str(),
        &target,
        entry.kind.as_str(),
        flags,
        None,
    )
    .map_err(|error| fail(&error))
}

/// Detaches what is mounted, the last first, so that file systems end in good order.
pub fn unmount_all() {
    let Ok(table) = std::fs::read_to_string("/proc/self/mounts") else {
        return;
    };
    for line in table.lines().rev() {
        let mut fields = line.split(' ');
        let (Some(_), Some(place), Some(kind)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        // What is only in memory goes with it.
        if place != "/" && !MOUNTS.iter().any(|(memory, ..)| *memory == kind) {
            // Busy ones were synchronised.
            let _ = unmount(place, UnmountFlags::empty());
        }
    }
    // The root cannot go; it can be left in good order.
    let _ = mount_remount("/", MountFlags::RDONLY, c"");
}
