// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that watches the vCPUs' alarms.
//!
//! An alarm belongs to a vCPU and not to the process in which the vCPU runs, so the host's timer is
//! here. The layer writes a deadline, and wakes this thread only if the thread would sleep past it.

use super::clock_asked::Passed;
use super::clock_news::WALL;
use super::core::Core;
use super::{kick, sys};
use paravane_abi::process::area::{self, VcpuState};
use paravane_wakeup::sleep_until;
use std::sync::atomic::Ordering;

/// `deadline_ns`, `alarm_next_ns`: no deadline.
const NEVER: u64 = u64::MAX;
/// A vCPU that does not respond to its alarm is kicked again after this time in ns, which doubles
/// each time up to the limit.
const FIRST_RETRY: u64 = 1_000_000;
const LAST_RETRY: u64 = 128_000_000;

/// An alarm for which the vCPU was kicked.
#[derive(Clone, Copy, Debug)]
struct Told {
    deadline: u64,
    again_at: u64,
    pause: u64,
}

/// Runs the thread until the machine is stopped.
pub fn run(core: &Core) {
    let word = &core.shared.header().alarm_word;
    let next_field = &core.shared.header().alarm_next_ns;
    let mut alarms = Alarms {
        told: vec![None; core.vcpus],
    };
    let mut asked = Passed::default();
    while !core.stopping() {
        // While awake, the thread needs no wake-up.
        next_field.store(0, Ordering::SeqCst);
        let seen = word.load(Ordering::SeqCst);
        tell_news(core);
        if asked.wakes(&core.shared.header().clock_wanted, sys::monotonic) {
            core.wakeups.wake_watch();
        }
        // Deadlines are times of the machine's clock, which a suspend of the host moves ahead. The
        // watch wakes this thread then.
        let ahead = core.clock_news.ahead();
        let next = alarms.serve(core, sys::monotonic().saturating_add(ahead));
        sleep_until(
            next_field,
            next,
            || {
                if core.stopping() {
                    0
                } else {
                    alarms.next(core)
                }
            },
            || {
                let until = (next != NEVER).then(|| next.saturating_sub(ahead));
                sys::futex_wait(word, seen, until);
            },
        );
    }
}

/// Makes vCPUs look at the clock, if there is news: each that runs, because the others may be
/// without a processor for long. Those that sleep, too, if one of them has to know: which of them
/// has set an alarm only the layer knows, and only that one is interrupted.
fn tell_news(core: &Core) {
    let news = core.clock_news.take();
    if news == 0 {
        return;
    }
    let is = |vcpu, what| core.shared.vcpu(vcpu).state.is(what, Ordering::SeqCst);
    for vcpu in 0..core.vcpus {
        if is(vcpu, VcpuState::Running) || news & WALL != 0 && !is(vcpu, VcpuState::Off) {
            kick::tell(core, vcpu, kick::ALARM);
        }
    }
}

struct Alarms {
    told: Vec<Option<Told>>,
}

impl Alarms {
    /// Kicks the vCPUs whose deadlines have passed. Returns the time of the next check in ns.
    fn serve(&mut self, core: &Core, now: u64) -> u64 {
        let mut next = NEVER;
        for (vcpu, told) in self.told.iter_mut().enumerate() {
            let Some(deadline) = deadline(core, vcpu) else {
                *told = None;
                continue;
            };
            if deadline > now {
                next = next.min(deadline);
                continue;
            }
            let last = told.filter(|t| t.deadline == deadline);
            let again_at = match last {
                Some(last) if last.again_at > now => last.again_at,
                _ => {
                    kick::tell(core, vcpu, kick::ALARM);
                    let pause = last.map_or(FIRST_RETRY, |t| (t.pause * 2).min(LAST_RETRY));
                    *told = Some(Told {
                        deadline,
                        again_at: now.saturating_add(pause),
                        pause,
                    });
                    now.saturating_add(pause)
                }
            };
            next = next.min(again_at);
        }
        next
    }

    /// The time of the next check as the deadlines are now.
    fn next(&self, core: &Core) -> u64 {
        let each = self.told.iter().enumerate().filter_map(|(vcpu, told)| {
            let deadline = deadline(core, vcpu)?;
            Some(
                told.filter(|t| t.deadline == deadline)
                    .map_or(deadline, |t| t.again_at),
            )
        });
        each.min().unwrap_or(NEVER)
    }
}

