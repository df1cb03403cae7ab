// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work of a device on the thread of the vCPU that notifies it: in the kicker's context.
//!
//! A notification that the vCPU's thread gets costs no wake-up if that thread does the work itself.
//! The vCPU runs no guest code during that, so it does so only for a device that says how rare its
//! notifications must be, while they are that rare and belong to no stream, while the device's own
//! thread sleeps, and only a little at once. The rest is that thread's.

use super::bus::{LEFT, Port};
use crate::device_work::Work;
use paravane_devices::Setting;
use paravane_devices::counters::{Counters, count};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use vmm_sys_util::eventfd::EventFd;

/// Notifications in a row that came soon, or began a stream, before they count as dense.
const DENSE: u32 = 3;
/// Notifications in a row that came late before dense ones count as rare again.
const RARE: u32 = 32;
/// A notification counts as rare at once if it comes later than the last one by this many times the
/// time that counts as soon, and by the time below.
const PAUSE: u32 = 64;
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// How often a device is notified, as far as that is known.
#[derive(Debug, Default)]
pub struct Rate {
    last: Option<Instant>,
    /// Notifications count as dense.
    dense: bool,
    /// Those in a row that speak against that.
    row: u32,
    /// The last one was a part of a stream.
    streamed: bool,
}

impl Rate {
    /// The device is notified. One that comes within this time after the last comes soon. Returns
    /// whether notifications are rare, as they are at first.
    pub fn notified(&mut self, now: Instant, within: Duration) -> bool {
        let last = self.last.replace(now);
        let gap = last.map(|last| now.saturating_duration_since(last));
        // A notification after a part of a stream is late only because the vCPU was busy with that
        // part.
        let streamed = std::mem::take(&mut self.streamed);
        let soon = streamed || gap.is_some_and(|gap| gap < within);
        let pause = within.saturating_mul(PAUSE).max(SHORTEST_PAUSE);
        let paused = gap.is_none_or(|gap| gap >= pause);
        if paused && !soon {
            (self.dense, self.row) = (false, 0);
        } else if soon == self.dense {
            self.row = 0;
        } else {
            self.row += 1;
            if self.row >= if soon { DENSE } else { RARE } {
                (self.dense, self.row) = (soon, 0);
            }
        }
        !self.dense
    }

    /// The last one was a part of a stream.
    pub fn streamed(&mut self) {
        self.streamed = true;
    }
}

/// What a device's thread shares with vCPUs.
#[derive(Debug)]
pub struct Kicks {
    port: Arc<Port>,
    /// One for each queue, by which the thread is notified.
    pub queues: Vec<EventFd>,
    /// The device's work, which one thread does at a time.
    work: Mutex<Work>,
    /// How often it is notified.
    rate: Mutex<Rate>,
    /// How long after one another its notifications come at least, to be rare; `None`: only its
    /// thread works.
    rare: Option<Setting>,
    /// The thread sleeps, or is about to.
    sleeps: AtomicBool,
    /// What a vCPU has left to the thread: as the result of [`Work::serve`].
    left: AtomicU32,
    counters: Arc<Counters>,
}

impl Kicks {
    /// Of a device with this port, and with notifications that are `rare` as it says.
    pub fn new(
        port: &Arc<Port>,
        queues: Vec<EventFd>,
        work: Work,
        rare: Option<Setting>,
        counters: &Arc<Counters>,
    ) -> Self {
        Kicks {
            port: Arc::clone(port),
            queues,
            work: Mutex::new(work),
            rate: Mutex::default(),
            rare,
            sleeps: AtomicBool::new(false),
            left: AtomicU32::new(0),
            counters: Arc::clone(counters),
        }
    }

    /// The device's work, once no other thread does it.
    pub fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what vCPUs have left.
    pub fn left(&self) -> u32 {
        self.left.swap(0, Ordering::SeqCst)
    }

    /// The device's thread sleeps, or does so no more.
    pub fn set_sleeps(&self, sleeps: bool) {
        self.sleeps.store(sleeps, Ordering::SeqCst);
    }

    /// A vCPU notifies a queue of the device. The caller is that vCPU's thread.
    pub fn kick(&self, queue: u32) {
        // The number of no queue has no effect.
        let Some(bell) = usize::try_from(queue).ok().and_then(|n| self.queues.get(n)) else {
            return;
        };
        if !self.try_to_work(1 << queue) {
            // Fails only if the counter is full: then the thread has not looked yet.
            let _ = bell.write(1);
        }
    }

    /// Does a little of the work for these notifications. False: it is the thread's.
    fn try_to_work(&self, queues: u32) -> bool {
        // Two vCPUs at once are not rare.
        let (Some(rare), Ok(mut rate)) = (&self.rare, self.rate.try_lock()) else {
            return false;
        };
        if !rate.notified(Instant::now(), rare.time()) || !self.sleeps.load(Ordering::SeqCst) {
            return false;
        }
        // The thread may have woken since. It waits for the lock then.
        let Ok(mut work) = self.work.try_lock() else {
            return false;
        };
        count(&self.counters.by_vcpu, queues.count_ones().into());
        let kicked = work.kicked(queues);
        drop(work);
        if kicked.stream {
            rate.streamed();
        }
        if kicked.left != 0 {
            self.left.fetch_or(kicked.left, Ordering::SeqCst);
            self.port.wake(LEFT);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_micros(10);

    /// Whether the last of `count` notifications with this gap is rare.
    fn after(rate: &mut Rate, now: &mut Instant, count: u32, gap: u64) -> bool {
        let mut rare = false;
        for _ in 0..count {
            *now += Duration::from_micros(gap);
            rare = rate.notified(*now, SOON);
        }
        rare
    }

    #[test]
    fn notifications_that_come_soon_again_and_again_are_dense() {
        let (mut rate, mut now) = (Rate::default(), Instant::now());
        assert!(rate.notified(now, SOON), "the first one");
        assert!(after(&mut rate, &mut now, 2, 5));
        assert!(!after(&mut rate, &mut now, 1, 5), "three in a row");
        assert!(!after(&mut rate, &mut now, RARE - 1, 20));
        assert!(after(&mut rate, &mut now, 1, 20), "late for long");
        // One that is late among them.
        for _ in 0..20 {
            assert!(after(&mut rate, &mut now, 2, 5));
            assert!(after(&mut rate, &mut now, 1, 20));
        }
        // After a pause nothing is known any more.
        assert!(!after(&mut rate, &mut now, 3, 5));
        assert!(!after(&mut rate, &mut now, 1, 999));
        assert!(after(&mut rate, &mut now, 1, 1000));
        assert!(after(&mut rate, &mut now, 2, 5));
    }

    #[test]
    fn a_stream_is_dense_however_late_its_notifications_come() {
        let (mut rate, mut now) = (Rate::default(), Instant::now());
        for number in 1..=DENSE {
            assert!(after(&mut rate, &mut now, 1, 100), "{number}");
            rate.streamed();
        }
        assert!(!after(&mut rate, &mut now, RARE, 100));
        assert!(after(&mut rate, &mut now, 1, 100));
    }

    #[test]
    fn without_a_time_all_are_rare() {
        let (mut rate, now) = (Rate::default(), Instant::now());
        assert!((0..1000).all(|_| rate.notified(now, Duration::ZERO)));
    }
}
