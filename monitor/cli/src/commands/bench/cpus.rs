// SPDX-License-Identifier: Apache-2.0 OR MIT
//! On which CPUs a measurement runs, and what it uses of them.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs that the calling thread may use.
pub fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect()
}

/// The first of them.
pub fn first(allowed: &[usize]) -> Vec<usize> {
    allowed.iter().copied().take(1).collect()
}

/// The second; the first where there is only one.
pub fn second(allowed: &[usize]) -> Vec<usize> {
    allowed
        .get(1)
        .or(allowed.first())
        .into_iter()
        .copied()
        .collect()
}

/// The calling thread, and what it starts from now on, runs there.
pub fn pin(cpus: &[usize]) {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu);
    }
    // An empty set, or a CPU that has just gone away: it runs where it did, and measures worse.
    let _ = sched_setaffinity(None, &set);
}

/// What processes have used.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// CPU time, user and system, ns.
    pub cpu_ns: f64,
    /// Context switches, of both kinds: who wakes another is often interrupted by it before it can wait.
    pub switches: f64,
}

/// Of this process (`RUSAGE_SELF`), or of its children that have ended (`RUSAGE_CHILDREN`).
#[allow(clippy::cast_precision_loss)] // seconds, microseconds, counts
pub fn usage(whose: libc::c_int) -> Usage {
    // SAFETY: a structure of plain numbers, filled by the call; it cannot fail for these two.
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
