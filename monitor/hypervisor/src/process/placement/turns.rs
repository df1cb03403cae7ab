// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns: no vCPU keeps the CPU with the least company where there are more busy vCPUs than CPUs.
//!
//! Each vCPU is pinned, so the host cannot do this itself. Of three busy vCPUs on two CPUs, one
//! would have a CPU for itself for ever, and the others half of one.
//!
//! A monitor sees how long its own vCPUs wait for their CPUs, and how many threads of the host want
//! to run. It cannot see the CPUs of other machines' vCPUs. So vCPUs of one machine change places,
//! which leaves each CPU as many threads as before. The vCPU of a machine that has less than its
//! part of the host moves to any other CPU, rarely: two machines that do this at the same moment
//! leave a CPU without work until one of them finds out.

use std::fs;

/// Two vCPUs of a machine change places if one has waited for more of the time than the other, by
/// at least this percentage.
const APART: u64 = 20;
/// A vCPU has less than its part of the host if it has less than this percentage of the part.
const LITTLE: u64 = 85;
/// One look in this number that finds this moves the vCPU.
const RARELY: u32 = 8;
/// The threads that want to run vary. The median of this number of looks counts, so that a moment
/// with few of them moves no vCPU, and one with many keeps none.
const SAMPLES: usize = 5;
/// Of what a vCPU has waited before the last look, this part still counts.
const KEPT: (u64, u64) = (7, 8);

/// A vCPU that was ready all the time since the last look, and the part of it for which it waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    pub vcpu: usize,
    /// Its CPU.
    pub cpu: u32,
    /// Percent of the time.
    pub waited: u64,
}

/// What the turns need of the looks before.
#[derive(Debug)]
pub struct Turns {
    /// How long each vCPU has waited of late: percent of the time between two looks, added up.
    lag: Vec<u64>,
    /// Threads of the host that wanted to run at the last looks.
    wanting: [u64; SAMPLES],
    next: usize,
}

impl Turns {
    pub fn new(vcpus: usize) -> Self {
        Turns {
            lag: vec![0; vcpus],
            // Many: nothing moves before all looks were taken.
            wanting: [u64::MAX; SAMPLES],
            next: 0,
        }
    }

    /// Takes a look. Returns the vCPUs that move, and their new CPUs. `wanting` is the number of
    /// threads that want to run on the host, `None` if the host does not say so.
    pub fn look(
        &mut self,
        busy: &[Busy],
        allowed: &[u32],
        wanting: Option<u64>,
        random: u32,
    ) -> Vec<(usize, u32)> {
        self.wanting[self.next] = wanting.unwrap_or(u64::MAX);
        self.next = (self.next + 1) % SAMPLES;
        let (kept, of) = KEPT;
        for lag in &mut self.lag {
            *lag = *lag * kept / of;
        }
        for one in busy {
            if let Some(lag) = self.lag.get_mut(one.vcpu) {
                *lag += one.waited;
            }
        }
        if let Some((late, early)) = self.change(busy) {
            return vec![(late.vcpu, early.cpu), (early.vcpu, late.cpu)];
        }
        let moves = self.leave(busy, allowed, random);
        moves.into_iter().collect()
    }

    fn lag(&self, one: &Busy) -> u64 {
        self.lag.get(one.vcpu).copied().unwrap_or(0)
    }

    /// Two vCPUs that change places: one that has waited long of late, and the one that waits least
    /// now.
    fn change(&self, busy: &[Busy]) -> Option<(Busy, Busy)> {
        let early = busy.iter().min_by_key(|one| one.waited)?;
        let late = busy
            .iter()
            .filter(|one| one.cpu != early.cpu && one.waited > early.waited + APART)
            .max_by_key(|one| self.lag(one))?;
        (self.lag(late) > self.lag(early)).then_some((*late, *early))
    }

    /// A vCPU that has less than its part of the host, and the CPU to which it goes.
    fn leave(&self, busy: &[Busy], allowed: &[u32], random: u32) -> Option<(usize, u32)> {
        if !random.is_multiple_of(RARELY) {
            return None;
        }
        let mut wanting = self.wanting;
        wanting.sort_unstable();
        let wanting = wanting[SAMPLES / 2];
        // Percent of a CPU. Where there are CPUs for all, an idle one is found in another way.
        let part = 100 * allowed.len() as u64 / wanting.max(1);
        let late = busy.iter().max_by_key(|one| self.lag(one))?;
        let has = 100u64.saturating_sub(late.waited);
        if part >= 100 || has * 100 >= part * LITTLE {
            return None;
        }
        let here = |cpu: &u32| busy.iter().filter(|one| one.cpu == *cpu).count();
        let others = || allowed.iter().filter(|cpu| **cpu != late.cpu);
        let fewest = others().map(here).min()?;
        let free: Vec<u32> = others()
            .filter(|cpu| here(cpu) == fewest)
            .copied()
            .collect();
        let choice = (random / RARELY) as usize % free.len().max(1);
        free.get(choice).map(|&cpu| (late.vcpu, cpu))
    }
}

/// Threads that want to run on the host, without the one that asks.
pub fn wanting() -> Option<u64> {
    parse(&fs::read_to_string("/proc/loadavg").ok()?)
}

