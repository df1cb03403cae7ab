// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The event loop of commands that serve several things at once: a machine, its command, a
//! terminal, signals, requests.
//!
//! A task runs in turns. In a turn it does everything that can be done without waiting. Between two
//! turns the loop waits for the files and the time that the task names. So no single source of
//! events can block the others.

use anyhow::Context;
use rustix::event::{PollFd, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::time::Instant;

pub use rustix::event::PollFlags;

/// What a task waits for between two turns.
#[derive(Debug, Default)]
pub struct Waits<'a> {
    files: Vec<PollFd<'a>>,
    until: Option<Instant>,
}

impl<'a> Waits<'a> {
    /// Waits until a file is readable.
    pub fn to_read(&mut self, file: BorrowedFd<'a>) {
        self.files
            .push(PollFd::from_borrowed_fd(file, PollFlags::IN));
    }

    /// Waits until a file is writable.
    pub fn to_write(&mut self, file: BorrowedFd<'a>) {
        self.files
            .push(PollFd::from_borrowed_fd(file, PollFlags::OUT));
    }

    /// Waits until this time at most. The earliest time counts.
    pub fn until(&mut self, time: Instant) {
        self.until = Some(self.until.map_or(time, |before| before.min(time)));
    }

    /// Waits for the first of these. A signal handler ends the wait, too: callers check everything
    /// again after each wait.
    ///
    /// # Errors
    /// poll() fails.
    pub fn wait(mut self) -> anyhow::Result<()> {
        let left = self
            .until
            .map(|time| time.saturating_duration_since(Instant::now()));
        let left = left.map(Timespec::try_from).transpose()?;
        match poll(&mut self.files, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("cannot wait"),
        }
    }
}

/// Whether an operation on a file would not block now. The operation may return an error.
pub fn is_ready(file: BorrowedFd<'_>, flags: PollFlags) -> bool {
    let mut files = [PollFd::from_borrowed_fd(file, flags)];
    poll(&mut files, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Something that runs in turns.
pub trait Task {
    /// Its result.
    type End;

    /// Does what can be done without waiting. Returns the result when the task has ended.
    ///
    /// # Errors
    /// The task cannot continue.
    fn turn(&mut self) -> anyhow::Result<Option<Self::End>>;

    /// Adds the files and times that the next turn depends on.
    fn waits<'a>(&'a self, waits: &mut Waits<'a>);
}

/// Runs a task to its end.
///
/// # Errors
/// Those of the task, or poll() fails.
pub fn run<T: Task>(task: &mut T) -> anyhow::Result<T::End> {
    loop {
        if let Some(end) = task.turn()? {
            return Ok(end);
        }
        let mut waits = Waits::default();
        task.waits(&mut waits);
        waits.wait()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    /// Counts the bytes that come, until it is time.
    struct Counter {
        from: UnixStream,
        count: usize,
        turns: usize,
        wanted: usize,
        until: Instant,
    }

    impl Task for Counter {
        type End = usize;

        fn turn(&mut self) -> anyhow::Result<Option<usize>> {
            self.turns += 1;
            self.count += self.from.read(&mut [0; 16]).unwrap_or(0);
            let over = self.count >= self.wanted || Instant::now() >= self.until;
            Ok(over.then_some(self.count))
        }

        fn waits<'a>(&'a self, waits: &mut Waits<'a>) {
            waits.to_read(self.from.as_fd());
            waits.until(self.until + Duration::from_secs(60));
            waits.until(self.until);
        }
    }

    fn counter(wanted: usize, until: Duration) -> (Counter, UnixStream) {
        let (from, to) = UnixStream::pair().unwrap();
        from.set_nonblocking(true).unwrap();
        let counter = Counter {
            from,
            count: 0,
            turns: 0,
            wanted,
            until: Instant::now() + until,
        };
        (counter, to)
    }

    #[test]
    fn a_turn_is_taken_when_something_comes() {
        let (mut counter, mut to) = counter(2, Duration::from_secs(60));
        to.write_all(b"a").unwrap();
        let writer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            to.write_all(b"b").unwrap();
            to
        });
        assert_eq!(run(&mut counter).unwrap(), 2);
        assert!(counter.turns <= 3, "{} turns", counter.turns);
        writer.join().unwrap();
    }

    #[test]
    fn a_turn_is_taken_when_it_is_time() {
        let (mut counter, _to) = counter(1, Duration::from_millis(20));
        assert_eq!(run(&mut counter).unwrap(), 0);
        assert!(counter.turns <= 4, "{} turns", counter.turns);
    }
}
