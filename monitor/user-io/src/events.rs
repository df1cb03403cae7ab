// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The event loop of every command that serves several things at once: a machine, its command, a
//! terminal, signals, requests.
//!
//! A task takes turns. In each it does what can be done without waiting; between two turns the loop
//! waits for what the task asks for. So nothing that a task serves can keep it from the rest.

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
    /// For something to read from a file.
    pub fn to_read(&mut self, file: BorrowedFd<'a>) {
        self.files
            .push(PollFd::from_borrowed_fd(file, PollFlags::IN));
    }

    /// For room to write to a file.
    pub fn to_write(&mut self, file: BorrowedFd<'a>) {
        self.files
            .push(PollFd::from_borrowed_fd(file, PollFlags::OUT));
    }

    /// For a time. The earliest one counts.
    pub fn until(&mut self, time: Instant) {
        self.until = Some(self.until.map_or(time, |before| before.min(time)));
    }

    /// Waits for the first of all these. A signal's handler ends the wait, too: the caller looks at
    /// everything again anyway.
    ///
    /// # Errors
    /// The host cannot wait.
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

/// Whether something can be done with a file now without waiting. That may be to learn of an error.
pub fn is_ready(file: BorrowedFd<'_>, flags: PollFlags) -> bool {
    let mut files = [PollFd::from_borrowed_fd(file, flags)];
    poll(&mut files, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// What takes turns.
pub trait Task {
    /// What it comes to.
    type End;

    /// Does what can be done without waiting. Some: it is done.
    ///
    /// # Errors
    /// It cannot go on.
    fn turn(&mut self) -> anyhow::Result<Option<Self::End>>;

    /// Adds what the next turn waits for.
    fn waits<'a>(&'a self, waits: &mut Waits<'a>);
}

/// Runs a task to its end.
///
/// # Errors
/// The task's, or the host cannot wait.
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
