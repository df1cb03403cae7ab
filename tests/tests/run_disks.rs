// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks in qcow2, checked with QEMU's own tools.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::{program, vm};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn run(words: &[&str], script: &str) -> program::Run {
    let more = ["--timeout", "60", "--", "sh", "-c", script];
    program::finish(&mut vm::command(words.iter().copied().chain(more)))
}

fn tool(name: &str, words: &[&str]) {
    let output = Command::new(name).args(words).output().unwrap();
    assert!(output.status.success(), "{name} {words:?}: {output:?}");
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn name(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// The contents of an image, read by QEMU. Its check must find no error.
    fn contents(&self, image: &str) -> Vec<u8> {
        tool("qemu-img", &["check", &self.name(image)]);
        tool(
            "qemu-img",
            &["convert", "-O", "raw", &self.name(image), &self.name("raw")],
        );
        fs::read(self.path("raw")).unwrap()
    }
}

#[test]
fn what_a_guest_writes_is_there_for_others() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let disk = folder.name("disk.qcow2");
    tool("qemu-img", &["create", "-q", "-f", "qcow2", &disk, "64M"]);
    // Written, zeroed and discarded, in clusters that are not allocated yet and in allocated ones.
    let script = "set -e
        yes pattern | dd of=/dev/vda bs=1M count=8 seek=3 iflag=fullblock conv=notrunc 2>/dev/null
        dd if=/dev/zero of=/dev/vda bs=1M count=1 seek=5 conv=notrunc 2>/dev/null
        printf odd | dd of=/dev/vda bs=512 seek=100001 conv=notrunc 2>/dev/null
        sync; echo 3 > /proc/sys/vm/drop_caches
        dd if=/dev/vda bs=1M skip=3 count=1 2>/dev/null | head -n 1; cat /sys/block/vda/size";
    let snapshot = run(&["--disk", &format!("{disk}:snapshot")], script);
    assert_eq!(
        (snapshot.code, snapshot.stdout.as_str()),
        (0, "pattern\n131072\n"),
        "{snapshot:?}"
    );
    assert!(folder.contents("disk.qcow2").iter().all(|&b| b == 0));
    let read_only = run(&["--disk", &format!("{disk}:ro")], script);
    assert_ne!(read_only.code, 0);
    let done = run(&["--disk", &disk], script);
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (0, "pattern\n131072\n"),
        "{done:?}"
    );
    let seen = folder.contents("disk.qcow2");
    assert_eq!(seen.len(), 64 << 20);
    let pattern: Vec<u8> = b"pattern\n".iter().copied().cycle().take(8 << 20).collect();
    let mut expected = vec![0; 64 << 20];
    expected[3 << 20..11 << 20].copy_from_slice(&pattern);
    expected[5 << 20..6 << 20].fill(0);
    expected[100_001 * 512..][..3].copy_from_slice(b"odd");
    assert!(seen == expected);
    // Only what was written takes space.
    assert!(fs::metadata(folder.path("disk.qcow2")).unwrap().len() < 20 << 20);
}

