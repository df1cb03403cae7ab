// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host CPU of a device's thread.
//!
//! If a vCPU waits while a device works for it, the device's thread should run on the vCPU's CPU:
//! each of the two wake-ups is then a switch of threads (1 us) and not the start of an idle CPU (30
//! us and more). If the vCPU works at that time, the thread should run elsewhere. So each interrupt
//! notes whether its vCPU waited, and a thread is pinned while three quarters did.
//!
//! A thread that looks for work instead of sleeping, and a vCPU that looks for its interrupt, need
//! no wake-ups at all, but a CPU each. So such a thread is kept from the vCPU's CPU as long as the
//! vCPU finds three quarters of the interrupts by itself. Only a trial shows whether it does.

use super::core::Core;
use super::kick::{self, Was};
use paravane_abi::process::area::VcpuState;
use paravane_wakeup::atomic::{AtomicBool, AtomicU32, Ordering};
use rustix::process::getpid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Interrupts from one decision to the next: a host call pays off over this many.
const WINDOW: u32 = 32;
/// Rounds of a pinned thread without a decision, after which it is released: a driver that has
/// suppressed interrupts does not wait for them.
const ROUNDS: u32 = 256;
/// The number for a thread that looks for work: each look is a round.
const LOOKS: u32 = 4096;
/// Decisions of a trial apart from the vCPU's CPU: one to begin with, and a chance for some that
/// others have disturbed.
const TRIAL: u32 = 4;
/// Decisions without a trial after one that failed, at first and at most.
const PAUSE: u32 = 16;
const PAUSE_MOST: u32 = 4096;

/// The interrupts of a device since the last decision.
#[derive(Debug, Default)]
pub struct Interrupts {
    raised: AtomicU32,
    /// Those whose vCPU waited, asleep and not.
    waited: AtomicU32,
    looked: AtomicU32,
    /// The device's thread looks for work instead of sleeping.
    looks: AtomicBool,
}

impl Interrupts {
    /// Counts an interrupt.
    pub fn count(&self, was: Was) {
        self.raised.fetch_add(1, Ordering::Relaxed);
        match was {
            Was::Running => {}
            Was::Asleep => _ = self.waited.fetch_add(1, Ordering::Relaxed),
            Was::Looking => _ = self.looked.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The device's thread looks for work instead of sleeping, or does so no more.
    pub fn looks(&self, on: bool) {
        self.looks.store(on, Ordering::Relaxed);
    }

    /// Whether the vCPUs waited, once there were enough interrupts to decide. Resets the counts.
    fn decide(&self) -> Option<Waits> {
        let raised = self.raised.load(Ordering::Relaxed);
        if raised < WINDOW {
            return None;
        }
        self.raised.store(0, Ordering::Relaxed);
        let waited = self.waited.swap(0, Ordering::Relaxed);
        let looked = self.looked.swap(0, Ordering::Relaxed);
        let mostly = raised / 4 * 3;
        Some(if looked >= mostly {
            Waits::Looking
        } else if waited + looked >= mostly {
            Waits::Asleep
        } else if waited + looked < raised / 2 {
            Waits::Rarely
        } else {
            Waits::Sometimes
        })
    }
}

/// How the vCPU waits for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// Mostly, and mostly without a sleep.
    Looking,
    /// Mostly, and often asleep.
    Asleep,
    Sometimes,
    Rarely,
}

/// The CPUs of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cpus {
    All,
    Only(u32),
    AllBut(u32),
}

/// Trials apart from the vCPU's CPU.
#[derive(Clone, Copy, Debug, Default)]
struct Trials {
    /// Decisions in a row that found the vCPU asleep although the thread was apart.
    failed: u32,
    /// Decisions until the next trial, and what that becomes when it fails.
    pause: u32,
    next: u32,
}

impl Trials {
    /// Whether it is time for one.
    fn take(&mut self) -> bool {
        let due = self.pause == 0;
        self.pause = self.pause.saturating_sub(1);
        due
    }

    /// A decision of a trial found the vCPU asleep. Whether the trial goes on.
    fn go_on(&mut self) -> bool {
        self.failed += 1;
        if self.failed < TRIAL {
            return true;
        }
        self.failed = 0;
        self.pause = self.next.clamp(PAUSE, PAUSE_MOST);
        self.next = self.pause * 2;
        false
    }

