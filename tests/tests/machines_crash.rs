// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When a monitor is killed at a random moment, nothing keeps running, and the description of its
//! machine stays readable. On a host that is full or denies something, a command prints one line
//! and keeps nothing.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::skip::skip;
use paravane_tests::{linux, program, tree, vm};
use rustix::process::{Signal, geteuid};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A state folder. Its machines end with the test.
struct User(TempDir);

impl User {
    fn new() -> Self {
        User(tempfile::tempdir().unwrap())
    }

    fn run(&self, words: &[&str]) -> program::Run {
        let mut command = program::command();
        program::finish(command.env("XDG_STATE_HOME", self.0.path()).args(words))
    }

    fn machines(&self) -> Vec<Value> {
        let run = self.run(&["ps", "--all", "--json"]);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
        serde_json::from_str(&run.stdout).unwrap()
    }
}

impl Drop for User {
    fn drop(&mut self) {
        for machine in self.machines() {
            self.run(&[
                "rm",
                "--force",
                machine["name"].as_str().unwrap_or_default(),
            ]);
        }
    }
}

#[test]
fn killed_at_any_moment() {
    let user = User::new();
    let rounds = if std::env::var_os("PARAVANE_TEST_LONG").is_some() {
        100
    } else {
        12
    };
    for round in 0..rounds {
        let mut command = vm::command([
            "--name",
            "m",
            "--publish",
            "0:80",
            "--",
            "sh",
            "-c",
            "echo x; sleep 100",
        ]);
        command
            .env("XDG_STATE_HOME", user.0.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // At any moment between the start of the program and the start of the command.
        std::thread::sleep(Duration::from_millis(round * 37 % 500));
        let pids = tree::everything(child.id());
        tree::signal(child.id(), Signal::KILL);
        child.wait().unwrap();
        tree::wait_gone(&pids).unwrap();
        let machines = user.machines();
        match machines.as_slice() {
            // The monitor was not that far yet.
            [] => {}
            [machine] => {
                let state = machine["state"].as_str().unwrap();
                assert!(
                    ["created", "died"].contains(&state),
                    "round {round}: {machine}"
                );
                let inspect = user.run(&["inspect", "m"]);
                assert_eq!(inspect.code, 0, "round {round}: {inspect:?}");
                let removed = user.run(&["rm", "m"]);
                assert_eq!(
                    (removed.code, removed.stderr.as_str()),
                    (0, ""),
                    "round {round}: {removed:?}"
                );
            }
            more => panic!("round {round}: {more:?}"),
        }
    }
}

/// One line, the documented exit code, and no new files.
fn refused(command: &mut Command, part: &str, folders: &[&Path]) {
    let names = || -> Vec<_> {
        let entries = folders
            .iter()
            .filter_map(|folder| fs::read_dir(folder).ok())
            .flatten()
            .flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.path()).collect();
        names.sort();
        names
    };
    let before = names();
    let run = program::finish(command);
    assert_eq!((run.code, run.stderr.lines().count()), (2, 1), "{run:?}");
    assert!(
        run.stderr.starts_with("paravane: ") && run.stderr.contains(part),
        "`{part}`: {run:?}"
    );
    assert_eq!(names(), before);
}

#[test]
fn a_full_disk() {
    if !geteuid().is_root() {
        return skip("only root can mount a small file system");
    }
    // In a namespace of its own: a full file system of 64 KiB.
    let script = r#"
        set -e
        mount -t tmpfs -o size=64k none "$1"
        head -c 1000000 /dev/zero > "$1/full" 2>/dev/null || true
        shift
        exec "$@"
    "#;
    let full = tempfile::tempdir().unwrap();
    let inside = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", script, "sh"])
            .arg(full.path())
            .arg(program::path())
            .args(words);
        command
            .env("XDG_STATE_HOME", full.path().join("state"))
            .stdin(Stdio::null());
        command
    };
    refused(
        &mut inside(&["create", "--name", "x", "--", "true"]),
        "No space left",
        &[],
    );
    refused(
        &mut inside(&["run", "--name", "x", "--", "true"]),
        "No space left",
        &[],
    );
    refused(
        &mut inside(&["run", "--detach", "--", "true"]),
        "No space left",
        &[],
    );
}

