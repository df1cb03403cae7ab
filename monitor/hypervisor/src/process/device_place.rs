// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host CPU of a device's thread.
//!
//! If a vCPU waits while a device works for it, the device's thread should run on the vCPU's CPU:
//! each of the two wake-ups is then a switch of threads (1 us) and not the start of an idle CPU (30
//! us and more). If the vCPU works meanwhile, the thread should run elsewhere. So each interrupt
//! notes whether its vCPU waited, and a thread is pinned while three quarters did.

use super::core::Core;
use super::kick;
use paravane_wakeup::atomic::{AtomicU32, Ordering};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Interrupts from one decision to the next: a host call pays off over this many.
const WINDOW: u32 = 32;
/// Rounds of a pinned thread without a decision, after which it is released: a driver that has
/// suppressed interrupts does not wait for them.
const ROUNDS: u32 = 256;

/// The interrupts of a device since the last decision.
#[derive(Debug, Default)]
pub struct Interrupts {
    raised: AtomicU32,
    /// Those whose vCPU waited.
    waited: AtomicU32,
}

impl Interrupts {
    /// Counts an interrupt.
    pub fn count(&self, waited: bool) {
        self.raised.fetch_add(1, Ordering::Relaxed);
        self.waited.fetch_add(waited.into(), Ordering::Relaxed);
    }

