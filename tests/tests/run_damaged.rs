// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Damaged images and archives, and file systems without space: one line of explanation, the
//! documented exit code, no file left.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::conditions::is_root;
use paravane_tests::{program, vm};
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

fn tool(name: &str, words: &[&OsStr]) {
    let path = format!(
        "{}:/usr/sbin:/sbin",
        std::env::var("PATH").unwrap_or_default()
    );
    let output = Command::new(name)
        .args(words)
        .env("PATH", path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{name}: {output:?}");
}

/// A folder for images in which no new file may appear.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn names(&self) -> Vec<PathBuf> {
        let mut names: Vec<_> = fs::read_dir(self.0.path())
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        names.sort();
        names
    }

    /// Runs with these arguments: checks the exit code, one line that contains this, and that no
    /// file was added or removed.
    fn fails(&self, code: i32, option: &str, image: &Path, part: &str) {
        let before = self.names();
        let mut command = vm::command([OsStr::new(option), image.as_os_str()]);
        command
            .args(["--", "true"])
            .env("TMPDIR", self.0.path())
            .env("XDG_STATE_HOME", self.0.path());
        let run = program::finish(&mut command);
        let what = format!("{option} {}: `{part}`: {run:?}", image.display());
        assert_eq!(
            (run.code, run.stderr.lines().count(), run.stdout.as_str()),
            (code, 1, ""),
            "{what}"
        );
        assert!(
            run.stderr.starts_with("paravane: ") && run.stderr.contains(part),
            "{what}"
        );
        assert_eq!(self.names(), before, "{what}");
    }
}

/// A copy in which this part is replaced.
fn changed(folder: &Folder, from: &Path, name: &str, at: u64, bytes: &[u8]) -> PathBuf {
    let path = folder.path(name);
    fs::copy(from, &path).unwrap();
    OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .write_all_at(bytes, at)
        .unwrap();
    path
}

/// A copy that is cut off.
fn cut(folder: &Folder, from: &Path, name: &str, length: u64) -> PathBuf {
    let path = folder.path(name);
    fs::copy(from, &path).unwrap();
    OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(length)
        .unwrap();
    path
}

/// Meaningless bytes.
fn noise(length: usize) -> Vec<u8> {
    let mut word = 0x9e37_79b9_7f4a_7c15u64;
    let next = || {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(length).collect()
}

#[test]
fn file_systems() {
    let folder = Folder::new();
    let good = folder.path("good.ext4");
    fs::File::create(&good).unwrap().set_len(16 << 20).unwrap();
    tool(
        "mke2fs",
        &[
            "-q".as_ref(),
            "-F".as_ref(),
            "-t".as_ref(),
            "ext4".as_ref(),
            good.as_ref(),
        ],
    );
    folder.fails(
        2,
        "--rootfs",
        &cut(&folder, &good, "a", 8 << 20),
        "the rest is missing",
    );
    folder.fails(
        2,
        "--rootfs",
        &cut(&folder, &good, "b", 512),
        "no file system that is known",
    );
    folder.fails(
        2,
        "--rootfs",
        &cut(&folder, &good, "c", 0),
        "no file system that is known",
    );
    // Its superblock is intact, the tables that it describes are not.
    let bad = changed(&folder, &good, "d", 2048, &noise(400 << 10));
    folder.fails(1, "--rootfs", &bad, "or it is damaged");

    let tree = folder.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), noise(100_000)).unwrap();
    let good = folder.path("good.squashfs");
    tool(
        "mksquashfs",
        &[
            tree.as_ref(),
            good.as_ref(),
            "-quiet".as_ref(),
            "-no-progress".as_ref(),
        ],
    );
    folder.fails(
        2,
        "--rootfs",
        &cut(&folder, &good, "e", 4096),
        "the rest is missing",
    );
    let bad = changed(&folder, &good, "f", 4, &noise(92));
    folder.fails(
        1,
        "--rootfs",
        &changed(&folder, &bad, "g", 40, &[0; 8]),
        "or it is damaged",
    );
}

