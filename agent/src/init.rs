// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an init does: mounting, the machine's name, its end.

use crate::{network, path, system};
use paravane_agent_protocol::{Configuration, Mount};
use rustix::fs::{CWD, Mode, mkdirat, symlinkat};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use rustix::system::{RebootCommand, reboot, sethostname};
use std::ffi::CString;
use std::fs;
use std::io;
use std::path::Path;

/// The machine's exit status if process 1 could not do its work.
pub const FAILED: u8 = 254;
/// What a power-off gives as the machine's exit status.
const EXIT_STATUS: &str = "/sys/module/vmi/parameters/exit_status";

/// Kind, place, options.
const MOUNTS: [(&str, &str, &str); 8] = [
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devtmpfs", "/dev", "mode=755"),
    ("devpts", "/dev/pts", "mode=620,gid=5,ptmxmode=666"),
    ("tmpfs", "/dev/shm", "mode=1777"),
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

/// Makes an empty root a system.
pub fn start() -> io::Result<()> {
    for (_, place, _) in MOUNTS {
        mount_memory(place)?;
    }
    for (target, link) in LINKS {
        // It is there already, or nobody needs it.
        let _ = symlinkat(target, CWD, link);
    }
    if let Err(error) = network::loopback_up() {
        eprintln!("paravane-agent: no loopback network: {error}");
    }
    Ok(())
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

/// The kernel looks twice a second whether to make large pages of small ones, from which a virtual machine has little: an idle one
/// would wake for nothing else. Whoever wants it says so again.
const QUIET: (&str, &str) = ("/proc/sys/vm/compaction_proactiveness", "0");

/// Does what the monitor wants of the machine.
pub fn configure(wanted: &Configuration) -> Result<(), String> {
    // A kernel without it has nothing to be told.
    let _ = fs::write(QUIET.0, QUIET.1);
    // A system with its own init has its own name.
    if let (Some(name), false) = (&wanted.hostname, system::is_service()) {
        sethostname(name.as_bytes())
            .map_err(|error| format!("cannot name the machine {name}: {error}"))?;
    }
    for entry in &wanted.mounts {
        mount_one(entry)?;
    }
    if let Some(network) = &wanted.network {
        let done = if system::is_service() {
            network::leave_to_networkd(network)
        } else {
            network::configure(network)
        };
        done.map_err(|error| format!("cannot configure the network: {error}"))?;
    }
    system::ready().map_err(|error| format!("cannot tell this system's init: {error}"))
}

fn mount_one(entry: &Mount) -> Result<(), String> {
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

/// Ends the machine with this status. Comes back only when that is not possible, and says why; under a system's own init
/// comes back when that was asked to.
pub fn power_off(status: u8) -> String {
    let first = std::process::id() == 1;
    // Not on every kernel.
    let _ = std::fs::write(EXIT_STATUS, status.to_string());
    if !first {
        // systemd: start poweroff.target.
        // SAFETY: a system call with plain numbers.
        return if unsafe { libc::kill(1, libc::SIGRTMIN() + 4) } == 0 {
            "this system's init ends the machine".to_string()
        } else {
            let error = io::Error::last_os_error();
            format!("cannot ask this system's init to end the machine: {error}")
        };
    }
    // Nobody writes any more.
    // SAFETY: a system call with plain numbers; -1 is everybody but process 1.
    unsafe {
        libc::kill(-1, libc::SIGKILL);
    }
    rustix::fs::sync();
    unmount_all();
    match reboot(RebootCommand::PowerOff) {
        Ok(()) => "the machine did not end".to_string(),
        Err(error) => format!("cannot end the machine: {error}"),
    }
}

/// Detaches what is mounted, the last first, so that file systems end in good order.
fn unmount_all() {
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
