// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Worker threads for requests that may have to wait for the host, so that none delays others.
//!
//! Each request that waits, runs or is done belongs to a chain that has not been returned to the
//! driver. So there are never more than the driver's queues have entries
//! ([`Driver::pop`](super::Driver::pop)).

use super::Waker;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Carries out a request and returns its result. The function that it gets says whether the result
/// is no longer needed: then the work may stop in the middle.
type Work<R, D> = dyn Fn(&R, &dyn Fn() -> bool) -> D + Send + Sync;

struct State<R, D> {
    waiting: VecDeque<Box<R>>,
    working: usize,
    idle: usize,
    done: Vec<D>,
    end: bool,
}

struct Shared<R, D> {
    state: Mutex<State<R, D>>,
    /// There is work, or the end.
    work_came: Condvar,
    /// A thread has finished a request.
    work_done: Condvar,
    work: Box<Work<R, D>>,
    /// The results of running requests are no longer needed.
    leave: AtomicBool,
    waker: Waker,
}

impl<R, D> Shared<R, D> {
    fn lock(&self) -> MutexGuard<'_, State<R, D>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The threads, for requests `R`. The thread that submits work creates them on demand, so they
/// inherit its policy. They end with this value.
pub struct Pool<R, D> {
    shared: Arc<Shared<R, D>>,
    name: &'static str,
    most: usize,
    threads: Vec<JoinHandle<()>>,
    /// The CPUs of the threads. The thread that creates them may be pinned to one.
    cpus: Option<CpuSet>,
}

impl<R: Send + 'static, D: Send + 'static> Pool<R, D> {
    /// A pool without threads, which creates at most `most`. `waker` is called when requests are
    /// done.
    pub fn new(name: &'static str, most: usize, waker: Waker, work: Box<Work<R, D>>) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            working: 0,
            idle: 0,
            done: Vec::new(),
            end: false,
        };
        Pool {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                work_came: Condvar::new(),
                work_done: Condvar::new(),
                work,
                leave: AtomicBool::new(false),
                waker,
            }),
            name,
            most,
            threads: Vec::new(),
            cpus: sched_getaffinity(None).ok(),
        }
    }

    /// Submits a request.
    ///
    /// # Errors
    /// The request, if there is no thread and none can be created.
    pub fn submit(&mut self, request: Box<R>) -> Result<(), Box<R>> {
        let more = {
            let state = self.shared.lock();
            state.idle <= state.waiting.len() && self.threads.len() < self.most
        };
        if more {
            let (shared, cpus) = (Arc::clone(&self.shared), self.cpus);
            let thread = std::thread::Builder::new()
                .name(self.name.to_string())
                .spawn(move || {
                    // Fails if these CPUs were taken away. The thread then shares its creator's.
                    let _ = cpus.map(|cpus| sched_setaffinity(None, &cpus));
                    run(&shared);
                });
            // Fails at a limit on threads; the existing ones then have more to do.
            self.threads.extend(thread);
        }
        if self.threads.is_empty() {
            return Err(request);
        }
        self.shared.lock().waiting.push_back(request);
        self.shared.work_came.notify_one();
        Ok(())
    }

    /// The results of finished requests.
    pub fn done(&self) -> Vec<D> {
        std::mem::take(&mut self.shared.lock().done)
    }

    /// Drops waiting requests, and waits for running ones.
    pub fn clear(&self) {
        let mut state = self.shared.lock();
        state.waiting.clear();
        self.shared.leave.store(true, Ordering::SeqCst);
        while state.working > 0 {
            state = wait(&self.shared.work_done, state);
        }
        self.shared.leave.store(false, Ordering::SeqCst);
        state.done.clear();
    }
}