/// The task that calls fsync() issues the flush: no worker of the guest's kernel runs for it.
#[test]
fn a_flush_needs_no_worker() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let disk = folder.name("disk");
    fs::File::create(&disk).unwrap().set_len(1 << 20).unwrap();
    // Context switches of the workers of the block layer, then flushes that the disk has done.
    let script = "switches() {
            for task in /proc/[0-9]*; do
                read -r name < $task/comm
                case $name in kworker/*:*H*) cat $task/status;; esac
            done | awk '/ctxt_switches/ { sum += $2 } END { print sum + 0 }'
        }
        flushes() { awk '{ print $16 }' /sys/block/vda/stat; }
        before=$(switches) flushed=$(flushes)
        for i in $(seq 200); do
            dd if=/dev/zero of=/dev/vda bs=4k count=1 conv=notrunc,fsync 2>/dev/null
        done
        echo $(($(flushes) - flushed)) $(($(switches) - before))";
    let run = run(&["--disk", &disk, "--cpus", "1"], script);
    let (flushes, switches) = run.stdout.trim().split_once(' ').unwrap_or_default();
    let [flushes, switches] = [flushes, switches].map(|n| n.parse::<u32>().unwrap_or(u32::MAX));
    // Each worker that ran for a flush would have switched at least once.
    assert!(flushes != u32::MAX && flushes >= 200, "{run:?}");
    assert!(switches < 100, "{run:?}");
}

/// A root with one program.
fn small_root(folder: &Folder) -> PathBuf {
    let root = folder.path("root");
    for name in ["bin", "dev", "proc", "sys", "tmp", "run"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    fs::copy(
        paravane_tests::small_root::busybox(),
        root.join("bin/busybox"),
    )
    .unwrap();
    for name in ["sh", "cat", "ls", "sync", "mount", "grep"] {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).unwrap();
    }
    root
}

/// Read-only disks get a layer in memory; the others keep what is written.
#[test]
fn roots_of_every_kind() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let root = small_root(&folder).display().to_string();
    let script = "echo kept > /file; cat /file; ls /bin/busybox";
    let image = folder.name("squashfs");
    tool("mksquashfs", &[&root, &image, "-quiet", "-no-progress"]);
    let erofs = folder.name("erofs");
    tool("mkfs.erofs", &[&erofs, &root]);
    for image in [&image, &erofs] {
        let before = fs::read(image).unwrap();
        let done = run(&["--rootfs", image], script);
        assert_eq!(
            (done.code, done.stdout.as_str()),
            (0, "kept\n/bin/busybox\n"),
            "{image}: {done:?}"
        );
        assert!(fs::read(image).unwrap() == before, "{image}");
        assert_eq!(run(&["--rootfs", image], "cat /file").code, 1);
    }
    // A guest fills it: no tool of the host does that.
    let xfs = folder.name("xfs");
    fs::File::create(&xfs).unwrap().set_len(320 << 20).unwrap();
    tool("/sbin/mkfs.xfs", &["-q", &xfs]);
    let volume = format!("{root}:/from:ro");
    let fill = run(
        &["--disk", &xfs, "--volume", &volume],
        "mkdir /to; mount -t xfs /dev/vda /to && cp -a /from/. /to && umount /to",
    );
    assert_eq!(fill.code, 0, "{fill:?}");
    let done = run(&["--rootfs", &xfs], script);
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (0, "kept\n/bin/busybox\n"),
        "{done:?}"
    );
    let done = run(
        &["--rootfs", &format!("{xfs}:snapshot")],
        "cat /file; mount | grep ' / '",
    );
    assert!(
        done.stdout.starts_with("kept\n") && done.stdout.contains("xfs"),
        "{done:?}"
    );
}

#[test]
fn a_root_in_one() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let root = small_root(&folder);
    let raw = folder.name("ext4");
    tool(
        "/sbin/mke2fs",
        &[
            "-q",
            "-F",
            "-t",
            "ext4",
            "-d",
            &root.display().to_string(),
            &raw,
            "32M",
        ],
    );
    let image = folder.name("root.qcow2");
    tool("qemu-img", &["convert", "-O", "qcow2", "-c", &raw, &image]);
    let done = run(&["--rootfs", &image], "echo kept > /file; cat /file");
    assert_eq!((done.code, done.stdout.as_str()), (0, "kept\n"), "{done:?}");
    let done = run(
        &["--rootfs", &format!("{image}:ro")],
        "cat /file; echo x > /y; ls /y",
    );
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (0, "kept\n/y\n"),
        "{done:?}"
    );
    tool("qemu-img", &["check", &image]);
}

#[test]
fn images_that_name_other_files_are_refused() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let (base, over) = (folder.name("base"), folder.name("over.qcow2"));
    fs::write(folder.path("base"), vec![1; 1 << 20]).unwrap();
    tool(
        "qemu-img",
        &[
            "create", "-q", "-f", "qcow2", "-b", &base, "-F", "raw", &over,
        ],
    );
    let data = folder.name("external.qcow2");
    let with_data = format!("data_file={}", folder.name("data"));
    tool(
        "qemu-img",
        &["create", "-q", "-f", "qcow2", "-o", &with_data, &data, "1M"],
    );
    let damaged = folder.name("damaged.QCOW2");
    tool("qemu-img", &["create", "-q", "-f", "qcow2", &damaged, "1M"]);
    let mut bytes = fs::read(Path::new(&damaged)).unwrap();
    // The table of tables lies outside the file.
    bytes[40..48].fill(0xff);
    fs::write(&damaged, bytes).unwrap();
    let features = folder.name("features.qcow2");
    tool(
        "qemu-img",
        &["create", "-q", "-f", "qcow2", &features, "1M"],
    );
    let mut bytes = fs::read(Path::new(&features)).unwrap();
    let names = bytes
        .windows(4)
        .position(|word| word == [0x68, 0x03, 0xf8, 0x57]);
    // The list of names of features ends in an entry.
    bytes[names.unwrap() + 7] |= 1;
    fs::write(&features, bytes).unwrap();
    let short = folder.name("short.qcow");
    fs::write(&short, b"QFI\xfb").unwrap();
    for (image, part) in [
        (&over, "backing file"),
        (&data, "another file"),
        (&damaged, "cannot be used"),
        (&features, "its list of features ends in an entry"),
        (&short, "without a header"),
    ] {
        for option in ["--disk", "--rootfs"] {
            let done = run(&[option, image], "true");
            assert_eq!((done.code, done.stderr.lines().count()), (2, 1), "{done:?}");
            assert!(done.stderr.contains(part), "{done:?}");
        }
    }
}

/// A guest makes its raw disk a file that begins as a large qcow2 image does.
#[test]
fn what_a_guest_writes_does_not_change_the_format() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let header = folder.name("header.qcow2");
    tool("qemu-img", &["create", "-q", "-f", "qcow2", &header, "1T"]);
    let (disk, volume) = (folder.name("disk.img"), folder.name("disk.qcow"));
    let length = 8 << 20;
    fs::File::create(&disk).unwrap().set_len(length).unwrap();
    let script = "dd if=/dev/vdb of=/dev/vda conv=notrunc 2>/dev/null && sync";
    let raw_header = format!("{header}:raw:ro");
    let done = run(&["--disk", &disk, "--disk", &raw_header], script);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(fs::read(&disk).unwrap().starts_with(b"QFI\xfb"));
    let size = "cat /sys/block/vda/size";
    for option in ["--disk", "--rootfs"] {
        let done = run(&[option, &disk], size);
        assert_eq!((done.code, done.stderr.lines().count()), (2, 1), "{done:?}");
        let line = format!("{option}: {disk}: begins as a qcow2 file does: add :qcow2 ");
        assert!(done.stderr.contains(&line), "{done:?}");
    }
    for (word, sectors) in [
        (format!("{disk}:raw"), "16384\n"),
        (format!("{disk}:raw:snapshot"), "16384\n"),
        (format!("{disk}:qcow2:ro"), "2147483648\n"),
        (format!("{header}:ro"), "2147483648\n"),
    ] {
        let done = run(&["--disk", &word], size);
        assert_eq!((done.code, done.stdout.as_str()), (0, sectors), "{done:?}");
    }
    assert_eq!(fs::metadata(&disk).unwrap().len(), length);
    // A raw disk with the name of an image would become one.
    fs::File::create(&volume).unwrap().set_len(length).unwrap();
    for (word, part) in [
        (volume.clone(), "add :raw"),
        (format!("{volume}:qcow2"), "although :qcow2 says"),
    ] {
        let done = run(&["--disk", &word], size);
        assert_eq!((done.code, done.stderr.lines().count()), (2, 1), "{done:?}");
        assert!(done.stderr.contains(part), "{done:?}");
    }
    let done = run(&["--disk", &volume, "--disk", &volume], size);
    assert!(done.stderr.contains("the machine has it twice"), "{done:?}");
}
