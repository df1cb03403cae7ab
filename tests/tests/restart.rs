// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines that start again: by a reboot of their guest, after a failure, and never once their end
//! was requested.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed setup fails the test.

use paravane_tests::user::User;
use paravane_tests::{program, tree, vm, wait};
use rustix::process::Signal;
use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::{NamedTempFile, TempDir};

/// Counts the lives in the first sector of the disk.
const COUNT: &str = "n=$(head -c 1 /dev/vda | tr -dc 0-9); n=$((n + 1)); \
     echo $n | dd of=/dev/vda conv=notrunc,fsync 2>/dev/null; echo life $n";

/// A port that is free now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn disk() -> NamedTempFile {
    let disk = NamedTempFile::new().unwrap();
    disk.as_file().set_len(1 << 20).unwrap();
    disk
}

/// What the guest sends to a connection of the port.
fn heard(port: u16) -> String {
    let deadline = Instant::now() + program::PATIENCE;
    loop {
        let mut text = String::new();
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
            stream.set_read_timeout(Some(program::PATIENCE)).unwrap();
            // The guest may not listen yet.
            let _ = stream.read_to_string(&mut text);
        }
        if !text.is_empty() {
            return text;
        }
        assert!(Instant::now() < deadline, "nobody answers");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn restarts(user: &User, name: &str) -> u64 {
    user.inspect(name)["restarts"].as_u64().unwrap()
}

/// Waits until the machine has started again this often.
fn wait_for(user: &User, name: &str, count: u64) {
    let what = format!("start {count} after the first of {name}");
    wait::until(&what, program::PATIENCE, || restarts(user, name) >= count);
}

#[test]
fn a_guest_reboots_twice_and_powers_off() {
    let user = User::new();
    let (disk, port) = (disk(), free_port());
    let file = disk.path().display().to_string();
    let publish = format!("{port}:80");
    let script =
        format!("{COUNT}; echo $n | nc -l -p 80; [ $n = 3 ] && poweroff -f; reboot -f; sleep 100");
    let options = ["--name", "m", "--restart", "on-reboot", "--disk", &file];
    user.detach(&[&options[..], &["--publish", &publish]].concat(), &script);
    let mut monitors = Vec::new();
    for life in 1..=3 {
        wait_for(&user, "m", life - 1);
        monitors.push(user.monitor("m"));
        if life > 1 {
            let listed = user.ok(&["ps"]);
            let state = format!("running, restarts: {}", life - 1);
            assert!(listed.contains(&state), "{listed}");
        }
        assert_eq!(heard(port), format!("{life}\n"));
    }
    user.wait_for("m", "exited");
    let machine = user.inspect("m");
    assert_eq!(
        (&machine["exit_code"], &machine["restarts"]),
        (&0.into(), &2.into())
    );
    assert_eq!(user.ok(&["logs", "m"]), "life 1\nlife 2\nlife 3\n");
    monitors.dedup();
    assert_eq!(monitors.len(), 3, "each life has a monitor of its own");
    tree::wait_gone(&monitors).unwrap();
    // A new start begins the count at 0.
    user.ok(&["start", "m"]);
    assert_eq!(restarts(&user, "m"), 0);
}

/// Runs a script in the foreground. Returns the exit code, the last line on standard error, and the
/// number of lives.
fn lives(options: &[&str], script: &str) -> (i32, String, usize) {
    let folder = TempDir::new().unwrap();
    let volume = format!("{}:/v", folder.path().display());
    let mut command = vm::command(["--volume", &volume]);
    command.args(options);
    command.args(["--", "sh", "-c", &format!("echo x >>/v/lives; {script}")]);
    let run = program::finish(&mut command);
    let lives = fs::read_to_string(folder.path().join("lives")).unwrap();
    let last = run.stderr.lines().last().unwrap_or_default().to_string();
    (run.code, last, lives.lines().count())
}

const LOOP: &str = "paravane: the machine rebooted or did not start 5 times in a row within 10 s: \
     it is not started again";
const PANICKED: &str = "paravane: the guest's kernel panicked";

#[test]
fn each_way_to_reboot_and_its_bound() {
    let on_reboot = ["--restart", "on-reboot"];
    for reboot in [
        "reboot -f; sleep 100",
        "reboot; sleep 100",
        "echo b >/proc/sysrq-trigger; sleep 100",
    ] {
        let (code, last, count) = lives(&on_reboot, reboot);
        assert_eq!((code, last.as_str(), count), (1, LOOP, 5), "{reboot}");
    }
    let panic = "echo c >/proc/sysrq-trigger; sleep 100";
    let (code, last, count) = lives(&[&on_reboot[..], &["--append", "panic=1"]].concat(), panic);
    assert_eq!((code, last.as_str(), count), (1, LOOP, 5));
    // Without panic= a panic is a failure.
    let (code, last, count) = lives(&on_reboot, panic);
    assert_eq!((code, last.as_str(), count), (1, PANICKED, 1));
    let (code, last, count) = lives(&["--restart", "on-failure:1"], panic);
    let again = "paravane: the machine failed again after 1 restarts: it is not started again";
    assert_eq!((code, last.as_str(), count), (1, again, 2));
}

#[test]
fn a_command_alone_is_not_started_again() {
    let restarted = "paravane: the guest restarted, which is an end here";
    for reboot in ["reboot -f; sleep 100", "reboot; sleep 100"] {
        let (code, last, count) = lives(&[], reboot);
        assert_eq!((code, last.as_str(), count), (1, restarted, 1), "{reboot}");
    }
    let (code, last, count) = lives(&[], "poweroff; sleep 100");
    assert_eq!((code, last.as_str(), count), (0, "", 1));
    // Its own end is no reboot.
    let (code, last, count) = lives(&["--restart", "on-reboot"], "exit 3");
    assert_eq!((code, last.as_str(), count), (3, "", 1));
}

#[test]
fn failures_of_a_command() {
    let (code, last, count) = lives(&["--restart", "on-failure:2"], "exit 3");
    let again = "paravane: the machine failed again after 2 restarts: it is not started again";
    assert_eq!((code, last.as_str(), count), (3, again, 3));
    // The second life succeeds.
    let script = "[ $(wc -l </v/lives) = 2 ]";
    let (code, last, count) = lives(&["--restart", "on-failure"], script);
    assert_eq!((code, last.as_str(), count), (0, "", 2));
    let (code, last, count) = lives(&["--restart", "always", "--timeout", "20"], "true");
    // In a life of the machine, or between two.
    let over = [
        "paravane: the time of --timeout is over; the virtual machine was ended",
        "paravane: the time of --timeout is over; the machine is not started again",
    ];
    assert!(
        code == 124 && over.contains(&last.as_str()),
        "{code} {last}"
    );
    assert!(count >= 2, "{count}");
}

/// The process id of a machine's restarter.
fn restarter(user: &User, name: &str) -> u32 {
    let file = user
        .folder()
        .join(format!("paravane/machines/{name}/lives.json"));
    let lives: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    u32::try_from(lives["restarter"].as_u64().unwrap()).unwrap()
}

/// Ends a machine that reboots all the time, during a life and between two lives.
#[test]
fn the_end_in_a_reboot() {
    let user = User::new();
    for (round, way) in ["stop", "kill", "term", "stop", "kill", "term"]
        .into_iter()
        .enumerate()
    {
        user.detach(
            &["--name", "m", "--restart", "always"],
            "reboot -f; sleep 100",
        );
        let restarter = restarter(&user, "m");
        let between = round >= 3;
        // The waits become longer than it takes to look.
        wait_for(&user, "m", if between { 4 } else { 2 });
        let begun = Instant::now();
        while between && user.monitor("m") != restarter {
            assert!(begun.elapsed() < program::PATIENCE, "{}", user.inspect("m"));
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(
            u64::try_from(round % 3 * 61).unwrap(),
        ));
        let begun = Instant::now();
        match way {
            "term" => tree::signal(restarter, Signal::TERM),
            other => assert_eq!(user.ok(&[other, "m"]), "m\n"),
        }
        user.wait_for("m", "exited");
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{:?}",
            begun.elapsed()
        );
        let code = if way == "kill" { 137 } else { 143 };
        let machine = user.inspect("m");
        assert_eq!(machine["exit_code"], code, "{way} {between}: {machine}");
        // It stays so.
        tree::wait_gone(&[restarter]).unwrap();
        assert_eq!(user.state("m"), "exited");
        user.ok(&["rm", "m"]);
    }
}