    /// The CPUs to use, now that the vCPU on `cpu` waits like this. `apart`: the thread looks for
    /// work, and has other CPUs, of which no vCPU uses one at least.
    fn next(&mut self, now: Cpus, waits: Waits, cpu: Option<u32>, apart: bool) -> Cpus {
        let Some(cpu) = cpu.filter(|&cpu| cpu != u32::MAX) else {
            return match waits {
                Waits::Sometimes => now,
                _ => Cpus::All,
            };
        };
        let away = Cpus::AllBut(cpu);
        match waits {
            Waits::Looking if apart => {
                (self.failed, self.next) = (0, self.next / 2);
                away
            }
            // The host knows best what is least in the way.
            Waits::Looking => Cpus::All,
            Waits::Asleep if now == away && apart && self.go_on() => away,
            Waits::Asleep if now != away && apart && self.take() => away,
            Waits::Asleep => Cpus::Only(cpu),
            Waits::Sometimes => {
                self.failed = 0;
                now
            }
            // Without a trial it stays where the host put it, which may be the vCPU's CPU.
            Waits::Rarely if apart && (now == away || self.take()) => {
                self.failed = 0;
                away
            }
            Waits::Rarely => Cpus::All,
        }
    }
}

/// Where the calling thread runs.
#[derive(Debug)]
pub struct Place {
    /// The CPUs that it may use if it is not pinned; `None` if the host does not report them.
    allowed: Option<CpuSet>,
    now: Cpus,
    /// What was last set on the host; `None` if the thread is not pinned.
    set: Option<CpuSet>,
    trials: Trials,
    /// Rounds since the last decision.
    rounds: u32,
}

impl Place {
    /// Of a thread that is not pinned.
    pub fn new() -> Self {
        Place {
            allowed: sched_getaffinity(None).ok(),
            now: Cpus::All,
            set: None,
            trials: Trials::default(),
            rounds: 0,
        }
    }

    /// Pins or releases the calling thread, the thread of device `number`, if it is time to.
    ///
    /// To be called once in each round of work. At most once in [`WINDOW`] interrupts or [`ROUNDS`]
    /// rounds it costs host calls: three if something changes, and one while the thread looks.
    pub fn follow(&mut self, core: &Core, number: usize, interrupts: &Interrupts) {
        let Some(waits) = self.decide(interrupts) else {
            return;
        };
        let vcpu = kick::notifier(core, number);
        let cpu = core.cpus.of(vcpu);
        let apart =
            interrupts.looks.load(Ordering::Relaxed) && self.has_others(cpu, &used(core, vcpu));
        let wanted = self.trials.next(self.now, waits, cpu, apart);
        if wanted != self.now {
            self.pin(wanted);
        }
    }

    fn decide(&mut self, interrupts: &Interrupts) -> Option<Waits> {
        let waits = interrupts.decide();
        self.rounds += 1;
        let looks = interrupts.looks.load(Ordering::Relaxed);
        let long = self.rounds >= if looks { LOOKS } else { ROUNDS };
        if waits.is_some() || long {
            self.rounds = 0;
        }
        waits.or((long && self.now != Cpus::All).then_some(Waits::Rarely))
    }

    /// The CPUs that the thread may use. The user may have taken some away from the whole process
    /// while this thread was pinned. The process's first thread is never pinned, and shows that.
    fn may_use(&self) -> Option<CpuSet> {
        let (mut allowed, leader) = (self.allowed?, getpid());
        let process = sched_getaffinity(Some(leader)).unwrap_or(allowed);
        for cpu in (0..CpuSet::MAX_CPU).filter(|&cpu| !process.is_set(cpu)) {
            allowed.unset(cpu);
        }
        Some(allowed)
    }

    /// Whether the thread may use another CPU than this one and those that are `used`.
    fn has_others(&self, cpu: Option<u32>, used: &[u32]) -> bool {
        let Some((mut free, cpu)) = self.may_use().zip(cpu.and_then(number)) else {
            return false;
        };
        free.unset(cpu);
        for cpu in used.iter().copied().filter_map(number) {
            free.unset(cpu);
        }
        free.count() > 0
    }

