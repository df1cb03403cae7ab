// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Trials of a device's thread apart from the CPU of the vCPU that waits for it.

use super::{Cpus, Waits};

/// Decisions of a trial apart from the vCPU's CPU: one to begin with, and a chance for some that
/// others have disturbed.
const TRIAL: u32 = 4;
/// Decisions without a trial after one that failed, at first and at most.
const PAUSE: u32 = 16;
const PAUSE_MOST: u32 = 4096;

/// Trials apart from the vCPU's CPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trials {
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
    pub fn next(&mut self, now: Cpus, waits: Waits, cpu: Option<u32>, apart: bool) -> Cpus {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
