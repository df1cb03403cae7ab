// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program on a terminal: types into it and reads what the terminal shows.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use crate::wait as waits;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, ioctl_tiocsctty, kill_process, setsid};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroU16;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

/// A pseudo-terminal with a VT100 at one end and a program at the other.
pub struct Screen {
    ours: OwnedFd,
    theirs: OwnedFd,
    child: Child,
    /// What the program prints, as the terminal shows it.
    shown: vt100::Parser,
    /// Output that [`Screen::until`] has not looked at yet.
    unread: VecDeque<u8>,
    before: String,
}

impl fmt::Debug for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.shown.screen().contents();
        f.debug_struct("Screen")
            .field("child", &self.child)
            .field("shown", &shown)
            .finish_non_exhaustive()
    }
}

impl Screen {
    /// Starts a program on a new terminal of 91 columns and 37 rows.
    ///
    /// # Panics
    /// When the program cannot be started.
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
            shown: vt100::Parser::new(cells(37), cells(91), 0),
            unread: VecDeque::new(),
            before,
        }
    }

    /// The id of the program.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Types this text.
    ///
    /// # Panics
    /// When the terminal does not accept it.
    pub fn enter(&self, text: &str) {
        assert_eq!(
            rustix::io::write(&self.ours, text.as_bytes()),
            Ok(text.len())
        );
    }

    /// Waits until the terminal shows this text before the cursor. Text that was shown earlier does
    /// not count again.
    ///
    /// # Panics
    /// When the terminal does not show it in time.
    pub fn until(&mut self, wanted: &str) {
        let deadline = Instant::now() + LONG;
        loop {
            while let Some(byte) = self.unread.pop_front() {
                self.shown.process(&[byte]);
                if self.before_cursor().ends_with(wanted) {
                    return;
                }
            }
            assert!(
                Instant::now() < deadline,
                "the terminal does not show `{wanted}`, only:\n{}",
                self.shown.screen().contents()
            );
            let mut files = [PollFd::new(&self.ours, PollFlags::IN)];
            let second = Timespec {
                tv_sec: 1,
                tv_nsec: 0,
            };
            if poll(&mut files, Some(&second)).unwrap() > 0 {
                let mut piece = [0; 4096];
                let n = rustix::io::read(&self.ours, &mut piece).unwrap();
                self.unread.extend(&piece[..n]);
            }
        }
    }

    /// The line with the cursor up to the cursor, and the line above it in case that one is
    /// wrapped.
    fn before_cursor(&self) -> String {
        let screen = self.shown.screen();
        let (row, column) = screen.cursor_position();
        screen.contents_between(row.saturating_sub(1), 0, row, column)
    }

    /// Waits until the program ends and returns its exit code.
    ///
    /// # Panics
    /// When it does not end, or leaves the terminal with other settings than it found.
    pub fn end(&mut self) -> i32 {
        let code = wait(&mut self.child);
        assert_eq!(settings(&self.theirs), self.before);
        code
    }

    /// Closes the terminal, as a window that is closed, and waits until the program ends. Returns
    /// its exit code.
    ///
    /// # Panics
    /// When it does not end.
    #[must_use]
    pub fn close(self) -> i32 {
        let Screen {
            ours,
            theirs,
            mut child,
            ..
        } = self;
        drop((ours, theirs));
        wait(&mut child)
    }

    /// Checks a shell in a guest: this terminal is raw, the guest has a terminal of the same size,
    /// the guest's terminal follows a resize, and Ctrl-C interrupts the program in the guest.
    ///
    /// # Panics
    /// When one of the checks fails.
    pub fn has_a_shell(&mut self) {
        self.until("root@paravane");
        assert!(!self.is_as_before(), "the terminal is not raw");
        self.enter("tty; stty size\r");
        self.until("/dev/pts/");
        self.until("37 91");
        self.resize(120, 50);
        self.enter("sleep 0.3; stty size\r");
        self.until("50 120");
        // The shell ends both at Ctrl-C.
        self.enter("echo begun-$((6 * 7)); sleep 1000\r");
        self.until("begun-42");
        self.enter("\x03");
        self.enter("echo code-$?\r");
        self.until("code-130");
    }

    /// Sends the program a signal.
    ///
    /// # Panics
    /// When the program has ended.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Whether the terminal has the settings that it had before the program started.
    #[must_use]
    pub fn is_as_before(&self) -> bool {
        settings(&self.theirs) == self.before
    }

    /// Changes the size of the terminal.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        size(&self.ours, columns, rows);
        self.shown.set_size(cells(rows), cells(columns));
    }
}

/// Waits until the program ends. Returns its exit code.
fn wait(child: &mut Child) -> i32 {
    let end = waits::some("the program ends", LONG, || child.try_wait().unwrap());
    end.code().unwrap_or(-1)
}

fn cells(n: u16) -> NonZeroU16 {
    NonZeroU16::new(n).unwrap()
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
