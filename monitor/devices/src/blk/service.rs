// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where requests to a disk are carried out: at once on the device's own thread if they need not
//! wait, else by a few worker threads, so that they delay nothing else. If there is nothing else,
//! the device's thread waits ([`Lone`]).

use super::disk::{Disk, Failure};
use super::heuristics::Heuristics;
use super::lone::Lone;
use super::storage::Stop;
use crate::pool::Pool;
use crate::{Ending, Waker};
use std::fmt;
use std::mem;
use std::time::Instant;

/// The most requests that wait for the disk at a time.
const THREADS: usize = 4;
/// The largest read, in bytes, for which the device's thread waits, and the most that was written
/// before a flush for which it does: it notices no reset during that.
const LONE_BYTES: u64 = 1 << 20;
/// The largest write, in bytes, that goes to the host's disk before it is answered.
const EARLY_BYTES: u64 = 64 << 10;

/// What a request does to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It changes nothing.
    None,
    /// It writes its data.
    Write,
    /// It changes the disk in another way, which may take long.
    Change,
    /// It flushes what was written.
    Flush,
}

/// A request.
pub trait Job: Send + 'static {
    /// The result of a request that is done.
    type Done: Send + 'static;

    /// What it does if it succeeds.
    fn effect(&self) -> Effect;

    /// The length of its data, in bytes.
    fn bytes(&self) -> u64;

    /// Executes it. Fails with `Wait` only if `wait` is false. Long work stops when `stop` says so.
    ///
    /// # Errors
    /// See [`Failure`].
    fn execute(&self, disk: &Disk, wait: bool, stop: Stop<'_>) -> Result<(), Failure>;

    /// Starts to write its data, which it has written, to the host's disk.
    fn start_writeback(&self, disk: &Disk);

    /// It is done.
    fn finish(&self, result: Result<(), Failure>) -> Self::Done;
}

/// Carries out requests to a disk.
pub struct Service<J: Job> {
    disk: Disk,
    pool: Option<Pool<J, J::Done>>,
    /// `None`: workers wait for these requests, too.
    lone: Option<Lone>,
    /// The first small write after a flush goes to the host's disk before the next flush.
    early: bool,
    /// Bytes that were written since the last flush.
    unflushed: u64,
    /// The device's; `None`: it has no worker threads.
    waker: Option<Waker>,
    /// The CPU on which the device is slow.
    #[cfg(feature = "test-hooks")]
    slow_on: Option<usize>,
    /// The machine's end.
    ending: Ending,
}

impl<J: Job> fmt::Debug for Service<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.disk.fmt(f)
    }
}

impl<J: Job> Service<J> {
    /// Without worker threads.
    #[must_use]
    pub fn new(disk: Disk) -> Self {
        Service {
            disk,
            pool: None,
            lone: Some(Lone::default()),
            early: true,
            unflushed: 0,
            waker: None,
            #[cfg(feature = "test-hooks")]
            slow_on: None,
            ending: Ending::default(),
        }
    }

    /// Uses these heuristics, and no others.
    pub fn set_heuristics(&mut self, used: Heuristics) {
        self.lone = used.lone_reads.then(Lone::default);
        self.early = used.early_writes;
        self.disk.set_heuristics(used);
    }

    /// Takes a millisecond longer on the first CPU that this program may use.
    #[cfg(feature = "test-hooks")]
    pub fn be_slow_on_the_first_cpu(&mut self) {
        let all = rustix::thread::sched_getaffinity(None).ok();
        let first = |all: &rustix::thread::CpuSet| {
            (0..rustix::thread::CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu))
        };
        self.slow_on = all.as_ref().and_then(first);
    }

    /// The disk.
    #[must_use]
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Has worker threads from now on, which call the waker when requests are done.
    pub fn start(&mut self, waker: &Waker) {
        let disk = self.disk.clone();
        self.waker = Some(waker.clone());
        self.ending = waker.ending();
        let work = move |job: &J, stop: Stop<'_>| job.finish(job.execute(&disk, true, stop));
        self.pool = Some(Pool::new("disk", THREADS, waker.clone(), Box::new(work)));
    }

    /// Starts a request. Returns what is left of it if it is done already. `alone`: the driver has
    /// no other request.
    pub fn begin(&mut self, job: J, alone: bool) -> Option<J::Done> {
        let effect = job.effect();
        let written = match effect {
            Effect::Flush => mem::take(&mut self.unflushed),
            Effect::Change => {
                // It is not known how much that is.
                self.unflushed = u64::MAX;
                0
            }
            Effect::None | Effect::Write => 0,
        };
        let waits = self.pool.is_some();
        let slow = waits && matches!(effect, Effect::Flush | Effect::Change);
        if !slow {
            let result = self.execute(&job, !waits);
            if result != Err(Failure::Wait) {
                if effect == Effect::Write {
                    // At most once for each flush, which would write the same data a moment later.
                    let early = self.early && alone && self.unflushed == 0;
                    if early && result.is_ok() && job.bytes() <= EARLY_BYTES {
                        job.start_writeback(&self.disk);
                    }
                    self.unflushed = self.unflushed.saturating_add(job.bytes());
                }
                return Some(job.finish(result));
            }
        }
        let short = effect != Effect::Change && job.bytes().max(written) <= LONE_BYTES;
        if alone && short && self.lone.as_mut().is_some_and(Lone::here) {
            let start = Instant::now();
            let result = self.execute(&job, true);
            #[cfg(feature = "test-hooks")]
            if self
                .slow_on
                .is_some_and(|cpu| cpu == rustix::thread::sched_getcpu())
            {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            if let Some(waker) = &self.waker {
                waker.waited(start.elapsed());
            }
            return Some(job.finish(result));
        }
        let job = self.pool.as_mut()?.submit(Box::new(job)).err()?;
        Some(job.finish(self.execute(&job, true)))
    }

    /// A request that was begun as the driver's only one is done, or with a worker. `another`:
    /// another one arrived before that.
    pub fn alone_done(&mut self, another: bool) {
        if let Some(lone) = &mut self.lone {
            lone.done(another);
        }
    }

    /// The results of requests that workers have done.
    pub fn done(&self) -> Vec<J::Done> {
        self.pool.as_ref().map(Pool::done).unwrap_or_default()
    }

    /// Drops requests that wait, and waits for those that run: none is left.
    pub fn clear(&self) {
        if let Some(pool) = &self.pool {
            pool.clear();
        }
    }

    fn execute(&self, job: &J, wait: bool) -> Result<(), Failure> {
        job.execute(&self.disk, wait, &|| self.ending.begun())
    }
}
