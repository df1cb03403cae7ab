// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The placement of vCPUs on host CPUs.
//!
//! A vCPU is one thread at a time, in one process after another. The hand-over is cheap only when
//! both threads are on one CPU, so all threads of a vCPU are pinned to the same CPU. This module
//! chooses the CPU: several machines must not all begin at CPU 0, and a vCPU must move when its CPU
//! is taken away.

mod asked;
mod turns;

use super::core::Core;
use super::process_ids::Process;
use super::sys;
use crate::size::size;
use paravane_abi::process::area::VcpuState;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use turns::{Busy, Turns};

pub use asked::Asked;

/// `vcpu_cpu`: any CPU.
const ANY: u32 = u32::MAX;
/// Percent of the time for which a CPU works if it counts as busy, and below which it counts as
/// idle.
const BUSY: u64 = 90;
const IDLE: u64 = 15;
/// A vCPU that waits for more than this percentage of the time shares its CPU with other programs.
const WAITS: u64 = 20;

/// Ticks of each host CPU since the host's start: busy, and all.
#[derive(Clone, Debug, Default)]
pub struct Load(BTreeMap<u32, (u64, u64)>);

impl Load {
    /// Reads the host's table; empty where the host does not publish it.
    pub fn sample() -> Self {
        Load::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let line = |line: &str| {
            let mut words = line.strip_prefix("cpu")?.split_whitespace();
            let cpu = words.next()?.parse().ok()?;
            let ticks: Vec<u64> = words.take(8).map_while(|w| w.parse().ok()).collect();
            let all = ticks.iter().sum::<u64>();
            // idle and iowait
            let idle: u64 = ticks.iter().skip(3).take(2).sum();
            Some((cpu, (all - idle, all)))
        };
        // The first line is the sum. It has no number, so its first value would be taken for one.
        Load(
            text.lines()
                .filter(|l| !l.starts_with("cpu "))
                .filter_map(line)
                .collect(),
        )
    }

    /// Percentage of the time since `earlier` for which a CPU was busy; `None` if the time is too
    /// short.
    fn busy(&self, earlier: &Load, cpu: u32) -> Option<u64> {
        let ((busy, all), (busy_then, all_then)) = (self.0.get(&cpu)?, earlier.0.get(&cpu)?);
        let all = all.saturating_sub(*all_then);
        (all > 0).then(|| busy.saturating_sub(*busy_then) * 100 / all)
    }
}

