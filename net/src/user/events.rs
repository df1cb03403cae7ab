// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the host's sockets report, and one timer, as one descriptor.
//!
//! Each socket is registered once and reports changes only (`EPOLLET`). So a socket without news
//! costs nothing, and no call is needed for a socket that has reported. The owner of a socket
//! remembers what was reported until the host answers `EAGAIN`.

use crate::Error;
use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use smoltcp::time::{Duration, Instant};
use std::io;
use std::mem::MaybeUninit;

pub use rustix::event::epoll::EventFlags;

/// Reports that are taken from the host at a time.
const BATCH: usize = 64;
/// Where the kind of a source begins in the number that the host returns.
const KIND: u32 = 56;

/// The source of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The time of [`Events::alarm`] has come.
    Timer,
    /// A listener for a published port, by its index.
    Listener(u64),
    /// The host's socket of a connection.
    Flow(u64),
    /// A socket for datagrams.
    Datagrams(u64),
}

impl Source {
    fn number(self) -> u64 {
        match self {
            Source::Timer => 0,
            Source::Listener(index) => 1 << KIND | index,
            Source::Flow(id) => 2 << KIND | id,
            Source::Datagrams(id) => 3 << KIND | id,
        }
    }

    fn of(number: u64) -> Source {
        let id = number & ((1 << KIND) - 1);
        match number >> KIND {
            0 => Source::Timer,
            1 => Source::Listener(id),
            2 => Source::Flow(id),
            _ => Source::Datagrams(id),
        }
    }
}

/// All sockets of a network.
#[derive(Debug)]
pub struct Events {
    epoll: OwnedFd,
    timer: OwnedFd,
    /// When the timer expires.
    alarm: Option<Instant>,
}

impl AsFd for Events {
    /// Readable when there is a report.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Events {
    pub fn new() -> Result<Self, Error> {
        let make = || -> io::Result<Self> {
            let events = Events {
                epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
                timer: timerfd_create(
                    TimerfdClockId::Monotonic,
                    TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
                )?,
                alarm: None,
            };
            events.add(&events.timer, Source::Timer, EventFlags::IN)?;
            Ok(events)
        };
        make().map_err(Error::host("cannot make a descriptor for events"))
    }

    /// Registers a socket. Its close unregisters it.
    pub fn add(&self, socket: impl AsFd, source: Source, flags: EventFlags) -> io::Result<()> {
        let data = epoll::EventData::new_u64(source.number());
        Ok(epoll::add(
            &self.epoll,
            socket,
            data,
            flags | EventFlags::ET,
        )?)
    }

    /// Takes the reports that are there, at most [`BATCH`]. True: there may be more.
    pub fn take(&mut self, mut report: impl FnMut(Source, EventFlags)) -> bool {
        const NOW: Timespec = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut space = [const { MaybeUninit::<epoll::Event>::uninit() }; BATCH];
        // Fails only if a signal came: what is there is reported the next time.
        let Ok((list, _)) = epoll::wait(&self.epoll, &mut space, Some(&NOW)) else {
            return true;
        };
        for event in &*list {
            let source = Source::of(event.data.u64());
            if source == Source::Timer {
                // It expires once, and reports a change only: nothing has to be read.
                self.alarm = None;
            }
            report(source, event.flags);
        }
        list.len() == BATCH
    }

    /// Makes [`Source::Timer`] report at this time. An earlier alarm stays, and the later one must
    /// be requested again when it reports.
    pub fn alarm(&mut self, at: Instant, now: Instant) {
        if self.alarm.is_some_and(|set| set <= at) {
            return;
        }
        // Zero would turn the timer off.
        let delay = if at > now { at - now } else { Duration::ZERO }.max(Duration::from_micros(1));
        let value = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: i64::try_from(delay.total_micros() / 1_000_000).unwrap_or(i64::MAX),
                tv_nsec: i64::try_from(delay.total_micros() % 1_000_000 * 1000).unwrap_or(0),
            },
        };
        match timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &value) {
            Ok(_) => self.alarm = Some(at),
            Err(error) => tracing::warn!("the network's timer cannot be set: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_read_as_it_was_written() {
        for source in [
            Source::Timer,
            Source::Listener(3),
            Source::Flow((1 << KIND) - 1),
            Source::Datagrams(0),
        ] {
            assert_eq!(Source::of(source.number()), source);
        }
    }

    #[test]
    fn the_earliest_alarm_comes_once() {
        let mut events = Events::new().unwrap();
        let begun = std::time::Instant::now();
        let start = Instant::ZERO;
        events.alarm(start + Duration::from_secs(50), start);
        events.alarm(start + Duration::from_millis(20), start);
        events.alarm(start + Duration::from_secs(60), start);
        assert_eq!(events.alarm, Some(start + Duration::from_millis(20)));
        let mut seen = 0;
        // Until it came, and then a little longer.
        let mut after = 0;
        while after < 100 {
            events.take(|source, _| {
                assert_eq!(source, Source::Timer);
                assert!(begun.elapsed() >= std::time::Duration::from_millis(19));
                seen += 1;
            });
            assert!(begun.elapsed() < std::time::Duration::from_secs(20));
            after += seen;
        }
        assert_eq!((seen, events.alarm), (1, None));
    }

    #[test]
    fn a_socket_reports_changes_only() {
        use std::io::Write;
        let mut events = Events::new().unwrap();
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        events.add(&ours, Source::Flow(7), EventFlags::IN).unwrap();
        for expected in [1, 0] {
            if expected == 1 {
                theirs.write_all(b"x").unwrap();
            }
            let mut seen = 0;
            events.take(|source, flags| {
                assert_eq!(source, Source::Flow(7));
                assert!(flags.contains(EventFlags::IN));
                seen += 1;
            });
            assert_eq!(seen, expected);
        }
    }
}