#[test]
fn an_end_on_a_full_disk() {
    if !geteuid().is_root() {
        return skip("only root can mount a small file system");
    }
    // In a namespace of its own: a file system that is full when the machine ends.
    let script = r#"
        set -e
        mount -t tmpfs -o size=512k none "$1"
        export XDG_STATE_HOME="$1/state"
        "$2" run --detach --name m $3 -- \
            sh -c 'trap "exit 7" TERM; echo ready; while :; do sleep 0.1; done'
        n=0
        until "$2" logs m | grep -q ready; do
            n=$((n + 1)); test $n -lt 1200 || exit 9; sleep 0.1
        done
        head -c 1000000 /dev/zero > "$1/full" 2> "$1/error" || true
        ! echo x > "$1/more" 2> /dev/null
        "$2" stop m
        "$2" ps --all --json
        "$2" rm m
    "#;
    let full = tempfile::tempdir().unwrap();
    let kernel = vm::kernel().map(|path| format!("--kernel {}", path.display()));
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(full.path())
        .arg(program::path())
        .arg(kernel.unwrap_or_default())
        .stdin(Stdio::null());
    let run = program::finish(&mut command);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
    let listed = run.stdout.strip_prefix("m\nm\n").unwrap();
    let listed = listed.strip_suffix("m\n").unwrap();
    let machines: Vec<Value> = serde_json::from_str(listed).unwrap();
    let [machine] = machines.as_slice() else {
        panic!("{run:?}");
    };
    assert_eq!(
        (&machine["state"], &machine["exit_code"]),
        (&Value::from("exited"), &Value::from(7)),
        "{run:?}"
    );
}

#[test]
fn denied() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, vec![0; 1 << 20]).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    // Where an ordinary user may execute it.
    let own = folder.path().join("paravane");
    fs::copy(program::path(), &own).unwrap();
    let kernel = folder.path().join("vmlinux");
    fs::copy(vm::kernel().unwrap_or_else(linux::kernel), &kernel).unwrap();
    let kernel = kernel.display().to_string();
    let state = folder.path().join("state");
    let as_user = |words: &[&str]| {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(&own);
        if geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        command.args(words).current_dir("/").stdin(Stdio::null());
        command
            .env("XDG_STATE_HOME", closed.join("state"))
            .env("XDG_CACHE_HOME", folder.path());
        command
    };
    let name = |path: &Path| path.display().to_string();
    let folders = [folder.path(), &state];
    for (option, value) in [
        ("--disk", name(&secret)),
        ("--rootfs", name(&secret)),
        ("--initrd", name(&secret)),
        ("--image", name(&secret)),
        ("--kernel", name(&secret)),
        ("--volume", format!("{}:/x", name(&closed.join("x")))),
        ("--net", "tap:none0".to_string()),
    ] {
        let mut words = vec!["run"];
        if option != "--kernel" {
            words.extend(["--kernel", kernel.as_str()]);
        }
        words.extend([option, &value, "--", "true"]);
        let part = if option == "--net" {
            "cannot use the tap none0"
        } else {
            "Permission denied"
        };
        refused(&mut as_user(&words), part, &folders);
    }
    refused(
        &mut as_user(&["create", "--name", "x", "--", "true"]),
        "Permission denied",
        &folders,
    );
    refused(&mut as_user(&["ps"]), "Permission denied", &folders);
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_start_that_fails_leaves_its_machine_as_it_was() {
    let user = User::new();
    let disk = user.0.path().join("disk");
    fs::write(&disk, vec![0; 1 << 20]).unwrap();
    let mut command = program::command();
    command.env("XDG_STATE_HOME", user.0.path());
    command
        .args(["create", "--name", "m", "--disk"])
        .arg(&disk)
        .args(["--", "true"]);
    assert_eq!(program::finish(&mut command).code, 0);
    fs::remove_file(&disk).unwrap();
    let begun = Instant::now();
    let run = user.run(&["start", "m"]);
    assert_eq!((run.code, run.stderr.lines().count()), (2, 1), "{run:?}");
    assert!(run.stderr.contains("disk"), "{run:?}");
    assert!(begun.elapsed() < Duration::from_secs(20));
    let machines = user.machines();
    assert_ne!(machines[0]["state"], "running");
    // As soon as the file exists again, the machine starts.
    fs::write(&disk, vec![0; 1 << 20]).unwrap();
    let run = user.run(&["start", "m"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
}
