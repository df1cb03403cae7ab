// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest was told is on its disk is there after a power failure: disks that lose all that was not flushed
//! (`--disk FILE:cut`), under monitors that are killed at any moment. The same with a disk that ignores flushes must fail, or the
//! tests would see nothing.

#![allow(clippy::unwrap_used)] // What cannot be set up has failed.

use paravane_tests::vm;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Appends records and replaces a file, and reports each number when both are durable. First it tells what is there.
const WRITER: &str = "set -e
    mkdir /m; mount -t ext4 /dev/vda /m; touch /m/log
    echo has $(cat /m/state || echo 0) $(wc -l < /m/log); cat /m/log; echo end
    n=$(wc -l < /m/log)
    while :; do
        n=$((n + 1))
        echo $n $(echo $n | md5sum) >> /m/log; sync /m/log
        echo $n > /m/state.new; sync /m/state.new; mv /m/state.new /m/state; sync /m
        echo $n
    done";

struct Disk(tempfile::TempDir);

impl Disk {
    fn new() -> Self {
        let disk = Disk(tempfile::tempdir().unwrap());
        File::create(disk.path()).unwrap().set_len(64 << 20).unwrap();
        let made = Command::new("/sbin/mke2fs")
            .args(["-q", "-t", "ext4"])
            .arg(disk.path())
            .status();
        assert!(made.unwrap().success());
        disk
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("disk")
    }
}

/// A moment up to `most`.
fn some_time(most: Duration) -> Duration {
    let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
    Duration::from_nanos(random % u64::try_from(most.as_nanos()).unwrap())
}

/// What a life of the guest's began with, and what it came to.
#[derive(Debug, Default)]
struct Life {
    /// Whole records, from the first on, before the first that is not what it should be.
    records: u64,
    /// The file that is replaced.
    state: u64,
    /// The last that was reported as durable.
    reported: u64,
}

/// Starts a guest on the disk and kills its monitor at some moment after the first report.
fn live(disk: &Path, mode: &str) -> Life {
    let disk = format!("{}:{mode}", disk.display());
    let mut monitor = vm::command(["--disk", &disk, "--timeout", "60", "--", "sh", "-c", WRITER])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(monitor.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let mut life = Life::default();
    let has = output.next().unwrap_or_default();
    let mut numbers = has.split(' ').skip(1).map(|n| n.parse().unwrap());
    (life.state, life.records) = (numbers.next().unwrap(), 0);
    for line in output.by_ref().take_while(|line| line != "end") {
        let mut words = line.split(' ');
        let (number, sum) = (words.next(), words.next());
        let whole = number == Some(&(life.records + 1).to_string()) && sum.is_some_and(|s| s.len() == 32);
        assert!(whole, "record {} is {line:?}", life.records + 1);
        life.records += 1;
    }
    life.reported = output.next().unwrap().parse().unwrap();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(some_time(Duration::from_millis(400)));
        monitor.kill().unwrap();
        monitor.wait().unwrap();
    });
    for line in output {
        // The last may be cut off.
        life.reported = line.parse().unwrap_or(life.reported).max(life.reported);
    }
    killer.join().unwrap();
    life
}

#[test]
fn what_was_flushed_survives_and_only_that() {
    let disk = Disk::new();
    let mut reported = 0;
    for _ in 0..6 {
        let life = live(&disk.path(), "cut");
        println!("{life:?}");
        assert!(
            life.records >= reported && life.state >= reported,
            "{reported}: {life:?}"
        );
        reported = life.reported;
    }
    // The file system is whole when its journal has been played back.
    let mount = "mkdir /m && mount -t ext4 /dev/vda /m && umount /m";
    let played = paravane_tests::program::finish(
        vm::command(["--disk", &disk.path().display().to_string()]).args(["--", "sh", "-c", mount]),
    );
    assert_eq!(played.code, 0, "{played:?}");
    let check = Command::new("/sbin/e2fsck")
        .args(["-f", "-n"])
        .arg(disk.path())
        .output()
        .unwrap();
    assert!(check.status.success(), "{check:?}");

    let disk = Disk::new();
    let before = live(&disk.path(), "cut-unsafe");
    let after = live(&disk.path(), "cut-unsafe");
    assert!(before.reported > 0, "{before:?}");
    assert!(after.records < before.reported, "nothing is lost: {before:?} {after:?}");
}
