// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Resources of the host that a machine gets: folders, disks, a root, a network.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::lines::Lines;
use paravane_tests::{linux, program, source_root, vm};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn run(words: &[&str], script: &str) -> program::Run {
    let more = ["--", "sh", "-c", script];
    program::finish(&mut vm::command(words.iter().copied().chain(more)))
}

/// A root with two programs, both busybox.
fn small_root(folder: &Path) {
    for name in ["bin", "dev", "proc", "sys", "tmp", "run", "etc"] {
        fs::create_dir_all(folder.join(name)).unwrap();
    }
    fs::copy(
        paravane_tests::small_root::busybox(),
        folder.join("bin/busybox"),
    )
    .unwrap();
    for name in ["sh", "cat", "mount", "touch", "ls", "echo", "sync"] {
        std::os::unix::fs::symlink("busybox", folder.join("bin").join(name)).unwrap();
    }
    fs::write(folder.join("etc/own"), "mine\n").unwrap();
}

#[test]
fn a_folder_both_ways() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in"), "hello").unwrap();
    let volume = format!("{}:/mnt/x", folder.path().display());
    let done = run(
        &["--volume", &volume],
        "cat /mnt/x/in && echo world > /mnt/x/out",
    );
    assert_eq!((done.code, done.stdout.as_str()), (0, "hello"), "{done:?}");
    assert_eq!(
        fs::read_to_string(folder.path().join("out")).unwrap(),
        "world\n"
    );
    let done = run(
        &["--volume", &format!("{volume}:ro")],
        "echo no > /mnt/x/more",
    );
    assert_eq!(done.code, 1, "{done:?}");
    assert!(!folder.path().join("more").exists());
}

/// The host delays the open of a file on which another process has a lease, like a disk or a server
/// may delay it.
#[test]
fn a_slow_file_keeps_no_other_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let (shared, holder) = (folder.path().join("shared"), folder.path().join("lease"));
    fs::create_dir(&shared).unwrap();
    for name in ["slow", "fast"] {
        fs::write(shared.join(name), format!("{name}\n")).unwrap();
    }
    linux::compile(&source_root().join("tests/guest/lease"), &holder);
    for mode in ["", ":ro"] {
        let mut lease = Command::new(&holder)
            .arg(shared.join("slow"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let held = program::first_line(&mut lease);
        assert_eq!(held, "held\n");
        let volume = format!("{}:/x{mode}", shared.display());
        // Not by cat, which copies with sendfile(): while that waits for the file, it holds the
        // pipe that is everybody's output.
        let script = "{ read -r line < /x/slow; echo \"$line\"; } & sleep 0.2
            for i in 1 2 3 4 5 6 7 8 9; do cat /x/fast; done; wait";
        let mut child = vm::command([
            "--volume",
            &volume,
            "--timeout",
            "60",
            "--",
            "sh",
            "-c",
            script,
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
        // The host's kernel breaks the lease after 45 seconds.
        let begun = Instant::now();
        let mut lines = Lines::of(child.stdout.take());
        for _ in 0..9 {
            assert_eq!(lines.next_within(program::PATIENCE), "fast\n");
        }
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{:?}",
            begun.elapsed()
        );
        drop(lease.stdin.take());
        assert_eq!(lines.next_within(program::PATIENCE), "slow\n");
        assert!(
            program::wait_within(&mut child, program::PATIENCE).success()
                && program::wait_within(&mut lease, program::PATIENCE).success()
        );
    }
}

/// The guest's root user can mount a folder in any way: the host must prevent writes.
#[test]
fn a_folder_for_reading_is_kept_so_by_the_host() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in"), "hello").unwrap();
    let volume = format!("{}:/mnt/x:ro", folder.path().display());
    let script = "umount /mnt/x; mkdir /w; mount -t virtiofs volume0 /w && \
        grep -q '/w virtiofs rw' /proc/mounts && cat /w/in
        cd /w
        for what in 'touch new' 'rm in' 'mkdir d' 'mv in out' 'ln in other' 'ln -s in link' \
            'chmod 0 in' 'chown 1 in' 'touch -d 2000-01-01 in' 'truncate -s 0 in' 'mkfifo p' \
            'dd if=/dev/zero of=in conv=notrunc' 'cp /etc/passwd in'; do
            $what 2>/tmp/why && echo \"$what: done\"
            grep -qi 'read-only' /tmp/why || cat /tmp/why
        done; cat in";
    let done = run(&["--volume", &volume], script);
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (0, "hellohello"),
        "{done:?}"
    );
    let names: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, ["in"]);
    assert_eq!(fs::read(folder.path().join("in")).unwrap(), b"hello");
}