#[test]
fn a_killed_restarter_leaves_nothing() {
    let user = User::new();
    let script = format!("{COUNT}; [ $n = 1 ] && reboot -f; sleep 1000");
    let disk = disk();
    let file = disk.path().display().to_string();
    user.detach(
        &["--name", "m", "--restart", "always", "--disk", &file],
        &script,
    );
    wait_for(&user, "m", 1);
    user.ok(&["exec", "m", "--", "true"]);
    let monitor = user.monitor("m");
    let restarter = restarter(&user, "m");
    let mut pids = tree::everything(monitor);
    assert!(pids.len() > 1, "{pids:?}");
    pids.push(restarter);
    tree::signal(restarter, Signal::KILL);
    tree::wait_gone(&pids).unwrap();
    assert_eq!(user.state("m"), "died");
}

/// A terminal and timeout(1) send a signal to the whole group. The command must get it once: a
/// second one would end its machine at once.
#[test]
fn a_signal_to_the_group_comes_once() {
    for to_group in [true, false] {
        let script = "trap 'echo told; sleep 1; echo after; exit 5' TERM; echo ready; \
             while :; do sleep 0.1; done";
        let mut command = vm::command(["--restart", "always", "--", "sh", "-c", script]);
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.process_group(0).spawn().unwrap();
        let mut output = paravane_tests::lines::Lines::of(child.stdout.take());
        assert_eq!(output.next_within(program::PATIENCE), "ready\n");
        let pid = rustix::process::Pid::from_child(&child);
        if to_group {
            rustix::process::kill_process_group(pid, Signal::TERM).unwrap();
        } else {
            rustix::process::kill_process(pid, Signal::TERM).unwrap();
        }
        assert_eq!(
            output.rest_within(program::PATIENCE),
            "told\nafter\n",
            "{to_group}"
        );
        assert_eq!(child.wait().unwrap().code(), Some(5), "{to_group}");
    }
}

