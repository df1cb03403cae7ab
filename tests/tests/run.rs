// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane run`, as users and scripts use it.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use cpio::NewcBuilder;
use paravane_tests::lines::Lines;
use paravane_tests::{linux, program, small_root, tree, vm};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Starts the command with pipes and reads its first line, which proves that it runs.
fn start(command: &mut Command) -> (Child, Lines, String) {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = Lines::of(child.stdout.take());
    let line = output.next_within(program::PATIENCE);
    (child, output, line)
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn a_command_and_nothing_else() {
    let run = vm::run(&["uname", "-srm"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    assert!(
        run.stdout.starts_with("Linux 6.12.") && run.stdout.ends_with(" x86_64\n"),
        "{run:?}"
    );
}

#[test]
fn streams_are_separate_and_complete() {
    let mut command = vm::command(["--", "sh", "-c", "printf 'a\\000\\377\\r\\n'; echo no >&2"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdout = Lines::of(child.stdout.take());
    let mut stderr = Lines::of(child.stderr.take());
    assert_eq!(stdout.bytes_within(program::PATIENCE), b"a\0\xff\r\n");
    assert_eq!(stderr.bytes_within(program::PATIENCE), b"no\n");
    program::wait_within(&mut child, program::PATIENCE);
    let run = vm::shell("head -c 5000000 /dev/zero | tr '\\0' x");
    assert_eq!((run.code, run.stdout.len()), (0, 5_000_000));
}

#[test]
fn exit_codes_come_through() {
    for (script, code) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -9 $$", 137),
    ] {
        let run = vm::shell(script);
        assert_eq!((run.code, run.stderr.as_str()), (code, ""), "{script}");
    }
    for (command, code, part) in [
        ("no-such-command", 127, "no such command"),
        ("/etc/passwd", 126, "may not be executed"),
    ] {
        let run = vm::run(&[command]);
        assert_eq!(run.code, code, "{run:?}");
        assert!(
            run.stderr.starts_with("paravane: ") && run.stderr.contains(part),
            "{run:?}"
        );
    }
}

#[test]
fn input_comes_through_to_its_end() {
    let mut child = vm::command(["--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let sent: Vec<u8> = (0..500_000u32).flat_map(u32::to_le_bytes).collect();
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn({
        let sent = sent.clone();
        move || input.write_all(&sent).unwrap()
    });
    let seen = Lines::of(child.stdout.take()).bytes_within(program::PATIENCE);
    writer.join().unwrap();
    assert!(program::wait_within(&mut child, program::PATIENCE).success());
    assert!(seen == sent, "{} of {} bytes", seen.len(), sent.len());
}

#[test]
fn without_a_command_a_shell_reads_a_script() {
    let mut command = vm::command([""; 0]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"echo $((6 * 7))\nexit 3\n")
        .unwrap();
    let run = program::finish_child(child);
    assert_eq!((run.code, run.stdout.as_str()), (3, "42\n"));
}

#[test]
fn environment_folder_user() {
    let mut command = vm::command([
        "--env",
        "A=b c",
        "-e",
        "HERE",
        "-e",
        "GONE",
        "--workdir",
        "/etc",
        "--user",
        "65534",
    ]);
    command.args([
        "--",
        "sh",
        "-c",
        "echo \"$A,$HERE,$GONE,$PWD,$(id -u),$(id -g)\"",
    ]);
    let run = program::finish(command.env("HERE", "x").env_remove("GONE"));
    assert_eq!(
        (run.stdout.as_str(), run.code),
        ("b c,x,,/etc,65534,65534\n", 0),
        "{run:?}"
    );
    let run =
        program::finish(vm::command(["--user", "nobody-at-all", "--", "true"]).env("HERE", "x"));
    assert_eq!(run.code, 125);
    assert!(run.stderr.contains("no user nobody-at-all"), "{run:?}");
}

/// A command begins as if nothing had started it: no signal is blocked or ignored.
#[test]
fn no_signal_is_blocked_or_ignored() {
    let run = program::finish(vm::command([""; 0]).args([
        "--",
        "grep",
        "-E",
        "SigBlk|SigIgn",
        "/proc/self/status",
    ]));
    let none = "0000000000000000";
    assert_eq!(
        (run.code, run.stdout),
        (0, format!("SigBlk:\t{none}\nSigIgn:\t{none}\n"))
    );
}

#[test]
fn the_machine_is_as_asked_for() {
    let options = [
        "--cpus",
        "2",
        "--memory",
        "512M",
        "--append",
        "some.word=1",
        "--",
    ];
    let run = program::finish(vm::command(options).args([
        "sh",
        "-c",
        "nproc; awk '/MemTotal/ {print int($2 / 1024)}' /proc/meminfo; \
        grep -o some.word=1 /proc/cmdline; hostname; mount | wc -l",
    ]));
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(
        (lines[0], lines[2], lines[3]),
        ("2", "some.word=1", "paravane"),
        "{run:?}"
    );
    let memory: u32 = lines[1].parse().unwrap();
    assert!((400..512).contains(&memory), "{run:?}");
}

/// Without these flags of the processor, a kernel clears and copies memory at half the speed.
#[test]
fn string_instructions_are_as_fast_as_the_host_s() {
    let fast = |text: &str| {
        let flags = text.lines().find(|line| line.starts_with("flags")).unwrap();
        let flags: Vec<&str> = flags.split_whitespace().collect();
        ["erms", "fsrm", "rep_good"].map(|name| flags.contains(&name))
    };
    let run = program::finish(&mut vm::command(["--", "cat", "/proc/cpuinfo"]));
    assert_eq!(
        fast(&run.stdout),
        fast(&std::fs::read_to_string("/proc/cpuinfo").unwrap())
    );
}

#[test]
fn the_kernels_words_only_when_asked_for() {
    let run = program::finish(&mut vm::command(["--verbose", "--", "echo", "here"]));
    assert_eq!((run.code, run.stdout.as_str()), (0, "here\n"));
    assert!(run.stderr.contains("Linux version 6.12."), "{}", run.stderr);
}

#[test]
fn a_panic_is_told_with_its_cause() {
    let run = vm::shell("echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger; sleep 10");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("sysrq triggered crash"), "{run:?}");
    assert_eq!(
        run.stderr.lines().last(),
        Some("paravane: the guest's kernel panicked"),
        "{run:?}"
    );
}

#[test]
fn what_a_guest_does_is_told_when_asked() {
    let (mut child, _output, _) = start(&mut vm::command([
        "--",
        "sh",
        "-c",
        "echo ready; while :; do :; done",
    ]));
    // Until its line has arrived.
    std::thread::sleep(Duration::from_millis(500));
    signal(&child, Signal::QUIT);
    assert_eq!(
        program::wait_within(&mut child, program::PATIENCE).code(),
        Some(1)
    );
    let told = Lines::of(child.stderr.take()).rest_within(program::PATIENCE);
    // The kernel's own report: which task, which registers.
    for part in [
        "Kernel panic",
        "NMI",
        "Comm: sh",
        "RIP: ",
        "paravane: the guest was interrupted",
    ] {
        assert!(told.contains(part), "`{part}` is not in:\n{told}");
    }
}

#[test]
fn a_machine_that_turns_itself_off() {
    let run = vm::shell("echo 9 > /sys/module/vmi/parameters/exit_status; poweroff -f; sleep 10");
    assert_eq!((run.code, run.stderr.as_str()), (9, ""));
}

#[test]
fn time_is_limited() {
    let start = Instant::now();
    let run = program::finish(&mut vm::command(["--timeout", "2", "--", "sleep", "100"]));
    assert_eq!(run.code, 124);
    assert!(run.stderr.contains("--timeout"), "{run:?}");
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn signals_are_passed_on() {
    let script = "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.1; done";
    let (mut child, mut output, line) = start(&mut vm::command(["--", "sh", "-c", script]));
    assert_eq!(line, "ready\n");
    signal(&child, Signal::TERM);
    let rest = output.rest_within(program::PATIENCE);
    assert_eq!(
        (
            program::wait_within(&mut child, program::PATIENCE).code(),
            rest.as_str()
        ),
        (Some(5), "bye\n")
    );

    // A command that ignores signals also ends.
    let script = "trap '' TERM; echo ready; while :; do sleep 0.1; done";
    let (mut child, _output, _) = start(&mut vm::command(["--", "sh", "-c", script]));
    signal(&child, Signal::TERM);
    assert_eq!(
        program::wait_within(&mut child, program::PATIENCE).code(),
        Some(128 + 15)
    );
}

#[test]
fn nothing_stays_when_it_is_killed() {
    let (mut child, _output, _) = start(&mut vm::command([
        "--",
        "sh",
        "-c",
        "echo ready; sleep 100",
    ]));
    let pids = tree::everything(child.id());
    assert!(pids.len() > 2, "{pids:?}");
    child.kill().unwrap();
    program::wait_within(&mut child, program::PATIENCE);
    tree::wait_gone(&pids).unwrap();
}

#[test]
fn a_reader_that_stops_early_ends_the_command() {
    let (mut child, output, line) = start(&mut vm::command(["--", "yes"]));
    assert_eq!(line, "y\n");
    drop(output);
    assert_eq!(
        program::wait_within(&mut child, program::PATIENCE).code(),
        Some(128 + 13)
    );
}

#[test]
fn an_archive_of_ones_own() {
    // With a folder that the built-in root does not have, and without the built-in root's files.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("root.cpio");
    let busybox = fs::read(small_root::busybox()).unwrap();
    let archive = linux::newc([
        (NewcBuilder::new("bin").mode(0o040_755), &b""[..]),
        (NewcBuilder::new("bin/busybox").mode(0o100_755), &busybox),
        (NewcBuilder::new("bin/sh").mode(0o120_777), b"busybox"),
        (NewcBuilder::new("mine").mode(0o100_644), b"my own\n"),
    ]);
    fs::write(&file, archive).unwrap();
    let mut command = vm::command(["--net", "none", "--initrd"]);
    let run = program::finish(command.arg(&file).args([
        "--",
        "sh",
        "-c",
        "busybox cat /mine; busybox ls /etc",
    ]));
    assert_eq!((run.code, run.stdout.as_str()), (1, "my own\n"), "{run:?}");
}
