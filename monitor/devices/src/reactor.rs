// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wakes a device when something happens on the host.
//!
//! A device's thread sleeps on a word that the driver's notifications change, which is the fastest
//! way: there is no thread in between. A thread cannot wait for a word and for files at once. So
//! one thread of the machine waits for the files of all devices, and wakes the device whose file is
//! ready.

use super::Ending;
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, epoll, eventfd};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub use rustix::event::epoll::EventFlags;

/// Wakes the thread of a device. The hypervisor implements it.
pub trait Wake: Send + Sync {
    /// Makes the device's thread call [`Device::woken`](super::Device::woken) soon.
    fn wake(&self);

    /// The end of the device's machine.
    fn ending(&self) -> Ending {
        Ending::default()
    }

    /// The device's thread has waited for the host, for one request and for this long.
    fn waited(&self, _time: Duration) {}
}

/// Wakes one device. It can be sent to other threads.
#[derive(Clone)]
pub struct Waker {
    wake: Arc<dyn Wake>,
    reactor: Arc<Reactor>,
    device: u64,
}

impl Waker {
    /// Wakes the device.
    pub fn wake(&self) {
        self.wake.wake();
    }

    /// The end of the device's machine.
    pub fn ending(&self) -> Ending {
        self.wake.ending()
    }

    /// Notes how long the device's thread has waited for the host, for one request. Only that
    /// thread may call it.
    pub fn waited(&self, time: Duration) {
        self.wake.waited(time);
    }

    /// Wakes the device once when a file is ready (`IN`, `OUT`; also when it ends or fails). It
    /// must be armed again for the next time, so a device that has not looked yet is woken only
    /// once. Not possible for regular files, which are always ready. A closed file disarms itself.
    ///
    /// # Errors
    /// The host's error.
    pub fn arm(&self, file: impl AsFd, events: EventFlags) -> io::Result<()> {
        self.reactor.arm(file.as_fd(), self.device, events)
    }

    /// Wakes the device as [`Waker::arm`], for a file that is read rarely: [`Waker::marks`] says
    /// that it must be read.
    ///
    /// # Errors
    /// The host's error.
    pub fn arm_marked(&self, file: impl AsFd, events: EventFlags) -> io::Result<()> {
        self.reactor.arm(file.as_fd(), MARK | self.device, events)
    }

    /// How often such files were ready, those of all devices.
    pub fn marks(&self) -> u32 {
        self.reactor.marks.load(Ordering::Acquire)
    }

    /// Disarms a file.
    pub fn disarm(&self, file: impl AsFd) {
        // Fails only if it was not armed.
        let _ = epoll::delete(&self.reactor.files, file);
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waker")
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

/// The files of all devices.
#[derive(Debug)]
pub struct Reactor {
    files: OwnedFd,
    /// Makes the thread return.
    stop: OwnedFd,
    /// Reports of marked files.
    marks: AtomicU32,
}

/// The number that stands for `stop`.
const STOP: u64 = u64::MAX;
/// Marks the number of a device whose file is counted.
const MARK: u64 = 1 << 63;

impl Reactor {
    /// Creates a reactor for a thread that calls [`run`](Reactor::run).
    ///
    /// # Errors
    /// The host's error.
    pub fn new() -> io::Result<Arc<Self>> {
        let files = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(
            &files,
            &stop,
            epoll::EventData::new_u64(STOP),
            EventFlags::IN,
        )?;
        Ok(Arc::new(Reactor {
            files,
            stop,
            marks: AtomicU32::new(0),
        }))
    }

    /// Makes [`run`](Reactor::run) return.
    pub fn stop(&self) {
        // Fails only when the counter is full: then it is readable already.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }

    /// A waker for the device with this number, which [`run`](Reactor::run) reports.
    pub fn waker(self: &Arc<Self>, device: u64, wake: Arc<dyn Wake>) -> Waker {
        Waker {
            wake,
            reactor: Arc::clone(self),
            device,
        }
    }

    /// Waits for files. Calls `ready` with the number of each file's device. Returns after
    /// [`stop`](Reactor::stop).
    ///
    /// # Errors
    /// The host's error.
    pub fn run(&self, mut ready: impl FnMut(u64)) -> io::Result<()> {
        let mut events = Vec::with_capacity(32);
        loop {
            match epoll::wait(&self.files, spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                match event.data.u64() {
                    STOP => return Ok(()),
                    number => {
                        if number & MARK != 0 {
                            self.marks.fetch_add(1, Ordering::Release);
                        }
                        ready(number & !MARK);
                    }
                }
            }
        }
    }

    fn arm(&self, file: BorrowedFd<'_>, device: u64, events: EventFlags) -> io::Result<()> {
        let data = epoll::EventData::new_u64(device);
        let events = events | EventFlags::ONESHOT;
        match epoll::modify(&self.files, file, data, events) {
            Err(rustix::io::Errno::NOENT) => Ok(epoll::add(&self.files, file, data, events)?),
            other => Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn marked_files_are_told_apart() {
        let reactor = Reactor::new().unwrap();
        let (here, mut there) = UnixStream::pair().unwrap();
        let waker = reactor.waker(7, Arc::new(Never));
        there.write_all(b"x").unwrap();
        waker.arm(&here, EventFlags::IN).unwrap();
        let mut seen = Vec::new();
        reactor
            .run(|device| {
                seen.push((device, waker.marks()));
                if seen.len() < 2 {
                    waker.arm_marked(&here, EventFlags::IN).unwrap();
                } else {
                    reactor.stop();
                }
            })
            .unwrap();
        assert_eq!(seen, [(7, 0), (7, 1)]);
    }

    struct Never;

    impl Wake for Never {
        fn wake(&self) {}
    }

    #[test]
    fn a_file_wakes_once_until_it_is_armed_again() {
        let reactor = Reactor::new().unwrap();
        let (here, mut there) = UnixStream::pair().unwrap();
        let (other, mut other_end) = UnixStream::pair().unwrap();
        let waker = reactor.waker(7, Arc::new(Never));
        let other_waker = reactor.waker(8, Arc::new(Never));
        waker.arm(&here, EventFlags::IN).unwrap();
        there.write_all(b"x").unwrap();
        let mut seen = Vec::new();
        reactor
            .run(|device| {
                seen.push(device);
                match seen.len() {
                    // 7 is not reported again, although its file is still readable.
                    1 => {
                        other_waker.arm(&other, EventFlags::IN).unwrap();
                        other_end.write_all(b"x").unwrap();
                    }
                    2 => waker.arm(&here, EventFlags::IN).unwrap(),
                    3 => {
                        waker.arm(&here, EventFlags::IN).unwrap();
                        waker.disarm(&here);
                        other_waker.arm(&other, EventFlags::IN).unwrap();
                    }
                    _ => reactor.stop(),
                }
            })
            .unwrap();
        assert_eq!(seen, [7, 8, 7, 8]);
    }
}