    fn pin(&mut self, wanted: Cpus) {
        // Not what this thread was pinned to: the user has given it other CPUs, which stay.
        if let Some(now) = sched_getaffinity(None)
            .ok()
            .filter(|now| self.set != Some(*now))
        {
            (self.allowed, self.now, self.set) = (Some(now), Cpus::All, None);
        }
        let Some(set) = self.cpus(wanted) else {
            return;
        };
        // Fails if the CPU has just been taken away. The thread then stays where it is.
        if sched_setaffinity(None, &set).is_ok() {
            self.now = wanted;
            self.set = (wanted != Cpus::All).then_some(set);
        }
    }

    /// The CPUs of the host; `None` if the thread may not use them.
    fn cpus(&self, cpus: Cpus) -> Option<CpuSet> {
        let allowed = self.may_use()?;
        let set = match cpus {
            Cpus::All => allowed,
            // vCPUs are allowed on CPUs that were taken away or given since this thread started.
            Cpus::Only(cpu) => {
                let cpu = number(cpu).filter(|&cpu| allowed.is_set(cpu))?;
                let mut set = CpuSet::new();
                set.set(cpu);
                set
            }
            Cpus::AllBut(cpu) => {
                let mut set = allowed;
                set.unset(number(cpu)?);
                set
            }
        };
        (set.count() > 0).then_some(set)
    }
}

/// The CPUs of the other vCPUs that run.
fn used(core: &Core, vcpu: usize) -> Vec<u32> {
    let runs = |other: usize| {
        let state = &core.shared.vcpu(other).state;
        other != vcpu && state.is(VcpuState::Running, Ordering::SeqCst)
    };
    let cpus = core.cpus.all().into_iter().enumerate();
    cpus.filter(|&(other, _)| runs(other))
        .map(|(_, cpu)| cpu)
        .collect()
}

