// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine in a shared folder with many small files, and its requests to the device.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use crate::skip::skip;
use crate::worker::Worker;
use rustix::fs::{AtFlags, CWD, OFlags, Timespec, Timestamps, UTIME_OMIT, utimensat};
use std::fs;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Folders that [`fill`] makes.
pub const FOLDERS: u64 = 40;
/// Files in each of them.
pub const FILES: u64 = 10;
/// Requests of anything else, such as a look at the folder itself.
pub const OTHERS: u64 = 12;
/// When no request has come for this time, the device has learned of all files that are closed.
const CLOSES: Duration = Duration::from_millis(100);

/// Folders with files, all of them read since they changed: as long as that is less than a day ago,
/// reading them changes nothing on the host.
pub fn fill(folder: &Path) {
    write(folder);
    for number in 0..FOLDERS {
        let inner = folder.join(format!("d{number}"));
        for file in 0..FILES {
            was_read(&inner.join(format!("f{file}")));
        }
        was_read(&inner);
    }
    was_read(folder);
}

/// Writes the same files, which are not read.
pub fn write(folder: &Path) {
    for number in 0..FOLDERS {
        let inner = folder.join(format!("d{number}"));
        fs::create_dir_all(&inner).unwrap();
        for file in 0..FILES {
            let path = inner.join(format!("f{file}"));
            fs::write(&path, format!("{number} {file}\n")).unwrap();
        }
    }
}

/// Sets the access time after the time of the last change.
fn was_read(path: &Path) {
    let later = SystemTime::now() + Duration::from_secs(3600);
    let seconds = later.duration_since(UNIX_EPOCH).unwrap().as_secs();
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: seconds.try_into().unwrap(),
            tv_nsec: 0,
        },
        last_modification: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
    };
    utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
}

/// Whether this host says which process has made a change. If not, the guest gets messages about
/// its own changes, and the test is skipped.
#[must_use]
pub fn own_changes_are_known() -> bool {
    const CLASS_NOTIF_DFID_NAME: u32 = 0xc00;
    // SAFETY: takes no pointer.
    let file = unsafe { libc::fanotify_init(CLASS_NOTIF_DFID_NAME, 0) };
    if file < 0 {
        let error = std::io::Error::last_os_error();
        skip(&format!("fanotify: {error}"));
        return false;
    }
    // SAFETY: the descriptor is new and has no other owner.
    drop(unsafe { OwnedFd::from_raw_fd(file) });
    true
}

/// A machine in a folder with files.
#[must_use]
pub fn machine() -> Worker {
    machine_with("")
}

/// A machine in a folder with files, with these options of the volume.
#[must_use]
pub fn machine_with(options: &str) -> Worker {
    Worker::in_volume(options, fill)
}

/// A figure of the device.
#[must_use]
pub fn figure(machine: &Worker, name: &str) -> u64 {
    let stats = machine.stat();
    let devices = stats["devices"].as_array().unwrap();
    let volume = devices.iter().find(|device| device["name"] == "fs");
    volume.unwrap()[name].as_u64().unwrap()
}

/// The requests that the device has got.
#[must_use]
pub fn sent(machine: &Worker) -> u64 {
    figure(machine, "requests")
}

/// The files of the folder that the device has open for the guest. Those that it keeps for the
/// guest's inodes are opened with `O_PATH`.
///
/// # Panics
/// When this user may not look at the monitor.
#[must_use]
pub fn open_files(machine: &Worker) -> usize {
    let folder = machine.shared();
    let process = PathBuf::from(format!("/proc/{}", machine.pid()));
    let fds = fs::read_dir(process.join("fd")).unwrap();
    let numbers = fds.map(|fd| fd.unwrap().file_name());
    // Files may be closed meanwhile.
    let open = numbers.filter(|number| {
        let file = fs::read_link(process.join("fd").join(number));
        let info = fs::read_to_string(process.join("fdinfo").join(number)).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| u64::from_str_radix(flags.trim(), 8).ok());
        let path = u64::from(OFlags::PATH.bits());
        file.is_ok_and(|file| file.starts_with(&folder))
            && flags.is_some_and(|flags| flags & path == 0)
    });
    open.count()
}

/// The requests of a command.
pub fn requests(machine: &mut Worker, command: &str) -> u64 {
    let before = sent(machine);
    let said = machine.tell(command);
    assert_eq!(said, "\n", "{command}");
    // The guest reports a moment later that the last file is closed.
    let mut after = sent(machine);
    loop {
        std::thread::sleep(CLOSES);
        let now = sent(machine);
        if now == after {
            break;
        }
        after = now;
    }
    let number = after - before;
    println!("{command}: {number} requests");
    number
}

/// Sets a parameter of the guest's file system.
pub fn switch(machine: &mut Worker, name: &str, on: bool) {
    let value = if on { "Y" } else { "N" };
    machine.does(&format!("echo {value} >/sys/module/fuse/parameters/{name}"));
}
