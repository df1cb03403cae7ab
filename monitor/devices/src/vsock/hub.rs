// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's end of a guest's sockets, which the rest of the monitor uses.

use crate::Waker;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most connections of the guest that wait for [`Listener::accept`]; further ones are refused.
const BACKLOG: usize = 128;

/// A connection that the host wants.
#[derive(Debug)]
pub(super) struct Request {
    pub port: u32,
    pub stream: UnixStream,
    pub answer: Sender<io::Result<()>>,
}

#[derive(Debug, Default)]
struct State {
    waker: Option<Waker>,
    requests: VecDeque<Request>,
    listeners: BTreeMap<u32, Arc<Queue>>,
}

#[derive(Debug)]
struct Queue {
    waiting: Mutex<VecDeque<UnixStream>>,
    /// Counts them; readable while there is one.
    bell: OwnedFd,
}

/// Sockets between the monitor and a guest. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Hub {
    state: Arc<Mutex<State>>,
}

impl Hub {
    /// Connects to a port on which a program in the guest listens.
    ///
    /// # Errors
    /// `ConnectionRefused` if no program listens; `TimedOut` if the guest does not answer, as
    /// before its driver is ready.
    pub fn connect(&self, port: u32, timeout: Duration) -> io::Result<UnixStream> {
        let (here, there) = UnixStream::pair()?;
        let (answer, answered) = channel();
        let waker = {
            let mut state = self.lock();
            state.requests.push_back(Request {
                port,
                stream: there,
                answer,
            });
            state.waker.clone()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        match answered.recv_timeout(timeout) {
            Ok(result) => result.map(|()| here),
            Err(RecvTimeoutError::Timeout) => Err(io::ErrorKind::TimedOut.into()),
            // The device has ended, and the guest with it.
            Err(RecvTimeoutError::Disconnected) => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    /// Accepts connections that programs in the guest make to this port of the host (CID 2), until
    /// the listener is dropped.
    ///
    /// # Errors
    /// `AddrInUse` if there is a listener already.
    pub fn listen(&self, port: u32) -> io::Result<Listener> {
        let queue = Arc::new(Queue {
            waiting: Mutex::default(),
            bell: eventfd(
                0,
                EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE,
            )?,
        });
        let mut state = self.lock();
        if state.listeners.contains_key(&port) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        state.listeners.insert(port, Arc::clone(&queue));
        Ok(Listener {
            hub: self.clone(),
            port,
            queue,
        })
    }

    /// Sets how the device is woken.
    pub(super) fn set_waker(&self, waker: Waker) {
        self.lock().waker = Some(waker);
    }

    /// The next connection that the host wants.
    pub(super) fn next_request(&self) -> Option<Request> {
        self.lock().requests.pop_front()
    }

    /// Offers a connection of the guest to the listener. Returns the device's end; `None` if there
    /// is no listener.
    pub(super) fn offer(&self, port: u32) -> Option<UnixStream> {
        let queue = Arc::clone(self.lock().listeners.get(&port)?);
        let mut waiting = queue.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= BACKLOG {
            return None;
        }
        // Fails when there are no more descriptors: refused, as by any other host.
        let (here, there) = UnixStream::pair().ok()?;
        waiting.push_back(there);
        rustix::io::write(&queue.bell, &1u64.to_ne_bytes()).ok()?;
        Some(here)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Accepts the guest's connections to a port. Readable, for `poll`, while one waits.
#[derive(Debug)]
pub struct Listener {
    hub: Hub,
    port: u32,
    queue: Arc<Queue>,
}

impl Listener {
    /// The next connection. Waits for it until `until`, or without limit. Leaves out connections
    /// that the guest has given up: a program whose connect(2) a signal interrupts has not heard
    /// that the host accepted, and connects again.
    ///
    /// # Errors
    /// `TimedOut` if none has come by then.
    pub fn accept(&self, until: Option<Instant>) -> io::Result<UnixStream> {
        loop {
            let mut count = [0u8; 8];
            if rustix::io::read(&self.queue.bell, &mut count).is_ok() {
                let mut waiting = self
                    .queue
                    .waiting
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                match waiting.pop_front() {
                    // The others have rung, too.
                    Some(stream) if is_over(&stream) => continue,
                    Some(stream) => return Ok(stream),
                    None => {}
                }
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            // The loop checks everything again, whatever ended the wait.
            let _ = poll(
                &mut [PollFd::new(&self.queue.bell, PollFlags::IN)],
                timeout.as_ref(),
            );
        }
    }
}

/// Whether the guest will send no more.
fn is_over(stream: &UnixStream) -> bool {
    let over = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let mut file = [PollFd::new(stream, PollFlags::RDHUP)];
    poll(&mut file, Some(&Timespec::default())).is_ok_and(|count| count > 0)
        && file[0].revents().intersects(over)
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.bell.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.hub.lock().listeners.remove(&self.port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_listener_gets_what_is_offered() {
        let hub = Hub::default();
        assert!(hub.offer(7).is_none());
        let listener = hub.listen(7).unwrap();
        assert_eq!(hub.listen(7).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(
            listener.accept(Some(Instant::now())).unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        let mut device = hub.offer(7).unwrap();
        device.write_all(b"x").unwrap();
        let mut byte = [0];
        listener
            .accept(None)
            .unwrap()
            .read_exact(&mut byte)
            .unwrap();
        assert_eq!(byte, *b"x");
        for _ in 0..BACKLOG {
            assert!(hub.offer(7).is_some());
        }
        assert!(hub.offer(7).is_none());
        drop(listener);
        assert!(hub.offer(7).is_none());
        assert!(hub.listen(7).is_ok());
    }

    #[test]
    fn what_the_guest_has_given_up_is_left_out() {
        let hub = Hub::default();
        let listener = hub.listen(7).unwrap();
        drop(hub.offer(7).unwrap());
        assert_eq!(
            listener.accept(Some(Instant::now())).unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        let mut said_and_left = hub.offer(7).unwrap();
        said_and_left.write_all(b"x").unwrap();
        drop(said_and_left);
        let mut device = hub.offer(7).unwrap();
        device.write_all(b"y").unwrap();
        let mut byte = [0];
        let mut stream = listener.accept(Some(Instant::now())).unwrap();
        stream.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"y");
    }

    #[test]
    fn a_guest_that_does_not_answer_is_not_waited_for() {
        let hub = Hub::default();
        let error = hub.connect(1, Duration::from_millis(5)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(hub.next_request().unwrap().port, 1);
    }
}
