// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Another CPU for a vCPU that waits for a disk.
//!
//! A disk of the host interrupts one CPU when a request is done, often the same one each time. A
//! thread that waits on this CPU continues at once. A thread on another CPU also needs the start of
//! that CPU, if it is idle: 40 us on a virtual machine. The host's scheduler moves a program to the
//! CPU of its interrupts. It cannot move a vCPU, which is pinned, nor the device's thread, which is
//! pinned to the same CPU. So the vCPU tries another CPU at times, and stays there if the device's
//! thread waits for less time.

/// Requests whose waits are compared, at least: their median counts.
const ENOUGH: usize = 8;
/// The most waits that are kept.
const MOST: usize = 32;
/// The part of the time, on the CPU before, that a CPU needs to count as better.
const BETTER: (u64, u64) = (7, 8);
/// Decisions before the first trial, and between the first ones.
const FIRST: u32 = 4;
const PAUSE: u32 = 16;
const PAUSE_MOST: u32 = 4096;
/// The least after a trial that found one of two CPUs to be better.
const SETTLED: u32 = 256;
/// Trials that must contradict an earlier one.
const DOUBTS: u32 = 2;
/// Decisions for which a trial waits until the vCPU has moved.
const PATIENCE: u32 = 8;

/// How long the device's thread has waited for the host, in ns, for requests since the last
/// decision.
#[derive(Debug, Default)]
pub struct HostWaits(Vec<u64>);

impl HostWaits {
    /// Adds the wait for one request.
    pub fn add(&mut self, ns: u64) {
        if self.0.len() < MOST {
            self.0.push(ns);
        }
    }

    /// Forgets all, and returns their median if they were enough.
    pub fn take(&mut self) -> Option<u64> {
        self.0.sort_unstable();
        let median = self.0.get(self.0.len() / 2).copied();
        let enough = self.0.len() >= ENOUGH;
        self.0.clear();
        median.filter(|_| enough)
    }
}

/// A vCPU and its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The vCPU.
    pub vcpu: usize,
    /// The CPU of the host.
    pub cpu: u32,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The vCPU goes to the other CPU.
    There,
    /// It goes back, because the other CPU is not better.
    Back,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    home: At,
    /// The same vCPU, on the CPU that is tried.
    other: At,
    step: Step,
    /// The time in ns that requests took at home.
    took: u64,
    /// Decisions that are left for this step.
    patience: u32,
}

/// The trials of one device.
#[derive(Debug)]
pub struct DiskCpu {
    trial: Option<Trial>,
    /// The CPU that a trial found to be better than another one.
    better: Option<u32>,
    /// Trials since then that found the opposite.
    doubts: u32,
    /// The vCPU that waited at the last decision.
    vcpu: Option<usize>,
    /// Another vCPU waits than at the last trial.
    changed: bool,
    /// Decisions until the next trial, and what that is after it.
    pause: u32,
    next: u32,
    /// The CPU that was tried last.
    tried: u32,
    /// Trials so far, and those after which the vCPU stayed on the other CPU.
    trials: u64,
    gains: u64,
}

impl DiskCpu {
    /// Without trials so far.
    pub fn new() -> Self {
        DiskCpu {
            trial: None,
            better: None,
            doubts: 0,
            vcpu: None,
            changed: false,
            pause: FIRST,
            next: PAUSE,
            tried: 0,
            trials: 0,
            gains: 0,
        }
    }

    /// Whether no trial is under way.
    pub fn rests(&self) -> bool {
        self.trial.is_none()
    }

    /// Whether a vCPU goes back to where it was.
    pub fn goes_back(&self) -> bool {
        self.trial
            .is_some_and(|trial| matches!(trial.step, Step::Back))
    }

    /// Trials so far, and those after which the vCPU stayed on the other CPU.
    pub fn counts(&self) -> [u64; 2] {
        [self.trials, self.gains]
    }

    /// Decides where a vCPU should go that waits for the device. `took` is the time in ns that
    /// requests took while it was there, `allowed` returns the CPUs that it may use, in ascending
    /// order.
    pub fn next(&mut self, at: At, took: u64, allowed: impl FnOnce() -> Vec<u32>) -> Option<u32> {
        self.changed |= self.vcpu.replace(at.vcpu) != Some(at.vcpu);
        if let Some(trial) = self.trial {
            let patient = trial.patience > 0;
            self.trial = patient.then_some(Trial {
                patience: trial.patience.saturating_sub(1),
                ..trial
            });
            match trial.step {
                // It has not moved yet.
                Step::There if at == trial.home => return None,
                Step::There if at == trial.other => return self.judge(at, took, trial),
                // The move was not carried out.
                Step::Back if at == trial.other && patient => return Some(trial.home.cpu),
                Step::Back if at == trial.home => {
                    self.trial = None;
                    return None;
                }
                // The guest has moved its program, or the monitor the vCPU for another reason.
                Step::There | Step::Back => self.trial = None,
            }
        }
        self.begin(at, took, allowed)
    }

