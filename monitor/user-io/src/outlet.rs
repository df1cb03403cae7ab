// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Standard output and standard error, written without waiting, from any thread.
//!
//! Their readers may not read: the next program of a pipe sleeps, a terminal's window hangs. A
//! thread that waits for such a reader waits for ever. It is not enough to ask by poll() first. A
//! terminal calls itself writable when it takes one byte, and blocks in the middle of the second;
//! what another thread or program writes between poll() and write() can fill the pipe. So pipes and
//! terminals are opened again, in non-blocking mode. The mode of the descriptors that this program
//! was given stays: it belongs to all programs that share them.

use crate::events::{PollFlags, Waits, is_ready};
use crate::signals::{Interrupted, Signals};
use crate::worker::Limit;
use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fstat, open as open_file};
use rustix::io::Errno;
use rustix::termios::isatty;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// A writable pipe takes at least this many bytes without blocking (POSIX's `PIPE_BUF`).
const PIECE: usize = 4096;

static OUTPUT: OnceLock<Way> = OnceLock::new();
static ERROR: OnceLock<Way> = OnceLock::new();
/// Held from poll() to write() where a file could not be opened again.
static WRITING: Mutex<()> = Mutex::new(());

/// How one is written.
#[derive(Debug)]
enum Way {
    /// By this descriptor, which does not block.
    Own(OwnedFd),
    /// In pieces of this number of bytes, which do not block after poll().
    Polled(usize),
}

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlet {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// Opens both again, as far as that is possible and needed. To be called before any thread is
/// confined.
pub fn open() {
    for outlet in [Outlet::Output, Outlet::Error] {
        // It fails if this was called before.
        let _ = outlet.way().set(way(outlet.file()));
    }
}

impl Outlet {
    /// For poll: whether it takes more.
    pub fn file(self) -> BorrowedFd<'static> {
        match self {
            Outlet::Output => rustix::stdio::stdout(),
            Outlet::Error => rustix::stdio::stderr(),
        }
    }

    fn way(self) -> &'static OnceLock<Way> {
        match self {
            Outlet::Output => &OUTPUT,
            Outlet::Error => &ERROR,
        }
    }

    /// Writes as many of these bytes as it takes at once, and returns their number.
    ///
    /// # Errors
    /// `AGAIN`: it takes none now. Others: those of write().
    pub fn write(self, bytes: &[u8]) -> Result<usize, Errno> {
        let way = self.way().get().unwrap_or(&Way::Polled(PIECE));
        write(self.file(), way, bytes)
    }
}

/// Standard output of a command that has a limit. A write waits for a reader at most until then.
#[derive(Clone, Copy, Debug)]
pub struct Bounded<'a>(pub Limit<'a>);