/// The deadline of a vCPU, if it has one and is on.
fn deadline(core: &Core, vcpu: usize) -> Option<u64> {
    let area::Vcpu {
        deadline_ns, state, ..
    } = core.shared.vcpu(vcpu);
    let deadline = deadline_ns.load(Ordering::SeqCst);
    let off = state.is(VcpuState::Off, Ordering::SeqCst);
    (deadline != NEVER && !off).then_some(deadline)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::clock_news::PAGE;
    use crate::process::shared::Shared;
    use std::sync::Arc;
    use std::time::Duration;

    fn core(vcpus: usize) -> Core {
        let core = Core::new(Shared::new(0).unwrap(), vcpus).unwrap();
        for vcpu in 0..vcpus {
            set_deadline(&core, vcpu, NEVER);
            core.shared
                .vcpu(vcpu)
                .state
                .store(VcpuState::Halted, Ordering::SeqCst);
        }
        core
    }

    fn set_deadline(core: &Core, vcpu: usize, ns: u64) {
        core.shared
            .vcpu(vcpu)
            .deadline_ns
            .store(ns, Ordering::SeqCst);
    }

    fn pending(core: &Core, vcpu: usize) -> u32 {
        core.shared.vcpu(vcpu).pending.load(Ordering::SeqCst)
    }

    fn wakes(core: &Core, vcpu: usize) -> u32 {
        core.shared.vcpu(vcpu).wait_word.load(Ordering::SeqCst)
    }

    #[test]
    fn each_is_told_when_it_is_due_and_not_before() {
        let core = core(2);
        let mut alarms = Alarms {
            told: vec![None; 2],
        };
        assert_eq!(alarms.serve(&core, 50), NEVER);
        set_deadline(&core, 0, 100);
        set_deadline(&core, 1, 200);
        assert_eq!(alarms.serve(&core, 99), 100);
        assert_eq!((pending(&core, 0), pending(&core, 1)), (0, 0));
        assert_eq!(alarms.serve(&core, 100), 200);
        assert_eq!(
            (pending(&core, 0), pending(&core, 1), wakes(&core, 0)),
            (2, 0, 1)
        );
    }

    #[test]
    fn an_ignored_alarm_repeats_with_growing_delay() {
        let core = core(1);
        let mut alarms = Alarms { told: vec![None] };
        set_deadline(&core, 0, 100);
        let mut now = 100;
        for expected in [1, 2, 4, 8, 16, 32, 64, 128, 128] {
            let told = wakes(&core, 0);
            let next = alarms.serve(&core, now);
            assert_eq!(next - now, expected * 1_000_000);
            assert_eq!(alarms.serve(&core, next - 1), next);
            assert_eq!(wakes(&core, 0), told + 1);
            now = next;
        }
        // Another deadline is another alarm.
        set_deadline(&core, 0, 101);
        assert_eq!(alarms.next(&core), 101);
        assert_eq!(alarms.serve(&core, now), now + FIRST_RETRY);
    }

    #[test]
    fn one_that_is_off_has_no_alarm() {
        let core = core(1);
        set_deadline(&core, 0, 100);
        core.shared
            .vcpu(0)
            .state
            .store(VcpuState::Off, Ordering::SeqCst);
        assert_eq!(Alarms { told: vec![None] }.serve(&core, 200), NEVER);
    }

    #[test]
    fn vcpus_learn_of_the_clock() {
        let core = core(3);
        let told = || [0, 1, 2].map(|vcpu| pending(&core, vcpu));
        let set = |vcpu: usize, to| core.shared.vcpu(vcpu).state.store(to, Ordering::SeqCst);
        set(0, VcpuState::Off);
        tell_news(&core);
        core.clock_news.add(PAGE);
        tell_news(&core);
        assert_eq!(told(), [0; 3]);
        set(2, VcpuState::Running);
        core.clock_news.add(PAGE);
        tell_news(&core);
        tell_news(&core);
        assert_eq!(told(), [0, 0, kick::ALARM]);
        core.clock_news.add(WALL);
        tell_news(&core);
        assert_eq!(told(), [0, kick::ALARM, kick::ALARM]);
        assert_eq!(wakes(&core, 1), 1);
    }

    #[test]
    fn a_clock_that_is_ahead_has_its_alarms_in_time() {
        const AHEAD: u64 = 3600 * sys::SECOND;
        let core = Arc::new(core(1));
        let thread = std::thread::spawn({
            let core = Arc::clone(&core);
            move || run(&core)
        });
        // The thread sleeps for an hour, and learns that this hour has passed.
        let due = sys::monotonic() + AHEAD + 20_000_000;
        set_deadline(&core, 0, due);
        core.wake_alarms();
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(wakes(&core, 0), 0);
        assert!(core.clock_news.set_ahead(AHEAD));
        core.wake_alarms();
        while wakes(&core, 0) == 0 {
            assert!(sys::monotonic() + AHEAD < due + 10 * sys::SECOND);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(sys::monotonic() + AHEAD >= due);
        core.stop();
        thread.join().unwrap();
    }

    #[test]
    fn the_thread_sleeps_wakes_and_ends() {
        let core = Arc::new(core(1));
        let thread = std::thread::spawn({
            let core = Arc::clone(&core);
            move || run(&core)
        });
        let next = &core.shared.header().alarm_next_ns;
        while next.load(Ordering::SeqCst) != NEVER {
            std::thread::yield_now();
        }
        set_deadline(&core, 0, sys::monotonic() + 5_000_000);
        let word = &core.shared.header().alarm_word;
        word.fetch_add(1, Ordering::SeqCst);
        sys::futex_wake(word);
        while wakes(&core, 0) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        set_deadline(&core, 0, NEVER);
        core.stop();
        thread.join().unwrap();
    }
}
