// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small writes of fsync(), which the guest's kernel posts: they end before the device has them,
//! and the flush takes them along.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::worker::Worker;
use paravane_tests::{program, vm};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Stdio;

/// Writes 4 KiB and has it on the disk, at each of the blocks FIRST to LAST.
const SYNCS: &str = "for i in $(seq FIRST LAST); do \
    dd if=/pattern of=/dev/vda bs=4k count=1 seek=$i conv=notrunc,fsync 2>/dev/null || exit 3; \
    done";
const BLOCKS: u64 = 100;

fn syncs(first: u64, last: u64) -> String {
    SYNCS
        .replace("FIRST", &first.to_string())
        .replace("LAST", &last.to_string())
}

/// Requests, notifications and interrupts of the disk for these writes.
fn counts(append: &str) -> [u64; 3] {
    let script = format!(
        "yes pattern | head -c 4096 >/pattern; while read; do ({}); echo $?; done",
        syncs(0, BLOCKS - 1)
    );
    let mut machine = Worker::start(None, &script, |folder| {
        let disk = folder.join("disk");
        File::create(&disk).unwrap().set_len(4 << 20).unwrap();
        ["--cpus", "1", "--append", append, "--disk"]
            .map(String::from)
            .into_iter()
            .chain([disk.display().to_string()])
            .collect()
    });
    let count = |machine: &Worker| {
        let stats = machine.stat();
        let devices = stats["devices"].as_array().unwrap();
        let disk = devices.iter().find(|device| device["name"] == "disk");
        ["requests", "notifications", "interrupts"]
            .map(|name| disk.unwrap()[name].as_u64().unwrap())
    };
    // Opened and read before.
    assert_eq!(machine.work(), "0\n");
    let before = count(&machine);
    assert_eq!(machine.work(), "0\n");
    let after = count(&machine);
    let file = File::open(machine.folder().join("disk")).unwrap();
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, (BLOCKS - 1) * 4096).unwrap();
    assert_eq!(&bytes, b"pattern\n");
    machine.end();
    std::array::from_fn(|i| after[i] - before[i])
}

/// One notification and one interrupt for a write and its flush, in place of two.
#[test]
fn a_flush_takes_the_write_along() {
    let posted = counts("virtio_blk.posted_writes=1");
    let apart = counts("virtio_blk.posted_writes=0");
    println!("posted {posted:?}, apart {apart:?}");
    // Opening and closing the disk may cost a few more.
    let about =
        |count: u64, each: u64| (BLOCKS * each..BLOCKS * each + BLOCKS / 2).contains(&count);
    assert!(
        about(posted[0], 2) && about(apart[0], 2),
        "{posted:?} {apart:?}"
    );
    // The timer may come between a write and its flush.
    assert!(
        posted[1] < BLOCKS * 5 / 4 && posted[2] < BLOCKS * 5 / 4,
        "{posted:?}"
    );
    assert!(
        apart[1] > BLOCKS * 7 / 4 && apart[2] > BLOCKS * 7 / 4,
        "{apart:?}"
    );
}

/// A posted write has ended before the host refuses it. Then no flush succeeds, so that no program
/// takes its data for kept.
#[test]
fn no_flush_succeeds_after_a_posted_write_was_lost() {
    if !rustix::process::getuid().is_root() {
        return paravane_tests::skip::skip("mounts a small file system, as root");
    }
    let folder = tempfile::tempdir().unwrap();
    // In a namespace of its own: a file system of 1 MiB with a disk of 4 MiB.
    let mount = r#"
        set -e
        mount -t tmpfs -o size=1m none "$1"
        truncate -s 4M "$1/disk"
        cd "$1"
        shift
        exec "$@"
    "#;
    let guest = format!(
        "yes pattern | head -c 4096 >/pattern; ({}); echo $?; ({}); echo $?; ({}); echo $?; \
         dmesg | grep -c 'lost a write'; dd if=/dev/vda bs=4k count=1 2>/dev/null | head -n 1",
        syncs(0, 99),
        syncs(100, 400),
        syncs(0, 0)
    );
    let machine = vm::command([
        "--timeout",
        "60",
        "--disk",
        "disk",
        "--",
        "sh",
        "-c",
        &guest,
    ]);
    let mut command = std::process::Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", mount, "sh"])
        .arg(folder.path())
        .arg(machine.get_program())
        .args(machine.get_args())
        .stdin(Stdio::null());
    let run = program::finish(&mut command);
    assert_eq!(
        (run.code, run.stdout.as_str()),
        // The write that was lost, and a block that the host has.
        (0, "0\n3\n3\n1\npattern\n"),
        "{run:?}"
    );
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
}
