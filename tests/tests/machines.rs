// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines with a name: created, run in the background, used by other commands, ended, removed.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::user::User;
use paravane_tests::{program, tree, vm, wait};
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

const SERVE: &str = "echo started; trap 'echo stopping; exit 4' TERM; while :; do sleep 0.1; done";

#[test]
fn a_life() {
    let user = User::new();
    assert_eq!(user.detach(&["--name", "one"], SERVE), "one");
    assert!(
        user.ok(&["ps"]).contains("one   running  -      sh -c"),
        "{}",
        user.ok(&["ps"])
    );
    let pids = tree::everything(user.monitor("one"));
    assert!(pids.len() > 2, "{pids:?}");

    // All threads of its monitor are confined.
    let confinement = &user.inspect("one")["confinement"];
    assert!(confinement["threads"].as_u64() > Some(6), "{confinement}");
    assert_eq!(confinement["seccomp"], confinement["threads"]);
    // What doctor reports for hosts like this one.
    let doctor: serde_json::Value = serde_json::from_str(&user.ok(&["doctor", "--json"])).unwrap();
    let findings = doctor["findings"].as_array().unwrap();
    let signals = findings
        .iter()
        .find(|finding| finding["name"] == "signals")
        .unwrap();
    assert_eq!(confinement["signals"], signals["value"]);

    // More commands in it, with streams and exit codes of their own.
    assert_eq!(
        user.ok(&["exec", "one", "--", "cat", "/proc/1/comm"]),
        "agent\n"
    );
    let run = user.run(&[
        "exec",
        "one",
        "-e",
        "A=b",
        "--workdir",
        "/etc",
        "--",
        "sh",
        "-c",
        "echo $A $PWD; echo no >&2; exit 9",
    ]);
    assert_eq!(
        (run.code, run.stdout.as_str(), run.stderr.as_str()),
        (9, "b /etc\n", "no\n")
    );
    let mut cat = user
        .command(&["exec", "one", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    cat.stdin.take().unwrap().write_all(&[7; 300_000]).unwrap();
    let back = program::finish_child(cat).stdout;
    assert_eq!(back.as_bytes(), [7; 300_000]);
    assert_eq!(
        user.run(&["exec", "one", "--", "no-such-command"]).code,
        127
    );

    // All commands run in one machine: each finds the files that the one before left.
    user.ok(&["exec", "one", "--", "touch", "/tmp/left"]);
    assert_eq!(user.ok(&["exec", "one", "--", "ls", "/tmp"]), "left\n");

    assert_eq!(user.ok(&["stop", "one"]), "one\n");
    tree::wait_gone(&pids).unwrap();
    assert_eq!(user.inspect("one")["exit_code"], 4);
    // There may be the shell's message about the signal of its `sleep`, too.
    let log = user.ok(&["logs", "one"]);
    assert!(
        log.starts_with("started\n") && log.contains("stopping\n"),
        "{log}"
    );
    assert!(user.ok(&["ps", "--all"]).contains("one   exited 4"));
    assert!(!user.ok(&["ps"]).contains("one"));
    user.refused(&["exec", "one", "--", "true"], "machine one is not running");
    assert_eq!(user.ok(&["stop", "one"]), "one\n");
    assert_eq!(user.ok(&["rm", "one"]), "one\n");
    user.refused(&["inspect", "one"], "no machine one");
}

/// A script starts many commands at once, as with `xargs -P 60`.
#[test]
fn many_commands_at_once() {
    let user = User::new();
    user.detach(&["--name", "many"], SERVE);
    thread::scope(|scope| {
        let started: Vec<_> = (0..60)
            .map(|number: u32| {
                let user = &user;
                let command = format!("echo {number}; exit {number}");
                scope.spawn(move || user.run(&["exec", "many", "--", "sh", "-c", &command]))
            })
            .collect();
        for (number, run) in started.into_iter().enumerate() {
            let run = run.join().unwrap();
            let expected = (i32::try_from(number).unwrap(), format!("{number}\n"));
            assert_eq!((run.code, run.stdout.clone()), expected, "{run:?}");
        }
    });
    user.ok(&["kill", "many"]);
}

#[test]
fn created_and_started_twice() {
    let user = User::new();
    let mut create = user.command(&["create", "--name", "two", "--env", "N=5"]);
    if let Some(kernel) = vm::kernel() {
        create.arg("--kernel").arg(kernel);
    }
    let run = program::finish(create.args(["--", "sh", "-c", "echo round $N; exit $N"]));
    assert_eq!((run.code, run.stdout.as_str()), (0, "two\n"), "{run:?}");
    assert_eq!(user.state("two"), "created");
    user.ok(&["create", "--name", "bare"]);
    let list = user.ok(&["ps", "--all"]);
    assert!(
        list.contains("two   created  -      sh -c") && list.contains("bare  created  -      -\n"),
        "{list}"
    );
    for _ in 0..2 {
        user.ok(&["start", "two"]);
        assert_eq!(user.ok(&["logs", "--follow", "two"]), "round 5\n");
        user.wait_for("two", "exited");
        assert_eq!(user.inspect("two")["exit_code"], 5);
    }
}

/// Commands take several machines. A failure with one does not keep them from the others.
#[test]
fn several_at_once() {
    let user = User::new();
    user.detach(&["--name", "a"], SERVE);
    user.detach(&["--name", "b"], "echo started; exec sleep 1000");
    let one_missing = |command: &str, printed: &str| {
        let run = user.run(&[command, "a", "none", "b"]);
        assert_eq!((run.code, run.stdout.as_str()), (2, printed), "{run:?}");
        assert_eq!(run.stderr.matches("no machine none").count(), 1, "{run:?}");
    };
    let mut wait = user.command(&["wait", "a", "b"]);
    let waiting = wait.stdout(Stdio::piped()).spawn().unwrap();
    one_missing("stop", "a\nb\n");
    let waited = program::finish_child(waiting);
    assert_eq!((waited.code, waited.stdout.as_str()), (0, "4\n143\n"));
    // Each error has its line.
    let run = user.run(&["kill", "a", "b"]);
    assert_eq!((run.code, run.stderr.lines().count()), (2, 2), "{run:?}");

    one_missing("start", "a\nb\n");
    let before = user.monitor("a");
    user.ok(&["kill", "b"]);
    // Starts again what runs, and starts what does not.
    one_missing("restart", "a\nb\n");
    assert_ne!(user.monitor("a"), before);
    assert_eq!(user.state("b"), "running");
    one_missing("kill", "a\nb\n");
    assert_eq!(user.ok(&["wait", "b", "a"]), "137\n137\n");
    one_missing("rm", "a\nb\n");
    user.refused(&["wait", "a"], "no machine a");
    user.ok(&["create", "--name", "new"]);
    user.refused(&["wait", "new"], "machine new was not started yet");
}

#[test]
fn the_last_lines_of_a_log() {
    let user = User::new();
    user.detach(&["--name", "log"], "seq 5; printf end");
    user.wait_for("log", "exited");
    assert_eq!(user.ok(&["logs", "log"]), "1\n2\n3\n4\n5\nend");
    assert_eq!(user.ok(&["logs", "-n", "3", "log"]), "4\n5\nend");
    assert_eq!(user.ok(&["logs", "--tail", "0", "log"]), "");
    assert_eq!(
        user.ok(&["logs", "--tail", "99", "--follow", "log"]),
        "1\n2\n3\n4\n5\nend"
    );
}

/// `logs` of a machine that prints without end ends, and its last line is complete.
#[test]
fn the_last_line_of_a_log_that_grows() {
    let user = User::new();
    let script = "i=0; while :; do i=$((i + 1)); echo $i; done";
    user.detach(&["--name", "log"], script);
    // Before the beginning is dropped, after some seconds.
    let all = wait::some("two lines", Duration::from_secs(60), || {
        let all = user.ok(&["logs", "log"]);
        (all.lines().count() > 2).then_some(all)
    });
    assert!(all.starts_with("1\n2\n"));
    for _ in 0..20 {
        assert_eq!(user.ok(&["logs", "-n", "1", "log"]).lines().count(), 1);
    }
    user.ok(&["kill", "log"]);
}

/// Whatever ends a machine first, each command that asks for its end succeeds, or reports that the
/// machine does not run.
#[test]
fn ended_by_several_at_once() {
    let user = User::new();
    user.ok(&["create", "--name", "a", "--", "sh", "-c", "sleep .5"]);
    for round in 0..5 {
        user.ok(&["start", "a"]);
        std::thread::sleep(Duration::from_millis(round * 110));
        let commands = ["stop", "stop", "restart", "kill", "stop"].map(|command| {
            let mut command = user.command(&[command, "a"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        });
        for command in commands {
            let run = program::finish_child(command);
            let told = ["is not running", "is running", "was ended while it started"];
            let told = told.iter().any(|words| run.stderr.contains(words));
            assert!(run.code == 0 || run.code == 2 && told, "{run:?}");
        }
        user.run(&["kill", "a"]);
        user.wait_for("a", "exited");
    }
}

/// Each `start` succeeds, and none of them takes the output of the machine away. `rm` removes no
/// machine that runs.
#[test]
fn started_by_several_at_once() {
    let user = User::new();
    for _ in 0..4 {
        user.ok(&[
            "create",
            "--name",
            "a",
            "--",
            "sh",
            "-c",
            "echo one; exec sleep 1000",
        ]);
        let commands = ["start", "rm", "start", "start", "rm"].map(|command| {
            let mut command = user.command(&[command, "a"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        });
        let runs = commands.map(program::finish_child);
        let removed = [1, 4].iter().any(|&rm| runs[rm].code == 0);
        for run in &runs {
            let told = [
                "is running",
                "started meanwhile",
                "no machine a",
                "removed meanwhile",
            ];
            let told = told.iter().any(|words| run.stderr.contains(words));
            assert!(run.code == 0 || run.code == 2 && told, "{run:?}");
        }
        if removed {
            assert!(!user.ok(&["ps", "--all"]).contains("a "));
            continue;
        }
        assert!(
            [0, 2, 3].iter().all(|&start| runs[start].code == 0),
            "{runs:?}"
        );
        let begun = Instant::now();
        while user.ok(&["logs", "a"]) != "one\n" {
            assert!(
                begun.elapsed() < program::PATIENCE,
                "{}",
                user.ok(&["logs", "a"])
            );
        }
        user.ok(&["rm", "--force", "a"]);
    }
}

/// A machine that cannot be started is recorded as ended, and its log has the reason.
#[test]
fn a_start_that_fails_is_an_end() {
    let user = User::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let publish = format!("{}:80", taken.local_addr().unwrap().port());
    for (name, restart) in [("a", "no"), ("b", "always")] {
        user.ok(&[
            "create",
            "--name",
            name,
            "--restart",
            restart,
            "--publish",
            &publish,
        ]);
        user.refused(&["start", name], "in use");
        assert_eq!(user.state(name), "exited", "{name}");
        assert_eq!(user.ok(&["wait", name]), "2\n");
        assert!(user.ok(&["logs", name]).contains("in use"));
    }
}

#[test]
fn ended_the_hard_way() {
    let user = User::new();
    user.detach(
        &["--name", "a"],
        // A command that does not end in time is killed, and its exit code is that of the kill.
        "trap '' TERM; echo ready; while :; do sleep 0.1; done",
    );
    wait::until("the command is ready", program::PATIENCE, || {
        user.ok(&["logs", "a"]).contains("ready\n")
    });
    let pids = tree::everything(user.monitor("a"));
    assert_eq!(user.ok(&["stop", "--time", "1", "a"]), "a\n");
    assert_eq!(user.inspect("a")["exit_code"], 128 + 9);
    tree::wait_gone(&pids).unwrap();
    user.ok(&["start", "a"]);
    assert_eq!(user.ok(&["kill", "a"]), "a\n");
    user.refused(&["kill", "a"], "is not running");
    assert_eq!(user.ok(&["stop", "a"]), "a\n");
    assert_eq!(user.inspect("a")["exit_code"], 128 + 9);
    user.ok(&["start", "a"]);
    user.refused(&["rm", "a"], "is running");
    let monitor = user.monitor("a");
    assert_eq!(user.ok(&["start", "a"]), "a\n");
    assert_eq!(user.monitor("a"), monitor, "it runs already");
    assert_eq!(user.ok(&["rm", "--force", "a"]), "a\n");
}

#[test]
fn a_signal_for_the_command() {
    let user = User::new();
    let name = user.detach(
        &[],
        "trap 'echo one' USR1; trap 'echo two; exit 3' USR2; echo ready
         while :; do sleep 0.1; done",
    );
    assert_eq!(name, "vm1");
    let printed = |what: &str| {
        let begun = Instant::now();
        while !user.ok(&["logs", "vm1"]).contains(what) {
            assert!(begun.elapsed() < program::PATIENCE, "it never says {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    printed("ready\n");
    user.refused(&["kill", "--signal", "NOTHING", "vm1"], "no signal");
    user.ok(&["kill", "--signal", "10", "vm1"]);
    printed("one\n");
    user.ok(&["kill", "--signal", "USR2", "vm1"]);
    user.wait_for("vm1", "exited");
    // The shell may report how its sleep ended, too.
    let log = user.ok(&["logs", "vm1"]);
    let own = |line: &&str| ["ready", "one", "two"].contains(line);
    assert!(log.lines().filter(own).eq(["ready", "one", "two"]), "{log}");
}

#[test]
fn a_killed_monitor_leaves_nothing_running() {
    let user = User::new();
    user.detach(&["--name", "x"], SERVE);
    let monitor = user.monitor("x");
    let pids = tree::everything(monitor);
    tree::signal(monitor, rustix::process::Signal::KILL);
    tree::wait_gone(&pids).unwrap();
    // The first of its threads is a zombie; the last one releases the lock.
    user.wait_for("x", "died");
    assert!(user.ok(&["ps", "--all"]).contains("died"));
    user.refused(&["exec", "x", "--", "true"], "not running");
    user.ok(&["start", "x"]);
    assert_eq!(user.ok(&["exec", "x", "--", "echo", "again"]), "again\n");
}

#[test]
fn what_is_refused() {
    let user = User::new();
    user.refused(&["exec", "nobody", "--", "true"], "no machine nobody");
    user.refused(&["start", "nobody"], "no machine nobody");
    user.refused(&["logs", "../x"], "cannot be a machine's name");
    user.refused(&["rm", "nobody"], "no machine nobody");
    user.refused(
        &["create", "--name", "a b", "--", "true"],
        "cannot be a machine's name",
    );
    user.refused(&["stop"], "NAME");
    user.ok(&["create", "--name", "one", "--", "true"]);
    user.refused(
        &["create", "--name", "one", "--", "true"],
        "there is a machine one",
    );
    user.refused(
        &["run", "--name", "one", "--", "true"],
        "there is a machine one",
    );

    // A machine that cannot start says why and leaves nothing.
    let words = [
        "run",
        "--detach",
        "--name",
        "bad",
        "--kernel",
        "/no/such/kernel",
        "--",
        "true",
    ];
    user.refused(&words, "/no/such/kernel");
    user.refused(&["inspect", "bad"], "no machine bad");

    let file = user.folder().join("paravane/machines/one/spec.json");
    fs::write(file, "{").unwrap();
    user.refused(&["inspect", "one"], "spec.json is damaged");

    let mut command = program::command();
    let run = program::finish(
        command
            .env_remove("XDG_STATE_HOME")
            .env_remove("HOME")
            .arg("ps"),
    );
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("XDG_STATE_HOME"), "{run:?}");
}
