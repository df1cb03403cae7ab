// SPDX-License-Identifier: Apache-2.0 OR MIT
//! File systems that the agent mounts as process 1, and directories for them.

use crate::path;
use paravane_agent_protocol::Mount;
use rustix::fs::{CWD, Mode, mkdirat, symlinkat};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::path::Path;

/// File systems in memory: type, mount point, options.
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

/// The kernel's own files for programs that trace, use BPF or read the state of security modules:
/// type, mount point, options, as systemd mounts them. The mount points exist in /sys if the kernel
/// has the file systems. debugfs is not among them: many scripts mount it themselves, and the
/// kernel refuses a second mount there.
const VIEWS: [(&str, &str, &CStr); 3] = [
    ("tracefs", "/sys/kernel/tracing", c""),
    ("securityfs", "/sys/kernel/security", c""),
    ("bpf", "/sys/fs/bpf", c"mode=700"),
];

/// The program that the kernel runs to load a module.
const MODPROBE: &str = "/proc/sys/kernel/modprobe";

/// Links in /dev: target and path.
const LINKS: [(&str, &str); 4] = [
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
];

/// Mounts all of [`MOUNTS`] and [`VIEWS`], and creates the links in /dev.
pub fn mount_all() -> io::Result<()> {
    for (_, place, _) in MOUNTS {
        // Programs of an image with files in /tmp expect to find them.
        if place != "/tmp" || is_empty(place) {
            mount_memory(place)?;
        }
    }
    without_modprobe(mount_views);
    for (target, link) in LINKS {
        // Fails if the link exists. The few programs that need one report its absence.
        let _ = symlinkat(target, CWD, link);
    }
    Ok(())
}

/// Does this while the kernel can run no program to load a module. For a mount of bpf it would run
/// one for `bpf_preload`, which machines do not have, and wait for its end: milliseconds of each
/// start.
fn without_modprobe(work: impl FnOnce()) {
    let program = fs::read(MODPROBE).and_then(|program| {
        fs::write(MODPROBE, "\n")?;
        Ok(program)
    });
    work();
    // Fails on kernels that load no modules, which need nothing restored.
    let Ok(program) = program else { return };
    if let Err(error) = fs::write(MODPROBE, program) {
        eprintln!("paravane-agent: cannot restore {MODPROBE}: {error}");
    }
}

/// Mounts those of [`VIEWS`] that the kernel has. Few programs need one, so that a failure is no
/// reason to end the machine.
fn mount_views() {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    for (kind, place, options) in VIEWS {
        if !Path::new(place).is_dir() {
            continue;
        }
        match mount(kind, place, kind, flags, options) {
            Ok(()) | Err(rustix::io::Errno::NODEV | rustix::io::Errno::BUSY) => {}
            Err(error) => eprintln!("paravane-agent: cannot mount {place}: {error}"),
        }
    }
}

/// Whether a directory is empty or does not exist.
fn is_empty(path: &str) -> bool {
    fs::read_dir(path).map_or(true, |mut entries| entries.next().is_none())
}

/// Mounts one of [`MOUNTS`], given by its mount point, which is created if necessary.
pub fn mount_memory(place: &str) -> io::Result<()> {
    let Some((kind, _, options)) = MOUNTS.into_iter().find(|(_, known, _)| *known == place) else {
        return Ok(());
    };
    make_directory(Path::new(place))?;
    let flags = match place {
        // Where device files are opened.
        "/dev" | "/dev/pts" => MountFlags::NOSUID,
        _ => MountFlags::NOSUID | MountFlags::NODEV,
    };
    let options = CString::new(options)?;
    match mount(kind, place, kind, flags, &*options) {
        Ok(()) => Ok(()),
        // The kernel lacks this file system, or has mounted it itself.
        Err(rustix::io::Errno::NODEV | rustix::io::Errno::BUSY) => Ok(()),
        Err(error) => Err(io::Error::other(format!("cannot mount {place}: {error}"))),
    }
}

/// Creates a directory and its missing parents, with mode 0755.
pub fn make_directory(path: &Path) -> io::Result<()> {
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

/// Mounts a file system that the monitor has configured, such as a volume.
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
    make_directory(&target).map_err(|error| fail(&error))?;
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

/// Unmounts all file systems on disks, the last mounted first, so that they are clean.
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
        let in_memory = MOUNTS.iter().any(|(memory, ..)| *memory == kind)
            || VIEWS.iter().any(|(view, ..)| *view == kind);
        // File systems in memory have nothing to write back.
        if place != "/" && !in_memory {
            // Fails for busy ones, which are synchronized at least.
            let _ = unmount(place, UnmountFlags::empty());
        }
    }
    // The root cannot be unmounted. Read-only, it is clean as well.
    let _ = mount_remount("/", MountFlags::RDONLY, c"");
}