/// The monitor of the first life has started a new file for the output.
#[test]
fn the_log_goes_on() {
    const LIMIT: u64 = 16 << 20;
    /// More than the agent has not read when `reboot -f` ends the guest: a pipe, and its buffers.
    const MORE: u64 = 512 << 10;
    let user = User::new();
    let disk = disk();
    let file = disk.path().display().to_string();
    // Whole lines, wherever a new file begins.
    let script = format!(
        "{COUNT}; [ $n = 1 ] || exit 0; yes | head -c {}; reboot -f",
        LIMIT + MORE
    );
    user.detach(
        &["--name", "m", "--restart", "on-reboot", "--disk", &file],
        &script,
    );
    user.wait_for("m", "exited");
    let folder = user.folder().join("paravane/machines/m");
    let length = |name: &str| fs::metadata(folder.join(name)).unwrap().len();
    assert!(
        length("output.1") < LIMIT + (1 << 20),
        "{}",
        length("output.1")
    );
    let log = fs::read_to_string(folder.join("output")).unwrap();
    assert_eq!(log.lines().last(), Some("life 2"), "{} bytes", log.len());
}

/// A machine whose root may have an init of its own starts again by default.
#[test]
fn a_system_reboots_by_default() {
    let root = paravane_tests::small_root::make(&["true"]);
    let user = User::new();
    let mut command = vm::command(["--detach", "--name", "m", "--rootfs"]);
    command
        .arg(root.path())
        .env("XDG_STATE_HOME", user.folder());
    assert_eq!(program::finish(&mut command).code, 0);
    let boot = || {
        user.ok(&[
            "exec",
            "m",
            "--",
            "sh",
            "-c",
            "read id </proc/sys/kernel/random/boot_id; echo $id",
        ])
    };
    let first = boot();
    let run = user.run(&[
        "exec",
        "m",
        "--",
        "sh",
        "-c",
        "echo b >/proc/sysrq-trigger; read x",
    ]);
    assert_ne!(run.code, 0, "{run:?}");
    wait_for(&user, "m", 1);
    assert_ne!(boot(), first);
    user.ok(&["stop", "m"]);
    assert_eq!(user.inspect("m")["exit_code"], 0);
    assert_eq!(restarts(&user, "m"), 1);
}

#[test]
fn a_restart_that_fails_is_told() {
    let user = User::new();
    let (disk, port) = (disk(), free_port());
    let file = disk.path().display().to_string();
    let publish = format!("{port}:80");
    let options = ["--name", "m", "--restart", "on-reboot", "--disk", &file];
    let script = format!("{COUNT}; read x; reboot -f; sleep 100");
    let options = [&options[..], &["--publish", &publish, "--interactive"]].concat();
    user.detach(&options, &script);
    // The disk does not exist any more when the guest reboots.
    drop(disk);
    assert_eq!(user.state("m"), "running");
    let run = program::finish(
        user.command(&["exec", "m", "--", "reboot", "-f"])
            .stdin(Stdio::null()),
    );
    assert_ne!(run.code, 0, "{run:?}");
    // It waits before each further try.
    user.wait_for("m", "restarting");
    user.wait_for("m", "exited");
    let machine = user.inspect("m");
    assert_eq!(
        (&machine["exit_code"], &machine["restarts"]),
        (&2.into(), &4.into())
    );
    let log = user.ok(&["logs", "m"]);
    assert_eq!(
        log.lines().filter(|line| line.contains("--disk")).count(),
        4,
        "{log}"
    );
    assert_eq!(log.lines().last(), Some(LOOP), "{log}");
}