impl io::Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        within(&self.0, Outlet::Output.file(), || {
            Outlet::Output.write(bytes)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The error of a command after an error of [`Bounded`]: a signal is [`Interrupted`].
#[must_use]
pub fn error(error: io::Error) -> anyhow::Error {
    error
        .downcast::<Interrupted>()
        .map_or_else(anyhow::Error::from, anyhow::Error::from)
}

/// Repeats a write to a file that takes nothing now.
fn within(
    limit: &Limit<'_>,
    file: BorrowedFd<'_>,
    mut write: impl FnMut() -> Result<usize, Errno>,
) -> io::Result<usize> {
    loop {
        match write() {
            Err(Errno::AGAIN) => {}
            // The caller tries again after a signal that is not recorded.
            done => return Ok(done?),
        }
        if let Some(signal) = limit.signals.and_then(Signals::pending) {
            return Err(io::Error::other(Interrupted(signal)));
        }
        if Instant::now() >= limit.deadline {
            let why = "nobody reads standard output, and the time is over";
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        let mut waits = Waits::default();
        waits.to_write(file);
        if let Some(signals) = limit.signals {
            waits.to_read(signals.wake());
        }
        waits.until(limit.deadline);
        waits.wait().map_err(io::Error::other)?;
    }
}

fn way(file: BorrowedFd<'_>) -> Way {
    match again(file) {
        Some(own) => Way::Own(own),
        // A writable terminal takes one byte.
        None => Way::Polled(if isatty(file) { 1 } else { PIECE }),
    }
}

/// Opens a pipe or terminal again. Others do not block (files), or cannot be opened (sockets).
fn again(file: BorrowedFd<'_>) -> Option<OwnedFd> {
    let kind = FileType::from_raw_mode(fstat(file).ok()?.st_mode);
    // It gives no right that the descriptor does not give.
    let writable = fcntl_getfl(file)
        .ok()?
        .intersects(OFlags::WRONLY | OFlags::RDWR);
    if !writable || !matches!(kind, FileType::Fifo | FileType::CharacterDevice) {
        return None;
    }
    // It fails for another user's pipe or terminal (after su), and without /proc.
    open_file(
        format!("/proc/self/fd/{}", file.as_raw_fd()),
        OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .ok()
}

fn write(file: BorrowedFd<'_>, way: &Way, bytes: &[u8]) -> Result<usize, Errno> {
    let at_most = |length: usize| bytes.get(..bytes.len().min(length)).unwrap_or_default();
    match way {
        Way::Own(own) => rustix::io::write(own, at_most(PIECE)),
        Way::Polled(piece) => {
            let _alone = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
            if !is_ready(file, PollFlags::OUT) {
                return Err(Errno::AGAIN);
            }
            rustix::io::write(file, at_most(*piece))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe, pipe_with};
    use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
    use std::os::fd::AsFd;
    use std::time::Duration;

    /// Writes until no more is taken. If a write blocks, so does the test.
    fn fill(file: &OwnedFd, way: &Way, bytes: &[u8]) -> usize {
        let mut done = 0;
        loop {
            match write(file.as_fd(), way, bytes) {
                Ok(count) => done += count,
                Err(Errno::AGAIN) => return done,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn terminal() -> (OwnedFd, OwnedFd) {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let theirs = ioctl_tiocgptpeer(&ours, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        (ours, theirs)
    }

    #[test]
    fn a_full_pipe_or_terminal_does_not_block() {
        for length in [1, 2, 81, 4096, 10_000] {
            let mut line = vec![b'x'; length];
            *line.last_mut().unwrap() = b'\n';
            for reopened in [true, false] {
                let (_reader, pipe) = pipe().unwrap();
                let (_ours, terminal) = terminal();
                for (file, piece) in [(pipe, PIECE), (terminal, 1)] {
                    let way = if reopened {
                        way(file.as_fd())
                    } else {
                        Way::Polled(piece)
                    };
                    assert_eq!(matches!(way, Way::Own(_)), reopened);
                    let done = fill(&file, &way, &line);
                    assert!(done >= 4096, "{length} {way:?}: {done}");
                    // The descriptor that was given still blocks, as others expect.
                    assert!(!fcntl_getfl(&file).unwrap().contains(OFlags::NONBLOCK));
                }
            }
        }
    }

    #[test]
    fn a_reader_is_waited_for_until_the_time_is_over() {
        let limit = |time| Limit {
            signals: None,
            deadline: Instant::now() + time,
        };
        let (reader, pipe) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        while rustix::io::write(&pipe, &[0; PIECE]).is_ok() {}
        let write = || rustix::io::write(&pipe, &[0; PIECE]);
        let soon = Duration::from_millis(50);
        let late = within(&limit(soon), pipe.as_fd(), write).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(soon);
                rustix::io::read(&reader, &mut [0; PIECE]).unwrap()
            });
            let far = limit(Duration::from_secs(60));
            assert_eq!(within(&far, pipe.as_fd(), write).unwrap(), PIECE);
        });
        drop(reader);
        let gone = within(&limit(soon), pipe.as_fd(), write).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_signal_is_told_as_one() {
        let signal = error(io::Error::other(Interrupted(15)));
        assert_eq!(signal.downcast_ref(), Some(&Interrupted(15)));
        let other = error(io::ErrorKind::BrokenPipe.into());
        let other: &io::Error = other.downcast_ref().unwrap();
        assert_eq!(other.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn only_what_blocks_is_opened_again() {
        let file = tempfile::tempfile().unwrap();
        let (reader, _writer) = pipe().unwrap();
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        for file in [file.as_fd(), reader.as_fd(), one.as_fd()] {
            assert!(matches!(way(file), Way::Polled(PIECE)));
        }
    }
}