/// The number before the `/`: threads that run or wait for a CPU.
fn parse(text: &str) -> Option<u64> {
    let (running, _) = text.split_whitespace().nth(3)?.split_once('/')?;
    Some(running.parse::<u64>().ok()?.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A failed setup fails the test.

    use super::*;
    use proptest::prelude::*;

    /// What busy vCPUs on these CPUs wait, where others want to run there, too.
    fn busy(placement: &[u32], others: &[u64]) -> Vec<Busy> {
        let on = |cpu: u32| placement.iter().filter(|&&c| c == cpu).count() as u64;
        let wait = |cpu: u32| {
            let all = on(cpu) + others.get(cpu as usize).copied().unwrap_or(0);
            100 - 100 / all
        };
        let one = |(vcpu, &cpu): (usize, &u32)| Busy {
            vcpu,
            cpu,
            waited: wait(cpu),
        };
        placement.iter().enumerate().map(one).collect()
    }

    /// Looks `looks` times, and returns what each vCPU has had: percent of a CPU, added up.
    fn after(looks: u32, placement: &mut [u32], others: &[u64], wanting: u64) -> Vec<u64> {
        let allowed: Vec<u32> = (0..2).collect();
        let mut turns = Turns::new(placement.len());
        let mut had = vec![0; placement.len()];
        for _ in 0..looks {
            let all = busy(placement, others);
            for one in &all {
                had[one.vcpu] += 100 - one.waited;
            }
            for (vcpu, cpu) in turns.look(&all, &allowed, Some(wanting), 1) {
                placement[vcpu] = cpu;
            }
        }
        had
    }

    #[test]
    fn three_vcpus_share_two_cpus() {
        let mut placement = [0, 1, 0];
        let had = after(30, &mut placement, &[], 3);
        let all: u64 = had.iter().sum();
        for one in &had {
            assert!((30..=37).contains(&(one * 100 / all)), "{had:?}");
        }
        // No CPU was ever without one.
        assert_eq!(all, 30 * 200);
    }

    #[test]
    fn a_vcpu_beside_another_program_is_relieved() {
        // A program of the host is bound to CPU 0.
        let had = after(30, &mut [0, 1], &[1, 0], 3);
        assert!(had[0].abs_diff(had[1]) <= 100, "{had:?}");
        assert_eq!(had[0] + had[1], 30 * 150);
    }

    #[test]
    fn where_all_wait_alike_nothing_moves() {
        let mut placement = [0, 1, 0, 1];
        after(30, &mut placement, &[], 4);
        assert_eq!(placement, [0, 1, 0, 1]);
        let mut alone = [0, 1];
        after(30, &mut alone, &[], 2);
        assert_eq!(alone, [0, 1]);
    }

    /// A machine with one vCPU, beside others.
    fn one(turns: &mut Turns, waited: u64, wanting: Option<u64>, random: u32) -> Vec<(usize, u32)> {
        let all = [Busy {
            vcpu: 0,
            cpu: 0,
            waited,
        }];
        turns.look(&all, &[0, 1], wanting, random)
    }

    #[test]
    fn one_with_less_than_its_part_moves_and_rarely() {
        let mut turns = Turns::new(1);
        // The first looks say nothing.
        for _ in 0..SAMPLES / 2 {
            assert_eq!(one(&mut turns, 50, Some(3), 0), []);
        }
        assert_eq!(one(&mut turns, 50, Some(3), 0), [(0, 1)]);
        for random in 1..RARELY {
            assert_eq!(one(&mut turns, 50, Some(3), random), []);
        }
        // A third of the time is its part.
        assert_eq!(one(&mut turns, 33, Some(3), 0), []);
        // Moments in which others run, too, or fewer.
        for wanting in [9, 3, 9, 3, 3, 9, 3] {
            assert_eq!(one(&mut turns, 50, Some(wanting), 0), [(0, 1)]);
        }
        for _ in 0..SAMPLES {
            one(&mut turns, 50, Some(4), 1);
        }
        // Four share two CPUs, except for a moment.
        for wanting in [4, 1, 4, 4, 2, 4, 3] {
            assert_eq!(one(&mut turns, 50, Some(wanting), 0), []);
        }
        // The host does not say how many there are.
        let mut turns = Turns::new(1);
        for _ in 0..SAMPLES * 2 {
            assert_eq!(one(&mut turns, 90, None, 0), []);
        }
    }

    #[test]
    fn the_host_says_how_many_want_to_run() {
        assert_eq!(parse("0.27 0.35 0.73 3/345 12345\n"), Some(2));
        assert_eq!(parse("0.27 0.35 0.73 0/345 12345\n"), Some(0));
        for bad in ["", "1 2 3", "1 2 3 x/4 5", "1 2 3 4 5"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    proptest! {
        /// Whatever is seen: vCPUs move to allowed CPUs only, at most two of them, and two only by
        /// changing places.
        #[test]
        fn moves_are_few_and_allowed(
            looks in proptest::collection::vec(
                (
                    proptest::collection::vec((0..4u32, 0..=100u64), 0..5),
                    proptest::option::of(0..9u64),
                    any::<u32>(),
                ),
                1..20,
            ),
        ) {
            let allowed = [0, 1, 2, 3];
            let mut turns = Turns::new(5);
            for (seen, wanting, random) in looks {
                let busy: Vec<Busy> = seen
                    .iter()
                    .enumerate()
                    .map(|(vcpu, &(cpu, waited))| Busy { vcpu, cpu, waited })
                    .collect();
                let moves = turns.look(&busy, &allowed, wanting, random);
                prop_assert!(moves.len() <= 2);
                for &(vcpu, cpu) in &moves {
                    prop_assert!(allowed.contains(&cpu) && busy[vcpu].cpu != cpu);
                }
                if let [(a, to_a), (b, to_b)] = moves[..] {
                    prop_assert_eq!((to_a, to_b), (busy[b].cpu, busy[a].cpu));
                }
            }
        }
    }
}
