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

mod apart;
mod disk_cpu;
mod hop;

use super::core::Core;
use super::kick::{self, Was};
use apart::Trials;
use disk_cpu::{At, DiskCpu, HostWaits};
use hop::Hop;
use paravane_abi::process::area::VcpuState;
use paravane_devices::counters::Counters;
use paravane_wakeup::atomic::{AtomicBool, AtomicU32, Ordering};
use rustix::process::getpid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interrupts from one decision to the next: a host call pays off over this many.
const WINDOW: u32 = 32;
/// Rounds of a pinned thread without a decision, after which it is released: a driver that has
/// suppressed interrupts does not wait for them.
const ROUNDS: u32 = 256;
/// The number for a thread that looks for work: each look is a round.
const LOOKS: u32 = 4096;
/// The shortest time from one request to move a vCPU to the next trial: each request wakes the
/// watch, and a guest decides how fast its disk is.
const ASK_PERIOD: Duration = Duration::from_millis(10);

/// The interrupts of a device since the last decision.
#[derive(Debug, Default)]
pub struct Interrupts {
    raised: AtomicU32,
    /// Those whose vCPU waited, asleep and not.
    waited: AtomicU32,
    looked: AtomicU32,
    /// The device's thread looks for work instead of sleeping.
    looks: AtomicBool,
    /// For how long the device's thread has waited for the host. Only this thread locks it.
    host_waits: Mutex<HostWaits>,
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

    /// The device's thread has waited for the host, for one request.
    pub fn waited(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.host_waits
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(ns);
    }

    /// Forgets how long the thread has waited for the host, and returns the time in ns for one
    /// request, if there were enough.
    fn take_host_wait(&self) -> Option<u64> {
        self.host_waits
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Interrupts since the last decision.
    fn counts(&self) -> hop::Counts {
        let [all, waited, looked] =
            [&self.raised, &self.waited, &self.looked].map(|count| count.load(Ordering::Relaxed));
        hop::Counts {
            all,
            waited: waited + looked,
        }
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

/// Where the calling thread runs.
#[derive(Debug)]
pub struct Place {
    /// The CPUs that it may use if it is not pinned; `None` if the host does not report them.
    allowed: Option<CpuSet>,
    now: Cpus,
    /// What was last set on the host; `None` if the thread is not pinned.
    set: Option<CpuSet>,
    trials: Trials,
    /// The vCPU that waits for the device, and its CPU, at the last look.
    vcpu: usize,
    cpu: Option<u32>,
    /// Trials of other CPUs for that vCPU; `None`: there are none.
    disk_cpu: Option<DiskCpu>,
    /// When such a vCPU was last asked to move.
    asked: Option<Instant>,
    /// Rounds since the last decision.
    rounds: u32,
    hop: Hop,
}

impl Place {
    /// Of a thread that is not pinned. `disk_cpus`: a vCPU that waits for it may try other CPUs.
    pub fn new(disk_cpus: bool) -> Self {
        Place {
            allowed: sched_getaffinity(None).ok(),
            now: Cpus::All,
            set: None,
            trials: Trials::default(),
            vcpu: 0,
            cpu: None,
            disk_cpu: disk_cpus.then(DiskCpu::new),
            asked: None,
            rounds: 0,
            hop: Hop::new(),
        }
    }

    /// Pins or releases the calling thread, the thread of device `number`, if it is time to.
    ///
    /// To be called once in each round of work. At most once in [`WINDOW`] interrupts or [`ROUNDS`]
    /// rounds it costs host calls: three if something changes, and one while the thread looks. It
    /// costs three more whenever the vCPU has moved, or another vCPU waits ([`Hop`]).
    pub fn follow(
        &mut self,
        core: &Core,
        number: usize,
        interrupts: &Interrupts,
        counts: &Counters,
    ) {
        self.keep_up(core, interrupts);
        self.hop(core, number, interrupts);
        let Some(waits) = self.decide(interrupts) else {
            return;
        };
        self.hop.decided(interrupts.counts());
        let vcpu = kick::notifier(core, number);
        let cpu = core.cpus.of(vcpu);
        let apart =
            interrupts.looks.load(Ordering::Relaxed) && self.has_others(cpu, &used(core, vcpu));
        let wanted = self.trials.next(self.now, waits, cpu, apart);
        let stays = wanted == self.now && vcpu == self.vcpu && cpu == self.cpu;
        let host_wait = interrupts.take_host_wait().filter(|_| stays);
        if wanted != self.now {
            self.pin(wanted);
        }
        (self.vcpu, self.cpu) = (vcpu, cpu);
        if let (Waits::Asleep, Cpus::Only(cpu), Some(took)) = (waits, self.now, host_wait) {
            self.try_another(core, At { vcpu, cpu }, took, counts);
        }
    }

    /// Follows the vCPU at once if it was moved: a thread on another CPU would wake it up there.
    fn keep_up(&mut self, core: &Core, interrupts: &Interrupts) {
        let (Cpus::Only(_), Some(cpu)) = (self.now, self.cpu) else {
            return;
        };
        let now = core.cpus.of(self.vcpu);
        if now != Some(cpu) {
            self.cpu = now;
            if let Some(cpu) = now {
                self.pin(Cpus::Only(cpu));
            }
            interrupts.take_host_wait();
        }
    }

    /// Follows a program of the guest to another vCPU.
    fn hop(&mut self, core: &Core, number: usize, interrupts: &Interrupts) {
        let Cpus::Only(at) = self.now else {
            return;
        };
        let vcpu = kick::notifier(core, number);
        let Some(cpu) = core.cpus.of(vcpu) else {
            return;
        };
        if self.hop.look(interrupts.counts(), cpu != at) {
            self.pin(Cpus::Only(cpu));
            (self.vcpu, self.cpu) = (vcpu, Some(cpu));
            interrupts.take_host_wait();
        }
    }

    /// Asks for another CPU for the vCPU that waits, if it is time to try one, or to go back.
    fn try_another(&mut self, core: &Core, at: At, took: u64, counts: &Counters) {
        let Some(mut trials) = self.disk_cpu.take() else {
            return;
        };
        let early = self.asked.is_some_and(|asked| asked.elapsed() < ASK_PERIOD);
        if !(trials.rests() && early) {
            if let Some(cpu) = trials.next(at, took, || self.cpus_of_process()) {
                tracing::debug!(at.vcpu, at.cpu, cpu, took, "asks for another CPU");
                self.asked = Some(Instant::now());
                core.cpus.ask(at.vcpu, cpu, trials.goes_back());
                core.wakeups.wake_watch();
            }
            let [tried, gained] = trials.counts();
            counts.cpu_trials.store(tried, Ordering::Relaxed);
            counts.cpu_gains.store(gained, Ordering::Relaxed);
        }
        self.disk_cpu = Some(trials);
    }

    /// The CPUs that the thread may use, in ascending order.
    fn cpus_of_process(&self) -> Vec<u32> {
        let allowed = self.may_use();
        let is_set = |cpu: &usize| allowed.is_some_and(|all| all.is_set(*cpu));
        let all = (0..CpuSet::MAX_CPU).filter(is_set);
        all.filter_map(|cpu| u32::try_from(cpu).ok()).collect()
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

    /// Suppressed interrupts do not count.
    #[test]
    fn a_pinned_thread_without_interrupts_is_released() {
        let (mut place, interrupts) = (Place::new(false), Interrupts::default());
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
        let mut place = Place::new(false);
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
        let mut place = Place::new(false);
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