    /// The vCPU is on the CPU that it tries.
    fn judge(&mut self, at: At, took: u64, trial: Trial) -> Option<u32> {
        let (part, of) = BETTER;
        let less = |one: u64, other: u64| one.saturating_mul(of) <= other.saturating_mul(part);
        self.pause = self.next;
        if less(took, trial.took) {
            self.found(at.cpu);
            self.gains += 1;
            self.trial = None;
            return None;
        }
        if less(trial.took, took) {
            self.found(trial.home.cpu);
        } else {
            // If an earlier trial found that this CPU is better, one of both was disturbed.
            self.doubts += u32::from(self.better == Some(at.cpu));
            if self.doubts == DOUBTS {
                (self.better, self.doubts) = (None, 0);
            }
        }
        self.trial = Some(Trial {
            step: Step::Back,
            patience: PATIENCE,
            ..trial
        });
        Some(trial.home.cpu)
    }

    /// This CPU is better than another one.
    fn found(&mut self, cpu: u32) {
        (self.better, self.doubts) = (Some(cpu), 0);
        self.pause = self.pause.max(SETTLED);
    }

    fn begin(&mut self, at: At, took: u64, allowed: impl FnOnce() -> Vec<u32>) -> Option<u32> {
        let known = self.better.filter(|&better| better != at.cpu);
        // If the vCPU is the same one, something else has moved it away from there, maybe another
        // disk. That must not become a contest.
        let soon = known.is_some() && self.changed;
        if self.pause > 0 && !soon {
            self.pause -= 1;
            return None;
        }
        let allowed = allowed();
        let others = || allowed.iter().copied().filter(|&cpu| cpu != at.cpu);
        let known = known.filter(|&better| others().any(|cpu| cpu == better));
        let in_turn = || others().find(|&cpu| cpu > self.tried).or(others().next());
        let other = known.or_else(in_turn)?;
        self.pause = self.next;
        if !soon {
            self.next = (self.next * 2).min(PAUSE_MOST);
        }
        self.changed = false;
        self.tried = other;
        self.trials += 1;
        self.trial = Some(Trial {
            home: at,
            other: At {
                vcpu: at.vcpu,
                cpu: other,
            },
            step: Step::There,
            took,
            patience: PATIENCE,
        });
        Some(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A machine whose vCPUs move when they are asked to, and change places.
    struct Machine {
        cpus: Vec<u32>,
        disk: DiskCpu,
        moves: u32,
    }

    impl Machine {
        fn new(cpus: &[u32]) -> Self {
            Machine {
                cpus: cpus.to_vec(),
                disk: DiskCpu::new(),
                moves: 0,
            }
        }

        /// Decides this many times, while `vcpu` waits for the disk. `took`: the time of a request
        /// on a CPU.
        fn run(&mut self, decisions: u32, vcpu: usize, took: impl Fn(u32) -> u64) {
            let allowed: Vec<u32> = (0..4).collect();
            for _ in 0..decisions {
                let cpu = self.cpus[vcpu];
                if let Some(other) = self
                    .disk
                    .next(At { vcpu, cpu }, took(cpu), || allowed.clone())
                {
                    assert_ne!(other, cpu);
                    let there = self.cpus.iter().position(|&at| at == other);
                    if let Some(there) = there {
                        self.cpus[there] = cpu;
                    }
                    self.cpus[vcpu] = other;
                    self.moves += 1;
                }
            }
        }
    }

    fn nearer(best: u32) -> impl Fn(u32) -> u64 + Copy {
        move |cpu| if cpu == best { 66_000 } else { 110_000 }
    }

    #[test]
    fn waits_count_by_their_median() {
        let mut waits = HostWaits::default();
        assert_eq!(waits.take(), None);
        (1..ENOUGH as u64).for_each(|ns| waits.add(ns));
        assert_eq!(waits.take(), None, "too few");
        (0..10 * MOST as u64).for_each(|ns| waits.add(ns));
        assert_eq!(waits.take(), Some(MOST as u64 / 2));
        assert_eq!(waits.take(), None);
    }

    #[test]
    fn a_vcpu_finds_the_cpu_that_the_disk_interrupts() {
        for best in 0..4 {
            let mut machine = Machine::new(&[0, 1, 2, 3]);
            machine.run(200, 0, nearer(best));
            assert_eq!(machine.cpus[0], best);
            let mut all = machine.cpus.clone();
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2, 3]);
        }
    }

