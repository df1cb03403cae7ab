// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane attach`: types into a machine in the background, detaches, and attaches again.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::screen::Screen;
use paravane_tests::user::User;
use paravane_tests::{program, vm};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

/// An attached command with pipes, and the lines that it prints.
struct Attached {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Attached {
    fn new(user: &User) -> Self {
        let mut command = user.command(&["attach", "m"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The channel has no room, so the thread reads no further than the test. The test needs a
        // full pipe.
        let (sender, lines) = sync_channel(0);
        let output = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            let all = output.lines().map_while(Result::ok);
            all.map_while(|line| sender.send(line).ok()).for_each(drop);
        });
        Attached {
            input: child.stdin.take(),
            lines,
            child,
        }
    }

    /// Sends a line. Returns the next line that the machine prints.
    fn say(&mut self, line: &str) -> String {
        writeln!(self.input.as_ref().unwrap(), "{line}").unwrap();
        self.line()
    }

    /// The next line.
    fn line(&self) -> String {
        self.lines.recv_timeout(program::PATIENCE).unwrap()
    }
}

#[test]
fn what_is_sent_is_read_by_the_command() {
    let user = User::new();
    let script =
        "while read -r line; do [ $line != end ] || exit 7; echo got-$line; done; echo over";
    user.detach(&["--name", "m", "--interactive"], script);
    let mut first = Attached::new(&user);
    assert_eq!(first.say("one"), "got-one");
    // Both see the output. When one closes its input, the other can still type.
    let mut second = Attached::new(&user);
    assert_eq!(second.say("two"), "got-two");
    assert_eq!(first.line(), "got-two");
    drop(second.input.take());
    assert_eq!(first.say("three"), "got-three");
    assert_eq!(second.line(), "got-three");
    // Far more than a pipe holds while no program reads it. The pauses let the command's output
    // come back meanwhile, which is not read before all is sent.
    let long = "x".repeat(3000);
    for n in 0..100 {
        writeln!(first.input.as_ref().unwrap(), "{long}").unwrap();
        if n % 10 == 0 {
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    for _ in 0..100 {
        assert_eq!(first.line().len(), 3004);
    }
    writeln!(first.input.as_ref().unwrap(), "end").unwrap();
    assert_eq!(
        program::wait_within(&mut first.child, program::PATIENCE).code(),
        Some(7)
    );
    drop(second.lines);
    program::wait_within(&mut second.child, program::PATIENCE);
}

#[test]
fn attach_without_input_sends_none() {
    let user = User::new();
    user.detach(
        &["--name", "m"],
        "read -r line || echo nothing; sleep 10; exit 3",
    );
    let mut attached = Attached::new(&user);
    let _ = writeln!(attached.input.as_ref().unwrap(), "x");
    assert_eq!(
        program::wait_within(&mut attached.child, program::PATIENCE).code(),
        Some(3)
    );
    assert_eq!(user.ok(&["logs", "m"]), "nothing\n");
}

#[test]
fn a_terminal_is_left_and_found_again() {
    let user = User::new();
    let mut made = vm::command(["--detach", "--interactive", "--tty", "--name", "m"]);
    let made = program::finish(made.env("XDG_STATE_HOME", user.folder()));
    assert_eq!((made.code, made.stdout.as_str()), (0, "m\n"), "{made:?}");

    let mut screen = Screen::start(user.command(&["attach", "m"]));
    screen.enter("\r");
    screen.has_a_shell();
    screen.enter("left=$((6 * 7))\r");
    screen.enter("\x1d");
    assert_eq!(screen.end(), 0);
    assert_eq!(user.state("m"), "running");

    // A terminal that is closed leaves it, too, with the exit code of the signal.
    let mut screen = Screen::start(user.command(&["attach", "m"]));
    screen.enter("echo here-$left\r");
    screen.until("here-42");
    assert_eq!(screen.close(), 128 + 1);

    // A command of its own gets the signal.
    let script = "trap 'echo hup >/tmp/f; exit 7' HUP; echo ready; while :; do sleep .1; done";
    let words = ["exec", "--tty", "m", "--", "sh", "-c", script];
    let mut screen = Screen::start(user.command(&words));
    screen.until("ready");
    assert_eq!(screen.close(), 7);
    assert_eq!(user.ok(&["exec", "m", "--", "cat", "/tmp/f"]), "hup\n");
    let script = "trap '' HUP; echo ready; while :; do sleep 1; done";
    let words = ["exec", "--tty", "m", "--", "sh", "-c", script];
    let mut screen = Screen::start(user.command(&words));
    screen.until("ready");
    assert_eq!(screen.close(), 128 + 1);
    assert_eq!(user.state("m"), "running");

    let mut screen = Screen::start(user.command(&["attach", "m"]));
    screen.enter("echo still-$left\r");
    screen.until("still-42");
    screen.enter("exit 5\r");
    assert_eq!(screen.end(), 5);
    user.wait_for("m", "exited");
}

/// The terminal's size changes while the machine boots, before its monitor answers.
#[test]
fn a_terminal_that_is_resized_before_the_command_starts() {
    let user = User::new();
    user.detach(&["--name", "m"], "sleep 1000");
    let monitor = i32::try_from(user.monitor("m")).unwrap();
    let monitor = Pid::from_raw(monitor).unwrap();
    kill_process(monitor, Signal::STOP).unwrap();
    let mut screen = Screen::start(user.command(&["exec", "--tty", "m", "--", "stty", "size"]));
    // It has read the size, and waits.
    thread::sleep(Duration::from_secs(1));
    assert!(screen.is_as_before());
    screen.resize(120, 50);
    thread::sleep(Duration::from_millis(100));
    kill_process(monitor, Signal::CONT).unwrap();
    screen.until("50 120");
    assert_eq!(screen.end(), 0);
}
