// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A person's terminal, and the program on it.

#![allow(clippy::unwrap_used)] // What cannot be set up has failed.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, ioctl_tiocsctty, kill_process, setsid};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

/// A terminal, and the program on it.
#[derive(Debug)]
pub struct Screen {
    ours: OwnedFd,
    theirs: OwnedFd,
    child: Child,
    seen: String,
    before: String,
}

impl Screen {
    /// Starts a program on a new terminal of 91 by 37 characters.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(mut command: Command) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let theirs = ioctl_tiocgptpeer(&ours, flags).unwrap();
        size(&ours, 91, 37);
        let before = settings(&theirs);
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

    /// Types.
    ///
    /// # Panics
    /// When the terminal does not take it.
    pub fn enter(&self, text: &str) {
        assert_eq!(
            rustix::io::write(&self.ours, text.as_bytes()),
            Ok(text.len())
        );
    }

    /// Waits until something is seen, and forgets all up to there.
    ///
    /// # Panics
    /// When it does not come.
    pub fn until(&mut self, wanted: &str) {
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
            let second = Timespec {
                tv_sec: 1,
                tv_nsec: 0,
            };
            if poll(&mut files, Some(&second)).unwrap() > 0 {
                let mut piece = [0; 4096];
                let n = rustix::io::read(&self.ours, &mut piece).unwrap();
                self.seen.push_str(&String::from_utf8_lossy(&piece[..n]));
            }
        }
    }

    /// Waits for the end; the terminal must be as it was. The exit code.
    ///
    /// # Panics
    /// When it is not, or the end does not come.
    pub fn end(&mut self) -> i32 {
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

    /// A shell in a guest is behind it: the terminal is raw, there is one in the guest too, of the same size, also when that changes,
    /// and an interrupt goes to the program in the guest.
    ///
    /// # Panics
    /// When something of this is not so.
    pub fn has_a_shell(&mut self) {
        self.until("root@paravane");
        assert!(!self.is_as_before(), "it is not raw");
        self.enter("tty; stty size\r");
        self.until("/dev/pts/");
        self.until("37 91");
        self.resize(120, 50);
        self.enter("sleep 0.3; stty size\r");
        self.until("50 120");
        self.enter("sleep 1000\r");
        std::thread::sleep(Duration::from_millis(300));
        self.enter("\x03");
        self.enter("echo code-$?\r");
        self.until("code-130");
    }

    /// Sends the program a signal.
    ///
    /// # Panics
    /// When it is gone.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Screen {
    /// Whether the terminal's settings are what they were before the program.
    #[must_use]
    pub fn is_as_before(&self) -> bool {
        settings(&self.theirs) == self.before
    }

    /// Changes the terminal's size.
    pub fn resize(&self, columns: u16, rows: u16) {
        size(&self.ours, columns, rows);
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
