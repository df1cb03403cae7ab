// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs work that may wait for the host without a bound on a thread of its own. The caller waits
//! for the result and for other things at the same time, and can abandon the thread.

use crate::events::{PollFlags, Waits, is_ready};
use crate::signals::{Interrupted, Signals};
use anyhow::Context;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::Instant;

/// A thread that works. It goes on when this is dropped, at most until the process ends.
#[derive(Debug)]
pub struct Worker<T> {
    result: Receiver<T>,
    done: Arc<OwnedFd>,
}

/// Where the thread leaves its result.
#[derive(Debug)]
pub struct Report<T> {
    result: Sender<T>,
    done: Arc<OwnedFd>,
}

impl<T> Report<T> {
    /// Leaves the result. If nothing waits for it any more, it is dropped here.
    pub fn give(self, result: T) {
        let _ = self.result.send(result);
    }
}

impl<T> Drop for Report<T> {
    fn drop(&mut self) {
        // Fails only when the counter is full, and it counts to one.
        let _ = rustix::io::write(&*self.done, &1u64.to_ne_bytes());
    }
}

impl<T: Send + 'static> Worker<T> {
    /// Starts the thread. `work` gives its result to the report, and may go on after that.
    ///
    /// # Errors
    /// The host has no thread or no descriptor left.
    pub fn start(name: &str, work: impl FnOnce(Report<T>) + Send + 'static) -> io::Result<Self> {
        let done = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (sender, result) = channel();
        let report = Report {
            result: sender,
            done: Arc::clone(&done),
        };
        Builder::new()
            .name(name.to_string())
            .spawn(move || work(report))?;
        Ok(Worker { result, done })
    }

    /// For poll: becomes readable when there is a result, or none can come any more.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }

    /// The result, if there is one yet.
    ///
    /// # Errors
    /// The thread has ended without one: it has panicked.
    pub fn take(&self) -> anyhow::Result<Option<T>> {
        if !is_ready(self.file(), PollFlags::IN) {
            return Ok(None);
        }
        let result = self.result.try_recv();
        Ok(Some(result.context("a thread ended without a result")?))
    }

    /// Waits for the result until then. None: the time is over, or the thread has panicked.
    pub fn wait_until(&self, deadline: Instant) -> Option<T> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.result.recv_timeout(left).ok()
    }
}

/// How long work is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Limit<'a> {
    /// One of these ends the wait at once.
    pub signals: Option<&'a Signals>,
    /// The end of the wait.
    pub deadline: Instant,
}

/// An error that says that the work took longer than its limit of this many seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not done after {0} s: this host is slow")]
pub struct TooLate(pub u64);

/// Does work on a thread of its own, and waits for it within the limit.
///
/// # Errors
/// [`Interrupted`], [`TooLate`], or what the work says.
pub fn within<T: Send + 'static>(
    limit: &Limit<'_>,
    name: &str,
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let begun = Instant::now();
    let worker =
        Worker::start(name, move |report| report.give(work())).context("cannot start a thread")?;
    loop {
        if let Some(result) = worker.take()? {
            return result;
        }
        if let Some(signal) = limit.signals.and_then(Signals::pending) {
            return Err(Interrupted(signal).into());
        }
        if Instant::now() >= limit.deadline {
            return Err(TooLate(begun.elapsed().as_secs()).into());
        }
        let mut waits = Waits::default();
        waits.to_read(worker.file());
        if let Some(signals) = limit.signals {
            waits.to_read(signals.wake());
        }
        waits.until(limit.deadline);
        waits.wait()?;
    }
}

#[cfg(test)]
#[allow(clippy::panic)] // What panics here is a thread of the test.
mod tests {
    use super::*;
    use std::time::Duration;

    fn soon() -> Limit<'static> {
        Limit {
            signals: None,
            deadline: Instant::now() + Duration::from_millis(50),
        }
    }

    #[test]
    fn results_and_errors_come_back() {
        let far = Limit {
            deadline: Instant::now() + Duration::from_secs(60),
            ..soon()
        };
        assert_eq!(within(&far, "test", || Ok(7)).unwrap(), 7);
        let error = within(&far, "test", || -> anyhow::Result<()> {
            anyhow::bail!("no")
        });
        assert_eq!(error.unwrap_err().to_string(), "no");
        let error = within(&far, "test", || -> anyhow::Result<()> { panic!("planned") });
        assert!(error.unwrap_err().to_string().contains("without a result"));
    }

    #[test]
    fn work_that_does_not_end_is_left() {
        let (hold, held) = channel::<()>();
        let error = within(&soon(), "test", move || {
            let _ = held.recv();
            Ok(())
        });
        assert!(error.unwrap_err().is::<TooLate>());
        drop(hold);
    }

    #[test]
    fn what_comes_too_late_is_dropped() {
        struct Tells(Sender<()>);
        impl Drop for Tells {
            fn drop(&mut self) {
                let _ = self.0.send(());
            }
        }
        let ((hold, held), (tell, told)) = (channel::<()>(), channel());
        let worker = Worker::start("test", move |report| {
            let _ = held.recv();
            report.give(Tells(tell));
        });
        drop(worker.unwrap());
        drop(hold);
        told.recv_timeout(Duration::from_secs(60)).unwrap();
    }
}
