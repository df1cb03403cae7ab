// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine in a shared folder with many small files, and what it asks the device for.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use crate::worker::Worker;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};
use std::fs;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Folders that [`fill`] makes.
pub const FOLDERS: u64 = 40;
/// Files in each of them.
pub const FILES: u64 = 10;
/// Requests of anything else, such as a look at the folder itself.
pub const OTHERS: u64 = 12;
/// In which the device has been told of all files that are closed.
const CLOSES: Duration = Duration::from_millis(100);

/// Folders with files, all of them read by somebody since they changed: as long as that is less
/// than a day ago, reading them changes nothing on the host.
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

/// The same, and nobody has read them.
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

/// Whether this host says which process has made a change. If not, the guest is told of its own.
#[must_use]
pub fn own_changes_are_known() -> bool {
    const CLASS_NOTIF_DFID_NAME: u32 = 0xc00;
    // SAFETY: takes no pointer.
    let file = unsafe { libc::fanotify_init(CLASS_NOTIF_DFID_NAME, 0) };
    if file < 0 {
        eprintln!("skipped: fanotify: {}", std::io::Error::last_os_error());
        return false;
    }
    // SAFETY: nobody else has the descriptor, which is new.
    drop(unsafe { OwnedFd::from_raw_fd(file) });
    true
}

/// A machine in a folder with files.
#[must_use]
pub fn machine() -> Worker {
    machine_with("")
}

/// The same with options of the volume.
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

/// The requests of a command.
pub fn requests(machine: &mut Worker, command: &str) -> u64 {
    let before = sent(machine);
    let said = machine.tell(command);
    assert_eq!(said, "\n", "{command}");
    // The guest tells a moment later that the last file is closed.
    std::thread::sleep(CLOSES);
    let number = sent(machine) - before;
    println!("{command}: {number} requests");
    number
}

/// Sets a parameter of the guest's file system.
pub fn switch(machine: &mut Worker, name: &str, on: bool) {
    let value = if on { "Y" } else { "N" };
    machine.does(&format!("echo {value} >/sys/module/fuse/parameters/{name}"));
}