    /// Whether the vCPUs waited, once there were enough interrupts to tell. Begins anew.
    fn decide(&self) -> Option<Waits> {
        let raised = self.raised.load(Ordering::Relaxed);
        if raised < WINDOW {
            return None;
        }
        self.raised.store(0, Ordering::Relaxed);
        let waited = self.waited.swap(0, Ordering::Relaxed);
        Some(if waited >= raised / 4 * 3 {
            Waits::Mostly
        } else if waited < raised / 2 {
            Waits::Rarely
        } else {
            Waits::Sometimes
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    Mostly,
    Sometimes,
    Rarely,
}

/// Where the calling thread runs.
#[derive(Debug)]
pub struct Place {
    /// The CPUs that it may use if it is not pinned; `None` if the host does not tell.
    allowed: Option<CpuSet>,
    pinned: Option<u32>,
    /// Rounds since the last decision.
    rounds: u32,
}

impl Place {
    /// Of a thread that is not pinned.
    pub fn new() -> Self {
        Place {
            allowed: sched_getaffinity(None).ok(),
            pinned: None,
            rounds: 0,
        }
    }

    /// Pins or releases the calling thread, the thread of device `number`, if it is time to.
    ///
    /// To be called once in each round of work. Costs two host calls if something changes, at most
    /// once in [`WINDOW`] interrupts or [`ROUNDS`] rounds.
    pub fn follow(&mut self, core: &Core, number: usize, interrupts: &Interrupts) {
        let Some(waits) = self.decide(interrupts) else {
            return;
        };
        let cpu = core.cpus.of(kick::notifier(core, number));
        let wanted = next(self.pinned, waits, cpu);
        if wanted != self.pinned {
            self.pin(wanted);
        }
    }

    fn decide(&mut self, interrupts: &Interrupts) -> Option<Waits> {
        let waits = interrupts.decide();
        self.rounds += 1;
        let long = self.rounds >= ROUNDS;
        if waits.is_some() || long {
            self.rounds = 0;
        }
        waits.or((long && self.pinned.is_some()).then_some(Waits::Rarely))
    }

    fn pin(&mut self, cpu: Option<u32>) {
        // Not the CPU that this thread was pinned to: the user has given it others, which stay.
        if let Some(now) = sched_getaffinity(None)
            .ok()
            .filter(|now| !self.is_ours(now))
        {
            (self.allowed, self.pinned) = (Some(now), None);
        }
        let Some(allowed) = self.allowed else {
            return;
        };
        let mut set = allowed;
        if let Some(cpu) = cpu {
            let cpu = usize::try_from(cpu).unwrap_or(usize::MAX);
            // vCPUs are allowed on CPUs that were taken away or given since this thread started.
            if cpu >= CpuSet::MAX_CPU || !allowed.is_set(cpu) {
                return;
            }
            set = CpuSet::new();
            set.set(cpu);
        }
        // Fails if the CPU has just been taken away. The thread then stays where it is.
        if sched_setaffinity(None, &set).is_ok() {
            self.pinned = cpu;
        }
    }
}

impl Place {
    /// Whether these CPUs are what the last call of [`Place::pin`] has set.
    fn is_ours(&self, now: &CpuSet) -> bool {
        let pinned = self.pinned.and_then(|cpu| usize::try_from(cpu).ok());
        pinned.is_some_and(|cpu| now.count() == 1 && cpu < CpuSet::MAX_CPU && now.is_set(cpu))
    }
}

/// The CPU to be pinned to, now that the vCPU on `cpu` waits like this.
fn next(pinned: Option<u32>, waits: Waits, cpu: Option<u32>) -> Option<u32> {
    match waits {
        Waits::Mostly => cpu.filter(|&cpu| cpu != u32::MAX),
        Waits::Sometimes => pinned,
        Waits::Rarely => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(waited: u32) -> Option<Waits> {
        let interrupts = Interrupts::default();
        for number in 0..WINDOW {
            assert_eq!(interrupts.decide(), None);
            interrupts.count(number < waited);
        }
        let result = interrupts.decide();
        assert_eq!(interrupts.decide(), None);
        result
    }

    #[test]
    fn a_window_of_interrupts_decides() {
        assert_eq!(window(0), Some(Waits::Rarely));
        assert_eq!(window(WINDOW / 2 - 1), Some(Waits::Rarely));
        assert_eq!(window(WINDOW / 2), Some(Waits::Sometimes));
        assert_eq!(window(WINDOW / 4 * 3 - 1), Some(Waits::Sometimes));
        assert_eq!(window(WINDOW / 4 * 3), Some(Waits::Mostly));
        assert_eq!(window(WINDOW), Some(Waits::Mostly));
    }

    #[test]
    fn a_thread_follows_a_vcpu_that_waits_and_leaves_one_that_works() {
        assert_eq!(next(None, Waits::Mostly, Some(3)), Some(3));
        assert_eq!(next(Some(1), Waits::Mostly, Some(3)), Some(3));
        assert_eq!(next(Some(1), Waits::Sometimes, Some(3)), Some(1));
        assert_eq!(next(None, Waits::Sometimes, Some(3)), None);
        assert_eq!(next(Some(3), Waits::Rarely, Some(3)), None);
        // A vCPU that may be anywhere.
        assert_eq!(next(Some(3), Waits::Mostly, Some(u32::MAX)), None);
        assert_eq!(next(Some(3), Waits::Mostly, None), None);
    }

    /// Interrupts that are suppressed decide nothing.
    #[test]
    fn a_pinned_thread_without_interrupts_is_released() {
        let (mut place, interrupts) = (Place::new(), Interrupts::default());
        for _ in 0..2 * ROUNDS {
            assert_eq!(place.decide(&interrupts), None);
        }
        place.pinned = Some(0);
        for _ in 1..ROUNDS {
            assert_eq!(place.decide(&interrupts), None);
        }
        assert_eq!(place.decide(&interrupts), Some(Waits::Rarely));
        (0..WINDOW).for_each(|_| interrupts.count(true));
        assert_eq!(place.decide(&interrupts), Some(Waits::Mostly));
        assert_eq!(place.rounds, 0);
    }

    /// As `taskset -a -p` does it.
    #[test]
    fn cpus_that_the_user_takes_away_stay_away() {
        let before = sched_getaffinity(None).unwrap();
        let cpus: Vec<_> = (0..CpuSet::MAX_CPU)
            .filter(|&cpu| before.is_set(cpu))
            .collect();
        let &[first, .., last] = &cpus[..] else {
            eprintln!("skipped: one CPU");
            return;
        };
        let mut place = Place::new();
        place.pin(u32::try_from(first).ok());
        let mut narrow = CpuSet::new();
        narrow.set(last);
        sched_setaffinity(None, &narrow).unwrap();
        place.pin(None);
        assert!(sched_getaffinity(None).unwrap() == narrow);
        place.pin(u32::try_from(first).ok());
        assert!(sched_getaffinity(None).unwrap() == narrow);
    }

    #[test]
    fn a_pinned_thread_is_released_to_all_its_cpus() {
        let before = sched_getaffinity(None).unwrap();
        let cpu = (0..CpuSet::MAX_CPU)
            .find(|&cpu| before.is_set(cpu))
            .unwrap();
        let mut place = Place::new();
        place.pin(u32::try_from(cpu).ok());
        let pinned = sched_getaffinity(None).unwrap();
        assert!(pinned.is_set(cpu) && pinned.count() == 1);
        // Not a CPU of this thread.
        place.pin(Some(u32::MAX - 1));
        assert_eq!(place.pinned, u32::try_from(cpu).ok());
        place.pin(None);
        assert!(sched_getaffinity(None).unwrap() == before);
    }
}
