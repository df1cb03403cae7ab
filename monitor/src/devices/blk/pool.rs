// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads for requests that have to wait for a disk.

use super::request::Request;
use crate::devices::Waker;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Requests that may wait for the disk at a time.
const THREADS: usize = 4;

/// Carries out a request and says how many bytes were written to its chain.
type Work = dyn Fn(&Request) -> u32 + Send + Sync;

#[derive(Default)]
struct State {
    waiting: VecDeque<Box<Request>>,
    working: usize,
    idle: usize,
    done: Vec<(u16, u32)>,
    end: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    work: Box<Work>,
    waker: Waker,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

/// The threads. They come into being when there is work, and go with this value.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// None yet. `waker` is called when requests are done.
    pub fn new(waker: Waker, work: Box<Work>) -> Self {
        Pool {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                changed: Condvar::new(),
                work,
                waker,
            }),
            threads: Vec::new(),
        }
    }

    /// Gives a request to the threads; back if there is no thread and none can be made.
    pub fn submit(&mut self, request: Box<Request>) -> Result<(), Box<Request>> {
        let more = {
            let state = self.shared.lock();
            state.idle <= state.waiting.len() && self.threads.len() < THREADS
        };
        if more {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new()
                .name("disk".to_string())
                .spawn(move || run(&shared));
            // Fails at a limit on threads; those that are there have more to do then.
            self.threads.extend(thread);
        }
        if self.threads.is_empty() {
            return Err(request);
        }
        self.shared.lock().waiting.push_back(request);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// What is done: chains, and the bytes written to each.
    pub fn done(&self) -> Vec<(u16, u32)> {
        std::mem::take(&mut self.shared.lock().done)
    }

    /// Forgets what waits, and waits for what is being done.
    pub fn clear(&self) {
        let mut state = self.shared.lock();
        state.waiting.clear();
        while state.working > 0 {
            state = self.shared.wait(state);
        }
        state.done.clear();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            state.waiting.clear();
            state.end = true;
        }
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared) {
    let mut state = shared.lock();
    while !state.end {
        let Some(request) = state.waiting.pop_front() else {
            state.idle += 1;
            state = shared.wait(state);
            state.idle -= 1;
            continue;
        };
        state.working += 1;
        drop(state);
        let written = (shared.work)(&request);
        state = shared.lock();
        state.working -= 1;
        state.done.push((request.head, written));
        shared.changed.notify_all();
        shared.waker.wake();
    }
}
