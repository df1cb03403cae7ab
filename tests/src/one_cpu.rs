// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One CPU of the host, or a few, for all that a test starts.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Limits this thread, and what it starts, to some of its CPUs until the value is dropped. Programs
/// that were started stay there.
#[derive(Debug)]
pub struct Cpus {
    before: CpuSet,
}

impl Cpus {
    /// Those of its CPUs with these numbers, from 0. After the last comes the first.
    ///
    /// # Panics
    /// When the host refuses it.
    #[must_use]
    pub fn take(numbers: &[usize]) -> Self {
        let before = sched_getaffinity(None).unwrap();
        let own: Vec<usize> = (0..CpuSet::MAX_CPU)
            .filter(|&cpu| before.is_set(cpu))
            .collect();
        let mut some = CpuSet::new();
        for number in numbers {
            some.set(own[number % own.len()]);
        }
        sched_setaffinity(None, &some).unwrap();
        Cpus { before }
    }

    /// The first two of its CPUs.
    ///
    /// # Panics
    /// When there is one, or the host refuses it.
    #[must_use]
    pub fn take_two() -> Self {
        let two = Cpus::take(&[0, 1]);
        let now = sched_getaffinity(None).unwrap();
        assert_eq!(now.count(), 2, "the host has one processor");
        two
    }
}

impl Drop for Cpus {
    fn drop(&mut self) {
        // It was allowed before.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// Limits this thread, and what it starts, to one CPU until the value is dropped.
#[derive(Debug)]
pub struct OneCpu {
    _cpus: Cpus,
}

impl OneCpu {
    /// The first of its CPUs.
    ///
    /// # Panics
    /// When the host refuses it.
    #[must_use]
    pub fn take() -> Self {
        Self::take_nth(0)
    }

    /// Takes another one of its CPUs. After the last comes the first.
    ///
    /// # Panics
    /// When the host refuses it.
    #[must_use]
    pub fn take_nth(number: usize) -> Self {
        OneCpu {
            _cpus: Cpus::take(&[number]),
        }
    }
}
