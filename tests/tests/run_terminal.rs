// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane run` for a person at a terminal, which must be afterwards as it was before.

#![allow(clippy::unwrap_used)] // What cannot be set up has failed.

use paravane_tests::vm;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, ioctl_tiocsctty, kill_process, setsid};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

/// A person's terminal, and the program on it.
struct Screen {
    ours: OwnedFd,
    theirs: OwnedFd,
    child: Child,
    seen: String,
    before: String,
}

impl Screen {
    fn start(options: &[&str]) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let theirs = ioctl_tiocgptpeer(&ours, flags).unwrap();
        size(&ours, 91, 37);
        let before = settings(&theirs);
        let mut command = vm::command(options);
        command.stdin(theirs.try_clone().unwrap());
        command.stdout(theirs.try_clone().unwrap());
        command.stderr(theirs.try_clone().unwrap());
        command.env("TERM", "vt100");
        // SAFETY: runs between fork and exec; two system calls and nothing else.
        unsafe {
            command.pre_exec(|| {
                setsid()?;
                Ok(ioctl_tiocsctty(rustix::stdio::stdin())?)
            });
        }
        let child = command.spawn().unwrap();
        Screen {
            ours,
            theirs,
            child,
            seen: String::new(),
            before,
        }
    }

    fn enter(&self, text: &str) {
        assert_eq!(rustix::io::write(&self.ours, text.as_bytes()), Ok(text.len()));
    }

    /// Waits until something is seen, and forgets all up to there.
    fn until(&mut self, wanted: &str) {
        let deadline = Instant::now() + LONG;
        loop {
            if let Some(at) = self.seen.find(wanted) {
                self.seen.drain(..at + wanted.len());
                return;
            }
            assert!(
                Instant::now() < deadline,
                "`{wanted}` does not come, only:\n{}",
                self.seen
            );
            let mut files = [PollFd::new(&self.ours, PollFlags::IN)];
            let second = Timespec { tv_sec: 1, tv_nsec: 0 };
            if poll(&mut files, Some(&second)).unwrap() > 0 {
                let mut piece = [0; 4096];
                let n = rustix::io::read(&self.ours, &mut piece).unwrap();
                self.seen.push_str(&String::from_utf8_lossy(&piece[..n]));
            }
        }
    }

    /// Waits for the end; the terminal must be as it was.
    fn end(&mut self) -> i32 {
        let deadline = Instant::now() + LONG;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(settings(&self.theirs), self.before);
        status.code().unwrap_or(-1)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

fn settings(terminal: impl AsFd) -> String {
    format!("{:?}", tcgetattr(terminal).unwrap())
}

fn size(terminal: impl AsFd, columns: u16, rows: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size).unwrap();
}

#[test]
fn a_shell() {
    let mut screen = Screen::start(&[]);
    screen.until("root@paravane");
    assert_ne!(settings(&screen.theirs), screen.before, "it is not raw");
    screen.enter("tty; stty size; echo $TERM-$((6 * 7))\r");
    screen.until("/dev/pts/");
    screen.until("37 91");
    screen.until("vt100-42");
    size(&screen.ours, 120, 50);
    screen.enter("sleep 0.2; stty size\r");
    screen.until("50 120");
    // Not to us, but to the program in the guest.
    screen.enter("sleep 1000\r");
    std::thread::sleep(Duration::from_millis(300));
    screen.enter("\x03");
    screen.enter("echo code-$?\r");
    screen.until("code-130");
    screen.enter("exit 3\r");
    assert_eq!(screen.end(), 3);
}

#[test]
fn left_with_its_key() {
    let mut screen = Screen::start(&["--tty", "--", "sh", "-c", "echo ready; cat"]);
    screen.until("ready");
    screen.enter("\x1d");
    assert_eq!(screen.end(), 0);
}

/// A machine whose command does not mind being asked to end.
fn deaf() -> Screen {
    let script = "trap '' TERM; echo ready; while :; do sleep 1; done";
    let mut screen = Screen::start(&["--tty", "--", "sh", "-c", script]);
    screen.until("ready");
    screen
}

#[test]
fn ended_from_outside() {
    let mut screen = deaf();
    screen.signal(Signal::TERM);
    assert_eq!(screen.end(), 128 + 15);
    // Twice: at once.
    let mut screen = deaf();
    screen.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(100));
    screen.signal(Signal::TERM);
    assert_eq!(screen.end(), 128 + 15);
}

#[test]
fn a_panic_leaves_the_terminal_in_order() {
    let mut screen = Screen::start(&[]);
    screen.until("root@paravane");
    screen.enter("echo c > /proc/sysrq-trigger\r");
    screen.until("the guest's kernel panicked");
    assert_eq!(screen.end(), 1);
}
