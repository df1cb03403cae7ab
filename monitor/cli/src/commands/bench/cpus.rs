// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPUs on which a measurement runs, and the CPU time that it uses.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs that the calling thread may use.
pub fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect()
}

/// The first of the allowed CPUs.
pub fn first(allowed: &[usize]) -> Vec<usize> {
    allowed.iter().copied().take(1).collect()
}

/// The second of the allowed CPUs; the first if there is only one.
pub fn second(allowed: &[usize]) -> Vec<usize> {
    allowed
        .get(1)
        .or(allowed.first())
        .into_iter()
        .copied()
        .collect()
}

/// Pins the calling thread, and everything that it starts from now on, to these CPUs.
pub fn pin(cpus: &[usize]) {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu);
    }
    // Fails for an empty set or a CPU that has just been removed. The measurement is then noisier.
    let _ = sched_setaffinity(None, &set);
}

/// Resource usage of processes.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// CPU time, user and system, ns.
    pub cpu_ns: f64,
    /// Voluntary and involuntary context switches: a thread that wakes another is often preempted
    /// by it before it can wait.
    pub switches: f64,
}

/// Usage of this process (`RUSAGE_SELF`), or of its children that have ended (`RUSAGE_CHILDREN`).
#[allow(clippy::cast_precision_loss)] // seconds, microseconds, counts
pub fn usage(whose: libc::c_int) -> Usage {
    // SAFETY: the call fills a structure of plain numbers. It cannot fail for these two values.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(whose, &raw mut usage);
        usage
    };
    let ns = |time: libc::timeval| time.tv_sec as f64 * 1e9 + time.tv_usec as f64 * 1e3;
    Usage {
        cpu_ns: ns(usage.ru_utime) + ns(usage.ru_stime),
        switches: usage.ru_nvcsw as f64 + usage.ru_nivcsw as f64,
    }
}

/// Usage of this program and of its children that have ended.
pub fn all_usage() -> Usage {
    let (own, children) = (usage(libc::RUSAGE_SELF), usage(libc::RUSAGE_CHILDREN));
    Usage {
        cpu_ns: own.cpu_ns + children.cpu_ns,
        // The monitor's own threads switch for unrelated reasons.
        switches: children.switches,
    }
}

/// The CPU time of a process so far, in ns; `None` if it has ended.
#[allow(clippy::cast_precision_loss)] // seconds
pub fn of_process(pid: u32) -> Option<f64> {
    let mut clock: libc::clockid_t = 0;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: both calls write to the local values only.
    let failed = unsafe {
        libc::clock_getcpuclockid(i32::try_from(pid).ok()?, &raw mut clock) != 0
            || libc::clock_gettime(clock, &raw mut time) != 0
    };
    (!failed).then_some(time.tv_sec as f64 * 1e9 + time.tv_nsec as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cpu_is_both_first_and_second() {
        assert_eq!((first(&[3]), second(&[3])), (vec![3], vec![3]));
        assert_eq!((first(&[3, 5, 7]), second(&[3, 5, 7])), (vec![3], vec![5]));
        assert_eq!((first(&[]), second(&[])), (vec![], vec![]));
    }

    #[test]
    fn use_grows() {
        let before = usage(libc::RUSAGE_SELF).cpu_ns;
        let mut sum = 0u64;
        for i in 0..20_000_000u64 {
            sum = std::hint::black_box(sum ^ i);
        }
        assert!(usage(libc::RUSAGE_SELF).cpu_ns > before);
    }
}
