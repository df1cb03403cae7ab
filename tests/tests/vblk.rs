// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks of a virtual bus: the host sees what a guest writes, and drivers and devices leave and
//! return under load.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::program::{self, Run};
use paravane_tests::{small_root, vm};
use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;
use std::process::Command;

/// Writes random data over and over in the background, and reads it back: `$1` is a file or disk,
/// `$2` how many MiB.
const WORK: &str = "work() {
        while test -b $1; do
            dd if=/tmp/data of=$1 bs=64k count=$(($2 * 16)) conv=notrunc,fsync 2>/dev/null || break
            dd if=$1 of=/dev/null bs=4k count=$(($2 * 256)) iflag=direct 2>/dev/null || break
        done
    }
    dd if=/dev/urandom of=/tmp/data bs=1M count=8 2>/dev/null
    ";

fn run(disks: &[&str], script: &str) -> Run {
    program::finish(&mut with(vm::command([""; 0]), disks, script))
}

fn run_with_hooks(disks: &[&str], script: &str) -> Run {
    program::finish(&mut with(vm::command_with_hooks([""; 0]), disks, script))
}

fn with(mut command: Command, disks: &[&str], script: &str) -> Command {
    for disk in disks {
        command.args(["--disk", disk]);
    }
    command.args([
        "--net",
        "none",
        "--timeout",
        "100",
        "--",
        "sh",
        "-c",
        script,
    ]);
    command
}