#[test]
fn a_disk_keeps_what_is_written_unless_it_is_a_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("disk");
    File::create(&file).unwrap().set_len(1 << 20).unwrap();
    let disk = file.display().to_string();
    let write = "printf kept | dd of=/dev/vda bs=512 seek=3 conv=fsync 2>/dev/null && \
        dd if=/dev/vda bs=512 skip=3 count=1 2>/dev/null | head -c 4";
    let done = run(&["--disk", &format!("{disk}:snapshot")], write);
    assert_eq!((done.code, done.stdout.as_str()), (0, "kept"), "{done:?}");
    assert!(fs::read(&file).unwrap().iter().all(|&b| b == 0));
    let done = run(&["--disk", &format!("{disk}:ro")], write);
    assert_ne!(done.code, 0, "{done:?}");
    let done = run(&["--disk", &disk], write);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(fs::read(&file).unwrap()[1536..1540], *b"kept");
}

#[test]
fn a_folder_as_root_stays_as_it_is() {
    let root = tempfile::tempdir().unwrap();
    small_root(root.path());
    let path = root.path().display().to_string();
    let done = run(
        &["--rootfs", &path],
        "cat /etc/own && touch /etc/new && ls /etc/new",
    );
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (0, "mine\n/etc/new\n"),
        "{done:?}"
    );
    assert!(!root.path().join("etc/new").exists());
}

#[test]
fn an_image_as_root() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    small_root(&root);
    let image = folder.path().join("image");
    let made = Command::new("/sbin/mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-d"])
        .args([&root, &image])
        .arg("32M")
        .status();
    assert!(made.unwrap().success(), "mke2fs");
    let image = image.display().to_string();
    let done = run(
        &["--rootfs", &format!("{image}:snapshot")],
        "cat /etc/own; touch /new",
    );
    assert_eq!((done.code, done.stdout.as_str()), (0, "mine\n"), "{done:?}");
    let done = run(&["--rootfs", &image], "ls /new; touch /new");
    assert_eq!(done.code, 0, "{done:?}");
    let done = run(
        &["--rootfs", &format!("{image}:ro")],
        "ls /new && touch /newer && ls /newer",
    );
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (0, "/new\n/newer\n"),
        "{done:?}"
    );
    let done = run(&["--rootfs", &image], "ls /newer");
    assert_eq!(done.code, 1, "{done:?}");
}

#[test]
fn bad_options_are_refused_in_a_line() {
    let cases: [(&[&str], &str); 13] = [
        (&["--volume", "/tmp"], "HOST:GUEST"),
        (&["--volume", "/nonexistent:/x"], "/nonexistent"),
        (&["--volume", "/tmp:x"], "absolute path"),
        (&["--disk", "/nonexistent"], "/nonexistent"),
        (&["--rootfs", "/nonexistent"], "/nonexistent"),
        (&["--rootfs", "/etc/passwd:ro"], "no file system"),
        (&["--disk", "/etc/passwd:ro"], "512"),
        (&["--disk", "/etc:ro"], "neither a file nor a block device"),
        (&["--image", "/etc/passwd"], "not a tar archive"),
        (&["--image", "/x", "--rootfs", "/"], "cannot be used with"),
        (&["--net", "bridge"], "tap:NAME"),
        (&["--net", "none", "--publish", "80:80"], "--net user"),
        (&["--net", "user", "--publish", "x:80"], "not a port"),
    ];
    for (words, part) in cases {
        let done = run(words, "true");
        assert_eq!(done.code, 2, "{words:?}: {done:?}");
        assert!(done.stderr.contains(part), "{words:?}: {done:?}");
        assert!(done.stdout.is_empty(), "{words:?}: {done:?}");
    }
}