/// The CPUs that this program may use.
pub fn allowed() -> Vec<u32> {
    let Ok(set) = sched_getaffinity(None) else {
        return Vec::new();
    };
    (0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .filter_map(|cpu| u32::try_from(cpu).ok())
        .collect()
}

/// Chooses CPUs for the vCPUs of a new machine: idle ones first, starting at a place that depends
/// on `seed`.
pub fn choose(vcpus: usize, allowed: &[u32], before: &Load, now: &Load, seed: u32) -> Vec<u32> {
    if allowed.is_empty() {
        return vec![ANY; vcpus];
    }
    let mut order = allowed.to_vec();
    // Multiplied by a large odd number, so that machines started one after the other begin far
    // apart.
    let start = size((u64::from(seed.wrapping_mul(0x9e37_79b1)) * order.len() as u64) >> 32);
    order.rotate_left(start);
    // Coarse, so that the starting place decides among CPUs that are about equally busy; the sort
    // is stable.
    order.sort_by_key(|&cpu| now.busy(before, cpu).unwrap_or(0) / 34);
    order.iter().copied().cycle().take(vcpus).collect()
}

/// Pins a process's threads to the CPUs where its vCPUs are now.
pub fn apply_to_process(core: &Core, index: usize) {
    if !core.cpus.moved() {
        return;
    }
    core.processes.act(|at, process| {
        if at == index {
            for (vcpu, cpu) in core.cpus.all().into_iter().enumerate() {
                pin(core, index, process, vcpu, cpu);
            }
        }
        at == index
    });
}

/// Pins the thread of a vCPU in one process, whose ids are the machine's ([`Processes::act`]).
///
/// [`Processes::act`]: super::processes::Processes::act
fn pin(core: &Core, index: usize, process: &Process, vcpu: usize, cpu: u32) {
    let tid = core.shared.proc(index).tid[vcpu].load(Ordering::Relaxed);
    // The guest could write any number there; only threads of this process are changed.
    let (pid, Some(tid)) = (process.pid, process.thread(tid)) else {
        return;
    };
    if tid == 0 || !Path::new(&format!("/proc/{pid}/task/{tid}")).exists() {
        return;
    }
    let mut set = CpuSet::new();
    let (Ok(tid), Ok(cpu)) = (i32::try_from(tid), usize::try_from(cpu)) else {
        return;
    };
    if cpu < CpuSet::MAX_CPU {
        set.set(cpu);
        // Fails when the CPU has just been taken away: the next look finds another one.
        let _ = sched_setaffinity(Pid::from_raw(tid), &set);
    }
}

/// Moves vCPUs to other CPUs. A host call and a look at a file for each vCPU and process.
fn move_all(core: &Core, all: &[(usize, u32)]) {
    for &(vcpu, cpu) in all {
        tracing::debug!(vcpu, cpu, "moving a vCPU");
        core.cpus.set_moved();
        core.cpus.set(&core.shared, vcpu, cpu);
        core.processes.act(|index, process| {
            pin(core, index, process, vcpu, cpu);
            false
        });
    }
}

/// Checks periodically whether the vCPUs are well placed.
#[derive(Debug)]
pub struct Balance {
    load: Load,
    /// vCPUs that were running at the last look.
    ran: Vec<bool>,
    /// Steal time of each vCPU at the last look in ns.
    stolen: Vec<u64>,
    at: u64,
    /// Random, so that two machines do not both take the same idle CPU again and again.
    random: u32,
    /// Where no CPU is idle; `None`: vCPUs stay where they are then.
    turns: Option<Turns>,
}

impl Balance {
    pub fn new(core: &Core, turns: bool) -> Self {
        Balance {
            load: Load::sample(),
            ran: vec![false; core.vcpus],
            stolen: vec![0; core.vcpus],
            at: sys::monotonic(),
            random: std::process::id() | 1,
            turns: turns.then(|| Turns::new(core.vcpus)),
        }
    }

    /// Moves vCPUs whose CPU is no longer allowed. Also moves one vCPU that shares its CPU, with
    /// another vCPU or with other programs, while another CPU is idle. Where none is, vCPUs take
    /// turns ([`Turns`]).
    pub fn look(&mut self, core: &Core) {
        let running: Vec<bool> = (0..core.vcpus)
            .map(|vcpu| {
                core.shared
                    .vcpu(vcpu)
                    .state
                    .is(VcpuState::Running, Ordering::Relaxed)
            })
            .collect();
        let now = Load::sample();
        let at = sys::monotonic();
        // The guest can write it, which affects only the guest's own placement.
        let stolen: Vec<u64> = (0..core.vcpus)
            .map(|vcpu| core.shared.vcpu(vcpu).stolen_ns.load(Ordering::Relaxed))
            .collect();
        let elapsed = (at - self.at).max(1);
        let vcpus: Vec<Vcpu> = (0..core.vcpus)
            .map(|vcpu| Vcpu {
                busy: running[vcpu] && self.ran[vcpu],
                waited: percent(stolen[vcpu].saturating_sub(self.stolen[vcpu]), elapsed),
            })
            .collect();
        // xorshift
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        let usage = |cpu| now.busy(&self.load, cpu);
        let (placement, allowed) = (core.cpus.all(), allowed());
        let willing = self.random.is_multiple_of(2);
        let mut all = moves(&placement, &allowed, &vcpus, usage, willing);
        if let (true, Some(turns)) = (all.is_empty(), &mut self.turns) {
            let busy = busy(&placement, &vcpus);
            all = turns.look(&busy, &allowed, turns::wanting(), self.random >> 1);
        }
        move_all(core, &all);
        self.load = now;
        self.ran = running;
        (self.stolen, self.at) = (stolen, at);
    }
}

/// What a vCPU did since the last look.
#[derive(Clone, Copy, Debug, Default)]
struct Vcpu {
    /// It was running at both looks.
    busy: bool,
    /// Percent of the time for which it waited for its CPU, mostly because of other vCPUs and
    /// programs.
    waited: u64,
}

impl Vcpu {
    fn waits(&self) -> bool {
        self.waited > WAITS
    }
}

/// How much of the time a vCPU waited, in percent. The guest can write any stolen time.
fn percent(stolen: u64, elapsed: u64) -> u64 {
    (stolen.saturating_mul(100) / elapsed.max(1)).min(100)
}

/// The busy ones, with their CPUs.
fn busy(placement: &[u32], vcpus: &[Vcpu]) -> Vec<Busy> {
    let all = placement.iter().zip(vcpus).enumerate();
    let busy = all.filter(|(_, (_, one))| one.busy);
    busy.map(|(vcpu, (&cpu, one))| Busy {
        vcpu,
        cpu,
        waited: one.waited,
    })
    .collect()
}

/// The vCPUs that move, and their new CPUs.
fn moves(
    placement: &[u32],
    allowed: &[u32],
    vcpus: &[Vcpu],
    usage: impl Fn(u32) -> Option<u64>,
    willing: bool,
) -> Vec<(usize, u32)> {
    let mut result = Vec::new();
    if allowed.is_empty() {
        return result;
    }
    let mut placement = placement.to_vec();
    let on = |placement: &[u32], cpu: u32| placement.iter().filter(|&&c| c == cpu).count();
    for vcpu in 0..placement.len() {
        if !allowed.contains(&placement[vcpu]) {
            let Some(&cpu) = allowed.iter().min_by_key(|&&cpu| on(&placement, cpu)) else {
                continue;
            };
            placement[vcpu] = cpu;
            result.push((vcpu, cpu));
        }
    }
    if !result.is_empty() || !willing {
        return result;
    }
    // One at a time: the next sample shows the effect.
    let idle = allowed.iter().copied().find(|&cpu| {
        usage(cpu).is_some_and(|percent| percent < IDLE)
            && !placement
                .iter()
                .zip(vcpus)
                .any(|(&c, v)| v.busy && c == cpu)
    });
    let shares = |vcpu: usize| {
        let cpu = placement[vcpu];
        let with_us = placement
            .iter()
            .zip(vcpus)
            .filter(|&(&c, v)| v.busy && c == cpu)
            .count()
            > 1;
        vcpus[vcpu].busy
            && (with_us || vcpus[vcpu].waits())
            && usage(cpu).is_some_and(|percent| percent > BUSY)
    };
    // The last one of those on a CPU moves, so vCPU 0 stays.
    if let (Some(cpu), Some(vcpu)) = (idle, (0..placement.len()).rev().find(|&v| shares(v))) {
        result.push((vcpu, cpu));
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str =
        "cpu  10 0 0 10 0 0 0 0 0 0\ncpu0 5 0 0 5 0 0 0 0 0 0\ncpu1 5 0 0 5 0 0 0 0 0 0\nintr 1\n";

    #[test]
    fn the_hosts_table_is_read() {
        let before = Load::parse(STAT);
        let now = Load::parse("cpu0 15 0 0 5 0 0 0 0\ncpu1 5 0 0 10 5 0 0 0\n");
        assert_eq!(before.0.len(), 2);
        assert_eq!(
            (
                now.busy(&before, 0),
                now.busy(&before, 1),
                now.busy(&before, 2)
            ),
            (Some(100), Some(0), None)
        );
        assert_eq!(before.busy(&before, 0), None);
        assert!(Load::parse("cpu\ncpux 1\ncpu1\n").0.len() <= 1);
    }

    #[test]
    fn machines_spread_and_avoid_busy_cpus() {
        let none = Load::default();
        let allowed: Vec<u32> = (0..8).collect();
        let mut first: Vec<u32> = (100..108)
            .map(|seed| choose(1, &allowed, &none, &none, seed)[0])
            .collect();
        first.sort_unstable();
        first.dedup();
        assert!(first.len() > 3, "{first:?}");
        let mut all = choose(8, &allowed, &none, &none, 1);
        all.sort_unstable();
        assert_eq!(all, allowed);
        assert_eq!(choose(3, &[2], &none, &none, 1), [2, 2, 2]);
        assert_eq!(choose(1, &[], &none, &none, 1), [ANY]);
        let now = Load::parse("cpu0 15 0 0 5 0 0 0 0\ncpu1 5 0 0 15 0 0 0 0\n");
        for seed in 0..9 {
            assert_eq!(choose(1, &[0, 1], &Load::parse(STAT), &now, seed), [1]);
        }
    }

    #[test]
    fn any_stolen_time_is_a_percentage() {
        assert_eq!(percent(0, 1000), 0);
        assert_eq!(percent(250, 1000), 25);
        assert_eq!(percent(1001, 1000), 100);
        assert_eq!(percent(u64::MAX, 1000), 100);
        assert_eq!(percent(u64::MAX, 0), 100);
    }

    const BUSY_ONE: Vcpu = Vcpu {
        busy: true,
        waited: 0,
    };

    #[test]
    fn a_lost_cpu_is_left() {
        assert_eq!(
            moves(&[0, 1, 2], &[1, 3], &[Vcpu::default(); 3], |_| None, false),
            [(0, 3), (2, 1)]
        );
        assert_eq!(moves(&[0], &[], &[BUSY_ONE], |_| None, true), []);
        assert_eq!(moves(&[ANY], &[4], &[BUSY_ONE], |_| None, true), [(0, 4)]);
    }

    #[test]
    fn busy_ones_do_not_share_while_another_idles() {
        let usage = |cpu| Some(if cpu == 0 { 100 } else { 0 });
        assert_eq!(
            moves(&[0, 0], &[0, 1], &[BUSY_ONE; 2], usage, true),
            [(1, 1)]
        );
        assert_eq!(moves(&[0, 0], &[0, 1], &[BUSY_ONE; 2], usage, false), []);
        assert_eq!(
            moves(&[0, 0], &[0, 1], &[BUSY_ONE, Vcpu::default()], usage, true),
            []
        );
        assert_eq!(
            moves(&[0, 0], &[0, 1], &[BUSY_ONE; 2], |_| Some(50), true),
            []
        );
        assert_eq!(moves(&[0, 0, 1], &[0, 1], &[BUSY_ONE; 3], usage, true), []);
    }

    #[test]
    fn a_waiting_vcpu_moves_to_an_idle_cpu() {
        let usage = |cpu| Some(if cpu == 0 { 100 } else { 0 });
        let waiting = Vcpu {
            waited: 50,
            ..BUSY_ONE
        };
        assert_eq!(moves(&[0], &[0, 1], &[waiting], usage, true), [(0, 1)]);
        assert_eq!(moves(&[0], &[0, 1], &[BUSY_ONE], usage, true), []);
        assert_eq!(moves(&[0], &[0, 1], &[waiting], |_| Some(100), true), []);
        assert_eq!(moves(&[0], &[0], &[waiting], usage, true), []);
    }
}