#[test]
fn qcow2() {
    let folder = Folder::new();
    let good = folder.path("good.qcow2");
    let words = ["create", "-q", "-f", "qcow2"].map(OsStr::new);
    tool(
        "qemu-img",
        &[&words[..], &[good.as_ref(), "16M".as_ref()]].concat(),
    );
    for option in ["--rootfs", "--disk"] {
        for (image, part) in [
            (cut(&folder, &good, "a.qcow2", 60), "without a header"),
            (cut(&folder, &good, "b.qcow2", 4096), "truncated qcow2"),
            (
                changed(&folder, &good, "c.qcow2", 7, &[9]),
                "v9 is not supported",
            ),
            // The offset of its tables, then their contents.
            (
                changed(&folder, &good, "d.qcow2", 40, &noise(60)),
                "cannot be used",
            ),
            (
                changed(&folder, &good, "e.qcow2", 65536, &noise(100_000)),
                "cannot be used",
            ),
        ] {
            folder.fails(2, option, &image, part);
            folder.fails(2, option, &image, &format!("{option}: {}", image.display()));
        }
    }
    folder.fails(1, "--rootfs", &good, "there is no file system on it");
}

#[test]
fn archives() {
    let folder = Folder::new();
    let whole = folder.path("noise");
    fs::write(&whole, noise(100_000)).unwrap();
    folder.fails(
        2,
        "--initrd",
        &whole,
        "no archive that the kernel can unpack",
    );
    tool("gzip", &["-n".as_ref(), "-k".as_ref(), whole.as_ref()]);
    let good = folder.path("noise.gz");
    // The content is no archive, and is cut off.
    folder.fails(1, "--initrd", &good, "cannot unpack the initial root");
    folder.fails(
        1,
        "--initrd",
        &cut(&folder, &good, "a", 50_000),
        "cannot unpack the initial root",
    );
    folder.fails(2, "--image", &whole, "not a tar archive");
}

/// Standard output has no space: the program prints one line and does not panic.
#[test]
fn output_without_room() {
    let folder = Folder::new();
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut commands = vec![(1, vm::command(["--", "echo", "x"]))];
    for words in [
        &["ps"][..],
        &["create", "--name", "a", "--", "true"],
        &["inspect", "a"],
        &["rm", "a"],
    ] {
        let mut command = program::command();
        command.args(words);
        commands.push((2, command));
    }
    for (code, mut command) in commands {
        command.env("XDG_STATE_HOME", folder.0.path());
        command.stdout(full()).stderr(Stdio::piped());
        let run = program::finish_child(command.spawn().unwrap());
        assert_eq!(
            (run.code, run.stderr.lines().count()),
            (code, 1),
            "{command:?}: {run:?}"
        );
        let named = run.stderr.contains("cannot write") && run.stderr.contains("No space left");
        assert!(named, "{command:?}: {run:?}");
    }
}