    #[test]
    fn another_vcpu_that_waits_takes_the_place_soon() {
        let mut machine = Machine::new(&[0, 1]);
        machine.run(10_000, 0, nearer(1));
        assert_eq!(machine.cpus, [1, 0]);
        for vcpu in [1, 0, 1] {
            machine.run(PAUSE + 2, vcpu, nearer(1));
            assert_eq!(machine.cpus[vcpu], 1);
        }
    }

    /// The guest's program often changes its vCPU, also during a trial.
    #[test]
    fn a_program_that_changes_its_vcpu_mostly_waits_where_the_disk_is_fast() {
        for each in [7, 20, 101] {
            let mut machine = Machine::new(&[0, 1]);
            let (mut fast, rounds) = (0, 20_000 / each);
            for round in 0..rounds {
                for _ in 0..each {
                    let vcpu = (round % 2) as usize;
                    fast += u32::from(machine.cpus[vcpu] == 1);
                    machine.run(1, vcpu, nearer(1));
                }
            }
            // Two decisions of each round pass before the vCPU has moved.
            let most = rounds * each - 2 * rounds - 50;
            assert!(fast > most, "{each}: {fast} of {}", rounds * each);
        }
    }

    /// A program that does not profit: all CPUs are alike.
    #[test]
    fn trials_that_find_nothing_become_rare() {
        let mut machine = Machine::new(&[0, 1]);
        machine.run(100_000, 0, |_| 100_000);
        assert_eq!(machine.cpus, [0, 1]);
        assert!((10..80).contains(&machine.moves), "{}", machine.moves);
    }

    /// Two vCPUs wait for a disk each, and both disks interrupt CPU 1.
    #[test]
    fn a_contest_for_a_cpu_becomes_rare() {
        let mut machine = Machine::new(&[0, 1]);
        let mut second = DiskCpu::new();
        for _ in 0..50_000 {
            machine.run(1, 0, nearer(1));
            std::mem::swap(&mut machine.disk, &mut second);
            machine.run(1, 1, nearer(1));
            std::mem::swap(&mut machine.disk, &mut second);
        }
        assert!(machine.moves < 150, "{}", machine.moves);
    }

    /// The guest's program is on another vCPU each time, and all CPUs are alike.
    #[test]
    fn a_program_that_changes_its_vcpu_makes_no_trial_more() {
        let mut machine = Machine::new(&[0, 1]);
        for round in 0..20_000 {
            machine.run(5, round % 2, |_| 100_000);
        }
        assert!(machine.moves < 80, "{}", machine.moves);
    }

    #[test]
    fn a_vcpu_that_is_not_moved_ends_the_trial() {
        let mut disk = DiskCpu::new();
        let at = At { vcpu: 0, cpu: 0 };
        let begun =
            |disk: &mut DiskCpu| (0..10_000).find(|_| disk.next(at, 100, || vec![0, 1]) == Some(1));
        assert_eq!(begun(&mut disk), Some(FIRST));
        assert_eq!(begun(&mut disk), Some(PATIENCE + 1 + PAUSE));
        assert_eq!(DiskCpu::new().next(at, 100, || vec![0]), None);
    }

    proptest! {
        /// Whatever is seen: the CPU is an allowed one, and another.
        #[test]
        fn only_allowed_cpus_are_tried(
            seen in proptest::collection::vec((0..3usize, 0..5u32, any::<u64>()), 1..500),
            allowed in proptest::collection::btree_set(0..5u32, 0..5),
        ) {
            let mut disk = DiskCpu::new();
            let allowed: Vec<u32> = allowed.into_iter().collect();
            let mut homes = Vec::new();
            for (vcpu, cpu, took) in seen {
                homes.push(cpu);
                if let Some(other) = disk.next(At { vcpu, cpu }, took, || allowed.clone()) {
                    prop_assert!(other != cpu);
                    // Or back, where it was.
                    prop_assert!(allowed.contains(&other) || homes.contains(&other));
                }
            }
        }
    }
}