impl<R, D> Drop for Pool<R, D> {
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            state.waiting.clear();
            state.end = true;
            self.shared.leave.store(true, Ordering::SeqCst);
        }
        self.shared.work_came.notify_all();
        let mut died = false;
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed its message.
            died |= thread.join().is_err();
        }
        // Tests must fail of it; a user's machine goes on.
        let unseen = died && !std::thread::panicking();
        debug_assert!(!unseen, "a worker has panicked");
    }
}

/// A running request, until this is dropped. It is also dropped when the request panics, or else
/// [`Pool::clear`] would wait forever.
struct Working<'a, R, D>(&'a Shared<R, D>);

impl<R, D> Drop for Working<'_, R, D> {
    fn drop(&mut self) {
        self.0.lock().working -= 1;
        self.0.work_done.notify_one();
    }
}

fn wait<'a, T>(condition: &Condvar, state: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condition
        .wait(state)
        .unwrap_or_else(PoisonError::into_inner)
}

fn run<R, D>(shared: &Shared<R, D>) {
    let mut state = shared.lock();
    while !state.end {
        let Some(request) = state.waiting.pop_front() else {
            state.idle += 1;
            state = wait(&shared.work_came, state);
            state.idle -= 1;
            continue;
        };
        state.working += 1;
        drop(state);
        let working = Working(shared);
        let done = (shared.work)(&request, &|| shared.leave.load(Ordering::SeqCst));
        drop(request);
        shared.lock().done.push(done);
        drop(working);
        shared.waker.wake();
        state = shared.lock();
    }
}

#[cfg(test)]
mod tests {
    use super::super::reactor::{Reactor, Wake};
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc::{Receiver, channel};
    use std::time::{Duration, Instant};

    struct Tell(std::sync::mpsc::Sender<()>);

    impl Wake for Tell {
        fn wake(&self) {
            let _ = self.0.send(());
        }
    }

    fn halves() -> (Pool<u32, u32>, Receiver<()>) {
        let (tell, told) = channel();
        let waker = Reactor::new().unwrap().waker(0, Arc::new(Tell(tell)));
        let half = |number: &u32, _: &dyn Fn() -> bool| {
            assert!(number.is_multiple_of(2), "odd");
            number / 2
        };
        (Pool::new("test", 2, waker, Box::new(half)), told)
    }

    /// Work that runs as long as its result is needed.
    #[test]
    fn work_that_is_not_needed_any_more_is_left() {
        let (tell, _told) = channel();
        let (begin, begun) = channel();
        let waker = Reactor::new().unwrap().waker(0, Arc::new(Tell(tell)));
        let work = move |_: &u32, stop: &dyn Fn() -> bool| {
            let _ = begin.send(());
            let deadline = Instant::now() + Duration::from_secs(20);
            while !stop() {
                assert!(Instant::now() < deadline, "nobody says that it may end");
                std::thread::yield_now();
            }
        };
        let mut pool = Pool::new("test", 2, waker, Box::new(work));
        for _ in 0..2 {
            pool.submit(Box::new(0)).unwrap();
            begun.recv().unwrap();
            let start = Instant::now();
            pool.clear();
            assert!(start.elapsed() < Duration::from_secs(10));
        }
        pool.submit(Box::new(0)).unwrap();
        begun.recv().unwrap();
        let start = Instant::now();
        drop(pool);
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn work_that_panics_is_not_waited_for() {
        let (mut pool, told) = halves();
        pool.submit(Box::new(3)).unwrap();
        pool.submit(Box::new(8)).unwrap();
        told.recv_timeout(Duration::from_secs(10)).unwrap();
        // Would never return.
        let state = pool.shared.lock();
        let (state, time) = pool
            .shared
            .work_done
            .wait_timeout_while(state, Duration::from_secs(10), |state| state.working > 0)
            .unwrap_or_else(PoisonError::into_inner);
        drop(state);
        assert!(!time.timed_out());
        assert_eq!(pool.done(), [4]);
        pool.clear();
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(pool)));
        assert_eq!(dropped.is_err(), cfg!(debug_assertions));
    }
}