/// A full file system of a megabyte, mounted where only the command sees it.
#[test]
fn folders_without_room() {
    if !is_root("mount a small file system") {
        return;
    }
    let script = r#"
        set -e
        mount -t tmpfs -o size=1m none "$1"
        mkdir "$1/images"
        head -c 2000000 /dev/zero > "$1/full" 2>/dev/null || true
        cd "$1"; shift
        "$@" && code=0 || code=$?
        # What there was, and nothing else.
        [ "$(find . -mindepth 1 | sort | tr '\n' ' ')" = "./full ./images " ] || find . >&2
        exit $code
    "#;
    let folder = Folder::new();
    let full = folder.path("full");
    fs::create_dir(&full).unwrap();
    let tools = folder.path("tools");
    fs::create_dir(&tools).unwrap();
    // Like the real one: prints an unspecific line when there is no space for its output.
    let mmdebstrap = "#!/bin/sh
        echo archive > ../full/images/x 2>/dev/null && [ -s ../full/images/x ] && exit 0
        rm -f ../full/images/x; echo 'E: mmdebstrap failed to run' >&2; exit 25\n";
    fs::write(tools.join("mmdebstrap"), mmdebstrap).unwrap();
    tool(
        "chmod",
        &["755".as_ref(), tools.join("mmdebstrap").as_ref()],
    );
    let disk = folder.path("disk");
    fs::File::create(&disk).unwrap().set_len(4 << 20).unwrap();
    let image = folder.path("image.tar");
    let made = "mkdir r; head -c 3000000 /dev/urandom > r/f; tar -C r -cf layer.tar .
        s=$(sha256sum < layer.tar | cut -d ' ' -f 1)
        printf '{\"architecture\":\"amd64\",\"os\":\"linux\",' > c.json
        printf '\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"sha256:%s\"]}}' $s >> c.json
        printf '[{\"Config\":\"c.json\",\"RepoTags\":null,' > manifest.json
        echo '\"Layers\":[\"layer.tar\"]}]' >> manifest.json
        tar -cf $1 manifest.json c.json layer.tar";
    let work = tempfile::tempdir().unwrap();
    let status = Command::new("sh")
        .args(["-e", "-c", made, "sh"])
        .arg(&image)
        .current_dir(work.path())
        .status();
    assert!(status.unwrap().success());
    let image = image.display().to_string();
    let path = format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", tools.display());
    for (words, part) in [
        (
            &["run", "--image", &image, "--", "true"][..],
            "No space left",
        ),
        (
            &["image", "build", "--format", "tar", "x.tar"],
            "no space left on its file system",
        ),
    ] {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", script, "sh"])
            .arg(&full)
            .arg(program::path())
            .args(words);
        // The first command makes the cache's folder.
        command
            .env("XDG_CACHE_HOME", &full)
            .env("PATH", &path)
            .stdin(Stdio::null());
        let run = program::finish(&mut command);
        // A slow host gets a line of progress first.
        let lines = run
            .stderr
            .lines()
            .filter(|line| line.starts_with("paravane: ") && !line.ends_with(" so far"))
            .count();
        assert_eq!((run.code, lines), (2, 1), "{words:?}: {run:?}");
        assert!(run.stderr.contains(part), "{words:?}: {run:?}");
    }
}

/// A background machine continues when there is no space for its output. Nor is there space for a
/// file copied out of it.
#[test]
fn a_log_without_room() {
    if !is_root("mount a small file system") {
        return;
    }
    let script = r#"
        set -e
        mount -t tmpfs -o size=2m none "$1"
        export XDG_STATE_HOME="$1"
        paravane=$2; shift 2
        trap '"$paravane" rm --force m >/dev/null' EXIT
        "$paravane" "$@" --detach --name m -- sh -c '
            head -c 4000000 /dev/zero | tr "\0" x; touch /printed; sleep 1000' >&2
        for try in $(seq 300); do
            ! "$paravane" exec m -- test -e /printed || break
            sleep 0.1
        done
        df --output=avail "$XDG_STATE_HOME" | tail -n 1
        "$paravane" ps
        cd "$XDG_STATE_HOME"; "$paravane" cp m:/bin/busybox . || echo "code $?"
        [ -e busybox ] || echo nothing
    "#;
    let folder = Folder::new();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(folder.0.path())
        .arg(program::path())
        .arg("run");
    if let Some(kernel) = vm::kernel() {
        command.arg("--kernel").arg(kernel);
    }
    let run = program::finish(command.stdin(Stdio::null()));
    let lines: Vec<&str> = run.stdout.lines().map(str::trim).collect();
    assert_eq!(lines.len(), 5, "{run:?}");
    assert!(lines[0] == "0" && lines[2].contains("running"), "{run:?}");
    assert_eq!(lines[3..], ["code 2", "nothing"], "{run:?}");
    assert!(run.stderr.contains("No space left"), "{run:?}");
}