/// A CPU as an index of a set.
fn number(cpu: u32) -> Option<usize> {
    let cpu = usize::try_from(cpu).ok();
    cpu.filter(|&cpu| cpu < CpuSet::MAX_CPU)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(asleep: u32, looking: u32) -> Option<Waits> {
        let interrupts = Interrupts::default();
        for number in 0..WINDOW {
            assert_eq!(interrupts.decide(), None);
            interrupts.count(if number < asleep {
                Was::Asleep
            } else if number < asleep + looking {
                Was::Looking
            } else {
                Was::Running
            });
        }
        let result = interrupts.decide();
        assert_eq!(interrupts.decide(), None);
        result
    }

    #[test]
    fn a_window_of_interrupts_decides() {
        let (half, most) = (WINDOW / 2, WINDOW / 4 * 3);
        for (asleep, looking, expected) in [
            (0, 0, Waits::Rarely),
            (half - 1, 0, Waits::Rarely),
            (half, 0, Waits::Sometimes),
            (most - 1, 0, Waits::Sometimes),
            (most, 0, Waits::Asleep),
            (WINDOW, 0, Waits::Asleep),
            (0, half - 1, Waits::Rarely),
            (0, most - 1, Waits::Sometimes),
            (1, most - 1, Waits::Asleep),
            (0, most, Waits::Looking),
            (WINDOW - most, most, Waits::Looking),
        ] {
            assert_eq!(window(asleep, looking), Some(expected));
        }
    }

    /// Without trials.
    fn next(now: Cpus, waits: Waits, cpu: Option<u32>) -> Cpus {
        Trials::default().next(now, waits, cpu, false)
    }

    #[test]
    fn a_thread_follows_a_vcpu_that_waits_and_leaves_one_that_works() {
        let (one, three) = (Cpus::Only(1), Cpus::Only(3));
        assert_eq!(next(Cpus::All, Waits::Asleep, Some(3)), three);
        assert_eq!(next(one, Waits::Asleep, Some(3)), three);
        assert_eq!(next(one, Waits::Sometimes, Some(3)), one);
        assert_eq!(next(Cpus::All, Waits::Sometimes, Some(3)), Cpus::All);
        assert_eq!(next(three, Waits::Rarely, Some(3)), Cpus::All);
        // A vCPU that may be anywhere.
        assert_eq!(next(three, Waits::Asleep, Some(u32::MAX)), Cpus::All);
        assert_eq!(next(three, Waits::Looking, None), Cpus::All);
    }

    #[test]
    fn a_thread_that_looks_leaves_a_vcpu_that_looks_alone() {
        let mut trials = Trials::default();
        let apart = trials.next(Cpus::Only(3), Waits::Asleep, Some(3), true);
        assert_eq!(apart, Cpus::AllBut(3));
        for _ in 0..100 {
            let next = trials.next(apart, Waits::Looking, Some(3), true);
            assert_eq!(next, apart);
        }
        // One that works is left alone, too.
        for (waits, looks, expected) in [
            (Waits::Rarely, true, apart),
            (Waits::Sometimes, true, apart),
            (Waits::Asleep, true, apart),
            (Waits::Rarely, false, Cpus::All),
            (Waits::Asleep, false, Cpus::Only(3)),
            (Waits::Looking, false, Cpus::All),
        ] {
            assert_eq!(trials.next(apart, waits, Some(3), looks), expected);
        }
    }

    /// The vCPU never looks, as with `--without halt-polls`.
    #[test]
    fn trials_that_fail_become_rare() {
        let (mut trials, mut now, mut apart) = (Trials::default(), Cpus::All, 0);
        let all = 100_000;
        for _ in 0..all {
            now = trials.next(now, Waits::Asleep, Some(3), true);
            apart += u32::from(now == Cpus::AllBut(3));
        }
        assert!(apart > 12 && apart < all / 500, "{apart} of {all}");
    }

    /// Suppressed interrupts do not count.
    #[test]
    fn a_pinned_thread_without_interrupts_is_released() {
        let (mut place, interrupts) = (Place::new(), Interrupts::default());
        for _ in 0..2 * ROUNDS {
            assert_eq!(place.decide(&interrupts), None);
        }
        place.now = Cpus::Only(0);
        for _ in 1..ROUNDS {
            assert_eq!(place.decide(&interrupts), None);
        }
        assert_eq!(place.decide(&interrupts), Some(Waits::Rarely));
        (0..WINDOW).for_each(|_| interrupts.count(Was::Asleep));
        assert_eq!(place.decide(&interrupts), Some(Waits::Asleep));
        assert_eq!(place.rounds, 0);
    }

    /// `taskset -a -p` takes CPUs away in this way.
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
        let only = |cpu: usize| Cpus::Only(u32::try_from(cpu).unwrap());
        place.pin(only(first));
        let mut narrow = CpuSet::new();
        narrow.set(last);
        sched_setaffinity(None, &narrow).unwrap();
        let but = |cpu: usize| Cpus::AllBut(u32::try_from(cpu).unwrap());
        for cpus in [Cpus::All, only(first), but(first), but(last)] {
            place.pin(cpus);
            assert!(sched_getaffinity(None).unwrap() == narrow, "{cpus:?}");
        }
    }

    #[test]
    fn a_pinned_thread_is_released_to_all_its_cpus() {
        let before = sched_getaffinity(None).unwrap();
        let cpu = (0..CpuSet::MAX_CPU)
            .find(|&cpu| before.is_set(cpu))
            .unwrap();
        let count = before.count();
        let mut place = Place::new();
        let cpu = u32::try_from(cpu).unwrap();
        for (cpus, expected) in [
            (Cpus::Only(cpu), 1),
            // Not a CPU of this thread.
            (Cpus::Only(u32::MAX - 1), 1),
            (Cpus::AllBut(cpu), (count - 1).max(1)),
            (Cpus::Only(cpu), 1),
        ] {
            place.pin(cpus);
            assert_eq!(sched_getaffinity(None).unwrap().count(), expected);
        }
        assert_eq!(place.has_others(Some(cpu), &[]), count > 1);
        let all: Vec<u32> = (0..CpuSet::MAX_CPU)
            .filter(|&cpu| before.is_set(cpu))
            .map(|cpu| u32::try_from(cpu).unwrap())
            .collect();
        assert!(!place.has_others(Some(cpu), &all), "vCPUs use them");
        place.pin(Cpus::All);
        assert!(sched_getaffinity(None).unwrap() == before);
    }
}