fn tool(name: &str, words: &[&str]) -> Vec<u8> {
    let output = Command::new(name).args(words).output().unwrap();
    assert!(output.status.success(), "{name} {words:?}: {output:?}");
    output.stdout
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn name(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// A disk of `mib` MiB without content.
    fn empty(&self, name: &str, mib: u64) -> String {
        let file = File::create(self.path(name)).unwrap();
        file.set_len(mib << 20).unwrap();
        self.name(name)
    }

    /// A disk with a file system.
    fn ext4(&self, name: &str) -> String {
        let disk = self.empty(name, 64);
        tool("/sbin/mke2fs", &["-q", "-t", "ext4", &disk]);
        disk
    }

    fn check(&self, name: &str) {
        tool("/sbin/e2fsck", &["-f", "-n", &self.name(name)]);
    }

    fn sum(&self, name: &str) -> String {
        let sum = String::from_utf8(tool("sha256sum", &[&self.name(name)])).unwrap();
        sum.split(' ').next().unwrap().to_string()
    }
}

#[test]
fn a_file_system_and_its_sums_are_the_same_on_both_sides() {
    let folder = Folder::new();
    let disk = folder.ext4("disk");
    let script = "set -e
        mkdir /m; mount -t ext4 /dev/vbd0 /m
        head -c 20000000 /dev/urandom > /m/large; yes | head -n 1000 > /m/small
        sync; echo 3 > /proc/sys/vm/drop_caches
        sha256sum < /m/large | cut -d ' ' -f 1; sha256sum < /m/small | cut -d ' ' -f 1
        rm -f /m/small; fstrim /m; umount /m
        cat /sys/block/vbd0/serial /sys/bus/vbus/devices/*/type /sys/block/vbd0/size";
    let done = run(&[&format!("{disk}:vbus")], script);
    assert_eq!(done.code, 0, "{done:?}");
    folder.check("disk");
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(lines[2..], ["disk0virtual-block", "131072"]);
    tool(
        "/sbin/debugfs",
        &[
            "-R",
            &format!("dump /large {}", folder.name("large")),
            &disk,
        ],
    );
    assert_eq!(folder.sum("large"), lines[0]);
    // The sectors that the guest has trimmed take no room.
    let room = std::os::unix::fs::MetadataExt::blocks(&fs::metadata(&disk).unwrap()) * 512;
    assert!(room < 40_000_000, "{room}");
}

/// Requests of every size and place, on a raw disk and one in qcow2, of several in turn.
#[test]
fn bytes_are_where_they_belong() {
    let folder = Folder::new();
    let raw = folder.empty("raw", 48);
    let qcow2 = folder.name("disk.qcow2");
    tool("qemu-img", &["create", "-q", "-f", "qcow2", &qcow2, "48M"]);
    let mut data = vec![0; 16 << 20];
    File::open("/dev/urandom")
        .unwrap()
        .read_exact(&mut data)
        .unwrap();
    let source = folder.empty("source", 16);
    fs::write(&source, &data).unwrap();
    let script = "set -e
        cat /sys/block/vbd0/ro /sys/block/vbd1/ro /sys/block/vbd2/ro
        for disk in vbd1 vbd2; do
            for size in 512 4096 65536 1048576; do
                dd if=/dev/vbd0 of=/dev/$disk bs=$size seek=3 count=$((4194304 / size)) \
                    iflag=direct oflag=direct conv=notrunc 2>/dev/null
            done
            dd if=/dev/vbd0 of=/dev/$disk bs=1M seek=20 conv=notrunc 2>/dev/null
            blkdiscard -o 41943040 -l 1048576 /dev/$disk
            dd if=/dev/zero of=/dev/$disk bs=1M seek=47 count=1 conv=notrunc 2>/dev/null
        done
        sync; echo 3 > /proc/sys/vm/drop_caches
        sha256sum /dev/vbd1 /dev/vbd2 | cut -d ' ' -f 1";
    let disks = [
        format!("{source}:ro:vbus"),
        format!("{raw}:vbus"),
        format!("{qcow2}:vbus"),
    ];
    let disks: Vec<&str> = disks.iter().map(String::as_str).collect();
    let done = run(&disks, script);
    assert_eq!(done.code, 0, "{done:?}");
    let mut expected = vec![0; 48 << 20];
    for size in [512, 4096, 65536, 1 << 20] {
        expected[3 * size..][..4 << 20].copy_from_slice(&data[..4 << 20]);
    }
    expected[20 << 20..36 << 20].copy_from_slice(&data);
    assert!(fs::read(&raw).unwrap() == expected);
    tool("qemu-img", &["check", "-q", &qcow2]);
    tool(
        "qemu-img",
        &["convert", "-O", "raw", &qcow2, &folder.name("back")],
    );
    assert!(fs::read(folder.path("back")).unwrap() == expected);
    let sum = folder.sum("raw");
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(lines, ["1", "0", "0", &sum, &sum]);
    assert_eq!(fs::read(&source).unwrap(), data);
}

#[test]
fn what_may_not_be_written_is_not() {
    let folder = Folder::new();
    let disk = folder.ext4("disk");
    let before = folder.sum("disk");
    let write = "mkdir /m; mount -t ext4 /dev/vbd0 /m && echo x > /m/file && sync && cat /m/file";
    let kept = run(&[&format!("{disk}:snapshot:vbus")], write);
    assert_eq!((kept.code, kept.stdout.as_str()), (0, "x\n"), "{kept:?}");
    assert_eq!(folder.sum("disk"), before);
    let refused = run(
        &[&format!("{disk}:vbus:ro")],
        "dd if=/dev/zero of=/dev/vbd0 bs=4k count=1 conv=fsync && exit 3
         blkdiscard /dev/vbd0 && exit 4
         mkdir /m; mount -t ext4 -o ro /dev/vbd0 /m && ls /m",
    );
    assert_eq!(
        (refused.code, refused.stdout.as_str()),
        (0, "lost+found\n"),
        "{refused:?}"
    );
    assert_eq!(folder.sum("disk"), before);
}

#[test]
fn a_root_may_be_on_the_bus_and_other_disks_are_beside_it() {
    let folder = Folder::new();
    let root = folder.path("root");
    for name in ["bin", "dev", "proc", "sys", "tmp", "run"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    fs::copy(small_root::busybox(), root.join("bin/busybox")).unwrap();
    for name in ["sh", "cat", "ls", "mount", "grep"] {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).unwrap();
    }
    let image = folder.name("image");
    let root = root.display().to_string();
    tool(
        "/sbin/mke2fs",
        &["-q", "-t", "ext4", "-d", &root, &image, "32M"],
    );
    let (other, virtio) = (folder.empty("other", 1), folder.empty("virtio", 1));
    let words = ["--rootfs", &format!("{image}:vbus")];
    let script = "mount | grep -c '^/dev/vbd0 on / '; ls /dev/vbd1 /dev/vda; echo kept > /file";
    let mut command = with(
        vm::command(words),
        &[&format!("{other}:vbus"), &virtio],
        script,
    );
    let done = program::finish(&mut command);
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (0, "1\n/dev/vbd1\n/dev/vda\n"),
        "{done:?}"
    );
    let again = program::finish(&mut with(vm::command(words), &[], "cat /file"));
    assert_eq!(
        (again.code, again.stdout.as_str()),
        (0, "kept\n"),
        "{again:?}"
    );
    let folder = ["--rootfs", &format!("{root}:vbus")];
    let refused = program::finish(&mut with(vm::command(folder), &[], "true"));
    assert_eq!((refused.code, refused.stderr.lines().count()), (2, 1));
    assert!(refused.stderr.contains("is for disk images"), "{refused:?}");
}

#[test]
fn where_it_cannot_be_it_is_refused_in_a_line() {
    let folder = Folder::new();
    let disk = folder.empty("disk", 1);
    for (option, word, part) in [
        (
            "--disk",
            &*format!("{disk}:vbus:vbus"),
            "exclude each other",
        ),
        (
            "--disk",
            &*format!("{disk}:ro:cut:vbus"),
            "exclude each other",
        ),
        (
            "--disk",
            &*format!("{disk}:vbus"),
            "the machine has it twice",
        ),
    ] {
        let words = [option, word];
        let run = program::finish(&mut with(
            vm::command(words),
            &[&format!("{disk}:vbus")],
            "true",
        ));
        assert_eq!((run.code, run.stderr.lines().count()), (2, 1), "{run:?}");
        assert!(run.stderr.contains(part), "{word}: {run:?}");
    }
}

/// A driver leaves its device and returns while programs read and write.
#[test]
fn a_driver_may_leave_under_load_and_return() {
    let folder = Folder::new();
    let disk = folder.empty("disk", 16);
    let script = format!(
        "{WORK}
        set -e
        driver=/sys/bus/vbus/drivers/vblk
        device=$(basename $driver/vbus*)
        for turn in 1 2 3 4 5; do
            work /dev/vbd0 8 & work /dev/vbd0 8 &
            usleep $((turn * 40000))
            echo $device > $driver/unbind
            wait
            test ! -e /sys/block/vbd0
            # A program may have made a file of this name in between.
            rm -f /dev/vbd0
            echo $device > $driver/bind
            # The disk comes when its partitions were read.
            n=0; until test -b /dev/vbd0; do n=$((n + 1)); test $n -lt 1000; usleep 10000; done
        done
        cat /tmp/data > /dev/vbd0; sync; sha256sum < /tmp/data | cut -d ' ' -f 1"
    );
    let done = run(&[&format!("{disk}:vbus")], &script);
    assert_eq!(done.code, 0, "{done:?}");
    File::options()
        .write(true)
        .open(&disk)
        .unwrap()
        .set_len(8 << 20)
        .unwrap();
    assert_eq!(done.stdout.trim(), folder.sum("disk"), "{done:?}");
}

/// Requests that a connection had when it ended are repeated, and no program notices.
#[test]
fn a_connection_that_ends_loses_no_request() {
    let folder = Folder::new();
    let disk = folder.ext4("disk");
    let script = "set -e
        mkdir /m; mount -t ext4 /dev/vbd0 /m
        for turn in 1 2 3; do
            for n in 1 2 3 4; do
                (
                    dd if=/dev/urandom of=/m/$n bs=1M count=3 2>/dev/null
                    sha256sum < /m/$n > /tmp/$n; sync /m/$n
                ) &
            done
            wait
            echo 3 > /proc/sys/vm/drop_caches
            for n in 1 2 3 4; do
                dd if=/m/$n bs=4k iflag=direct 2>/dev/null | sha256sum | cmp - /tmp/$n
            done
        done
        umount /m
        dmesg | grep -c 'vbus.* the connection ended' > /tmp/ended
        ! dmesg | grep -i 'i/o error'
        test $(cat /tmp/ended) -ge 10 && echo often";
    let done = run_with_hooks(&[&format!("{disk}:vbus-breaks")], script);
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (0, "often\n"),
        "{done:?}"
    );
    folder.check("disk");
}

/// A device that disappears makes requests fail, at once and for good, and the guest goes on.
#[test]
fn a_disk_that_disappears_fails_what_it_had() {
    let folder = Folder::new();
    let (disk, other) = (folder.empty("disk", 16), folder.empty("other", 16));
    let script = format!(
        "{WORK}
        work /dev/vbd0 8 & work /dev/vbd0 8 & work /dev/vbd1 8 &
        wait %1 %2
        rm -f /dev/vbd0
        while test -e /sys/block/vbd0; do usleep 10000; done
        kill %3
        dd if=/dev/vbd1 of=/dev/null bs=64k count=16 iflag=direct 2>/dev/null && echo there
        cat /sys/bus/vbus/devices/*/type
        exec 2>/dev/null
        test -e /dev/vbd0 || echo gone"
    );
    let disks = [format!("{disk}:vbus-vanishes"), format!("{other}:vbus")];
    let done = run_with_hooks(&[&disks[0], &disks[1]], &script);
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (0, "there\nvirtual-block\ngone\n"),
        "{done:?}"
    );
}

/// A disk disappears while its file system is mounted.
#[test]
fn a_file_system_whose_disk_disappears_ends_no_machine() {
    let folder = Folder::new();
    let disk = folder.ext4("disk");
    let script = "mkdir /m; mount -t ext4 /dev/vbd0 /m || exit 9
        n=0
        while dd if=/dev/urandom of=/m/f$n bs=1M count=1 && sync /m/f$n && test $n -lt 400; do
            n=$((n + 1)); rm -f /m/f$((n - 3))
        done 2>/dev/null
        while test -e /sys/block/vbd0; do usleep 10000; done
        umount /m && echo still here";
    let done = run_with_hooks(&[&format!("{disk}:vbus-vanishes")], script);
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (0, "still here\n"),
        "{done:?}"
    );
    // Its journal is whole.
    let play = "mkdir /m && mount -t ext4 /dev/vbd0 /m && umount /m";
    let played = run(&[&format!("{disk}:vbus")], play);
    assert_eq!(played.code, 0, "{played:?}");
    folder.check("disk");
}
