// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data that the disk of a guest has reported as flushed is there after a power failure. The disks
//! lose everything that was not flushed (`--disk FILE:cut`), and the monitors are killed at random
//! moments. The test must fail with a disk that ignores flushes, or it would prove nothing.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::life::Life;
use paravane_tests::{program, vm};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The suffix of a disk that ignores flushes. Only the program with hooks has it.
const UNSAFE: &str = ":cut-unsafe";
/// Reports what the disk holds, then appends records and replaces a file, and reports each number
/// when both are durable.
const WRITER: &str = "set -e
    mkdir /m; mount -t ext4 $(ls /dev/vda /dev/vbd0 2>/dev/null) /m; touch /m/log
    echo has $(cat /m/state || echo 0) $(wc -l < /m/log); cat /m/log; echo end
    n=$(wc -l < /m/log)
    while :; do
        n=$((n + 1))
        echo $n $(echo $n | md5sum) >> /m/log; sync /m/log
        echo $n > /m/state.new; sync /m/state.new; mv /m/state.new /m/state; sync /m
        echo $n
    done";

fn tool(name: &str, words: &[&str], files: &[&Path]) {
    let output = Command::new(name).args(words).args(files).output().unwrap();
    assert!(output.status.success(), "{name} {words:?}: {output:?}");
}

struct Disk(tempfile::TempDir);

impl Disk {
    fn new() -> Self {
        let disk = Disk(tempfile::tempdir().unwrap());
        File::create(disk.path())
            .unwrap()
            .set_len(64 << 20)
            .unwrap();
        tool("/sbin/mke2fs", &["-q", "-t", "ext4"], &[&disk.path()]);
        disk
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("disk")
    }

    /// A copy of the disk as a qcow2 image.
    fn qcow2(&self) -> PathBuf {
        let image = self.0.path().join("disk.qcow2");
        tool(
            "qemu-img",
            &["convert", "-q", "-O", "qcow2"],
            &[&self.path(), &image],
        );
        image
    }

    /// Replaces the disk by the contents of such an image.
    fn take(&self, image: &Path) {
        let check = Command::new("qemu-img")
            .arg("check")
            .arg(image)
            .output()
            .unwrap();
        // Unused clusters may be left of what was cut off.
        assert!(matches!(check.status.code(), Some(0 | 3)), "{check:?}");
        tool(
            "qemu-img",
            &["convert", "-q", "-O", "raw"],
            &[image, &self.path()],
        );
    }

    /// Checks that the file system is consistent after its journal has been replayed.
    fn check(&self) {
        let mount = "mkdir /m && mount -t ext4 /dev/vda /m && umount /m";
        let played = program::finish(
            vm::command(["--disk", &self.path().display().to_string()])
                .args(["--", "sh", "-c", mount]),
        );
        assert_eq!(played.code, 0, "{played:?}");
        tool("/sbin/e2fsck", &["-f", "-n"], &[&self.path()]);
    }
}

/// What a guest found at its start, and what it achieved.
#[derive(Debug, Default)]
struct Seen {
    /// Valid records from the first on, up to the first invalid one.
    records: u64,
    /// The file that is replaced.
    state: u64,
    /// The last one that was reported as durable.
    reported: u64,
}

/// Starts a guest on the disk and kills its monitor at some moment after the first report.
fn live(disk: &Path, mode: &str) -> Seen {
    let disk = format!("{}{mode}", disk.display());
    let options = ["--disk", &disk, "--timeout", "60", "--", "sh", "-c", WRITER];
    let mut output = Life::begin(&mut if mode.starts_with(UNSAFE) {
        vm::command_with_hooks(options)
    } else {
        vm::command(options)
    });
    let mut life = Seen::default();
    let has = output.next().unwrap_or_default();
    let mut numbers = has.split(' ').skip(1).map(|n| n.parse().unwrap());
    (life.state, life.records) = (numbers.next().unwrap(), 0);
    for line in output.before("end") {
        let mut words = line.split(' ');
        let (number, sum) = (words.next(), words.next());
        let whole =
            number == Some(&(life.records + 1).to_string()) && sum.is_some_and(|s| s.len() == 32);
        assert!(whole, "record {} is {line:?}", life.records + 1);
        life.records += 1;
    }
    life.reported = output.next().unwrap().parse().unwrap();
    output.end(Duration::from_millis(400), |line| {
        life.reported = line.parse().unwrap_or(life.reported).max(life.reported);
    });
    life
}

/// `count` guests after each other on one disk.
fn lives(disk: &Path, mode: &str, count: usize) {
    let mut reported = 0;
    for _ in 0..count {
        let life = live(disk, mode);
        println!("{mode} {life:?}");
        assert!(
            life.records >= reported && life.state >= reported,
            "{reported}: {life:?}"
        );
        reported = life.reported;
    }
}

#[test]
fn what_was_flushed_survives_and_only_that() {
    survives("", 6);
}

#[test]
fn what_was_flushed_survives_on_a_virtual_bus() {
    survives(":vbus", 3);
}

/// For a device of this kind.
fn survives(device: &str, count: usize) {
    let disk = Disk::new();
    lives(&disk.path(), &format!(":cut{device}"), count);
    disk.check();

    let disk = Disk::new();
    let mode = format!("{UNSAFE}{device}");
    let before = live(&disk.path(), &mode);
    let after = live(&disk.path(), &mode);
    assert!(before.reported > 0, "{before:?}");
    assert!(
        after.records < before.reported,
        "nothing is lost: {before:?} {after:?}"
    );
}

/// The monitor's map of the image is lost with the monitor.
#[test]
fn what_was_flushed_survives_in_an_image_of_qemu_s() {
    for mode in ["", ":cut"] {
        let disk = Disk::new();
        let image = disk.qcow2();
        lives(&image, mode, 4);
        disk.take(&image);
        disk.check();
    }
}
