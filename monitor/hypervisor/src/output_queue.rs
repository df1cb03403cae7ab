// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Carries a machine's output from its doorbell thread to its reader.
//!
//! The reader can poll the queue together with other files. Checking a plain channel periodically
//! would cost more than an idle guest does.

use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A bounded queue whose reading end can be polled.
#[derive(Debug)]
pub struct Outputs<T> {
    state: Mutex<State<T>>,
    room: Condvar,
    /// Readable while the queue has an entry, or had one a moment ago.
    bell: OwnedFd,
    most: usize,
}

#[derive(Debug)]
struct State<T> {
    queue: VecDeque<T>,
    closed: bool,
}

impl<T> Outputs<T> {
    /// A queue of at most `most` entries. A full queue makes the writer wait.
    pub fn new(most: usize) -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let state = Mutex::new(State {
            queue: VecDeque::new(),
            closed: false,
        });
        Ok(Outputs {
            state,
            room: Condvar::new(),
            bell,
            most,
        })
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry as soon as there is room. Drops it if the queue is closed.
    pub fn push(&self, item: T) {
        let mut state = self.state();
        while state.queue.len() >= self.most && !state.closed {
            state = self
                .room
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if !state.closed {
            state.queue.push_back(item);
            // Fails only when the counter is full: then it is readable already.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// Takes the next entry, if there is one.
    pub fn pop(&self) -> Option<T> {
        let mut state = self.state();
        let item = state.queue.pop_front();
        if state.queue.is_empty() {
            // Fails when the counter was 0.
            let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
        }
        self.room.notify_one();
        item
    }

    /// Closes the reading end.
    pub fn close(&self) {
        self.state().closed = true;
        self.room.notify_all();
    }

    /// Readable while the queue has an entry.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::sync::Arc;

    fn rings(outputs: &Outputs<u32>) -> bool {
        let mut files = [PollFd::from_borrowed_fd(outputs.bell(), PollFlags::IN)];
        poll(
            &mut files,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }),
        )
        .unwrap()
            == 1
    }

    #[test]
    fn it_rings_while_there_is_something() {
        let outputs = Outputs::new(2).unwrap();
        assert!(!rings(&outputs));
        outputs.push(1);
        outputs.push(2);
        assert!(rings(&outputs));
        assert_eq!(outputs.pop(), Some(1));
        assert!(rings(&outputs));
        assert_eq!(outputs.pop(), Some(2));
        assert!(!rings(&outputs));
        assert_eq!(outputs.pop(), None);
    }

    #[test]
    fn a_full_one_makes_the_writer_wait_until_it_is_read_or_closed() {
        let outputs = Arc::new(Outputs::new(1).unwrap());
        let writer = std::thread::spawn({
            let outputs = Arc::clone(&outputs);
            move || (0..3).for_each(|n| outputs.push(n))
        });
        while outputs.pop() != Some(0) {
            std::thread::yield_now();
        }
        outputs.close();
        writer.join().unwrap();
    }
}
