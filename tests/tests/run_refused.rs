// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane run` with input that it cannot run: one line that says what is wrong, where, and what
//! to do, exit code 2, nothing started.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::{program, vm};
use std::fs;
use std::process::Command;

fn refused(command: &mut Command, parts: &[&str]) {
    let run = program::finish(command);
    assert_eq!(run.code, 2, "{run:?}");
    assert_eq!(run.stderr.lines().count(), 1, "more than one line: {run:?}");
    assert!(run.stderr.starts_with("paravane: "), "{run:?}");
    for part in parts {
        assert!(
            run.stderr.contains(part),
            "`{part}` is not in: {}",
            run.stderr
        );
    }
}

#[test]
fn bad_options() {
    for (words, parts) in [
        (&["--cpus", "0"][..], &["--cpus", "1 to 64 are"][..]),
        (&["--memory", "3"], &["--memory", "16M"]),
        (&["--memory", "lots"], &["--memory", "number"]),
        (&["--isolation", "full"], &["--isolation", "vm"]),
        (&["--timeout", "0"], &["--timeout"]),
        (&["--env", "=x"], &["--env =x", "KEY=VALUE"]),
        (&["--env", ""], &["--env", "KEY=VALUE"]),
        (&["--append", "a\nb"], &["--append", "control character"]),
        (
            &["--net", "venet", "--card", "poll-us=10001"],
            &["--card", "\"10001\" is no value of poll-us: 0 to 10000"],
        ),
        (
            &["--net", "venet", "--card", "kick-us=soon"],
            &["--card", "\"soon\" is no value of kick-us: 0 to 10000"],
        ),
        (
            &["--net", "venet", "--card", "mac=1"],
            &["--card: mac=1", "poll-us=N and kick-us=N"],
        ),
        (
            &["--net", "user", "--card", "poll-us=1"],
            &["--card needs a card", "--net venet"],
        ),
        (&["--frobnicate"], &["--frobnicate"]),
        (&["--tty", "--", "sh"], &["--tty", "terminal"]),
        (&["--", ""], &["name is empty"]),
        (&["uname"], &["uname"]),
    ] {
        refused(vm::command([""; 0]).args(words), parts);
    }
}

/// The monitor of a machine in the background has no open files of the caller.
#[test]
fn descriptors_of_the_caller_in_the_background() {
    let folder = tempfile::tempdir().unwrap();
    let as_user = |words: &[&str]| {
        let mut command = program::command();
        command.env("XDG_STATE_HOME", folder.path()).args(words);
        command
    };
    for (option, word) in [
        ("--disk", "/dev/fd/0:ro"),
        ("--disk", "/dev/stdin"),
        ("--rootfs", "/proc/self/fd/0"),
        ("--initrd", "/dev/fd/0"),
    ] {
        let parts = [&format!("{option} /"), "a machine in the background"];
        for start in [&["run", "--detach"][..], &["create"]] {
            let words = [start, &[option, word, "--", "true"]].concat();
            refused(&mut as_user(&words), &parts);
        }
    }
    let list = program::finish(&mut as_user(&["ps", "--all", "--json"]));
    assert_eq!((list.code, list.stdout.trim()), (0, "[]"), "{list:?}");
}

#[test]
fn bad_kernels() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("vmlinux");
    let name = file.to_str().unwrap();
    let with = || {
        let mut command = program::command();
        command.args(["run", "--kernel", name, "--", "true"]);
        command
    };
    refused(&mut with(), &[name, "No such file"]);
    fs::write(&file, "not a kernel").unwrap();
    refused(&mut with(), &[name, "not an ELF file"]);
    fs::write(&file, "").unwrap();
    refused(&mut with(), &[name, "not an ELF file"]);
    // A program of this machine.
    fs::copy(program::path(), &file).unwrap();
    refused(&mut with(), &[name, "no VMI note"]);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    refused(&mut with(), &[name, "not an ordinary file"]);
}

#[test]
fn bad_archives() {
    let command = || {
        let mut command = vm::command(["--initrd"]);
        command.arg("/no/such/archive").args(["--", "true"]);
        command
    };
    refused(&mut command(), &["/no/such/archive", "No such file"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("big");
    fs::File::create(&file).unwrap().set_len(200 << 20).unwrap();
    let mut command = vm::command(["--memory", "64M", "--initrd"]);
    refused(
        command.arg(&file).args(["--", "true"]),
        &["initial RAM disk", "64 MiB of memory"],
    );
}
