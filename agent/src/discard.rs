// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Output of processes that outlive their session.
//!
//! A command may leave processes in the background that have its output open. When the session
//! ends, no program takes this output any more. It is read and discarded, as by container engines.
//! Otherwise the processes would get SIGPIPE, or would wait for a reader.

use crate::connection::{PIECE, Read, read};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Builder;

/// Events that are taken at once.
const EVENTS: usize = 64;

/// Nonblocking pipes that are read until their writers have closed them.
struct Discard {
    epoll: OwnedFd,
    /// By the number of the descriptor.
    pipes: Mutex<HashMap<u64, OwnedFd>>,
}

/// None if it could not be started.
static DISCARD: OnceLock<Option<Arc<Discard>>> = OnceLock::new();

/// Discards what is written to this pipe, until all of its writers have closed it. If memory,
/// threads or descriptors are short, the pipe is closed.
pub fn until_its_end(pipe: OwnedFd) {
    if let Some(discard) = DISCARD.get_or_init(|| Discard::start().ok()) {
        let _ = discard.add(pipe);
    }
}

impl Discard {
    fn start() -> io::Result<Arc<Self>> {
        let discard = Arc::new(Discard {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            pipes: Mutex::default(),
        });
        let work = Arc::clone(&discard);
        let thread = Builder::new().name("discard".to_string());
        thread.spawn(move || work.work())?;
        Ok(discard)
    }

    fn pipes(&self) -> MutexGuard<'_, HashMap<u64, OwnedFd>> {
        self.pipes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, pipe: OwnedFd) -> io::Result<()> {
        let number = u64::try_from(pipe.as_raw_fd()).map_err(io::Error::other)?;
        // The event may come before the call returns.
        let mut pipes = self.pipes();
        epoll::add(
            &self.epoll,
            &pipe,
            EventData::new_u64(number),
            EventFlags::IN,
        )?;
        pipes.insert(number, pipe);
        Ok(())
    }

    fn work(&self) {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                // Not possible: the descriptor is valid.
                Err(_) => return,
            }
            for event in events.drain(..) {
                self.read(event.data.u64());
            }
        }
    }

    /// Reads one piece, so that no pipe delays the others.
    fn read(&self, number: u64) {
        let mut piece = [0; PIECE];
        let mut pipes = self.pipes();
        let ended = match pipes.get(&number).map(|pipe| read(pipe, &mut piece)) {
            Some(Ok(Read::Some(_) | Read::Nothing)) | None => false,
            Some(Ok(Read::End) | Err(_)) => true,
        };
        if ended {
            // The close of the descriptor also removes it from the set.
            pipes.remove(&number);
        }
    }
}
