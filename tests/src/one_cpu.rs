// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One CPU of the host for all that a test starts.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Limits this thread, and what it starts, to one of its CPUs until the value is dropped. What was
/// started stays there.
#[derive(Debug)]
pub struct OneCpu {
    before: CpuSet,
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

    /// The same with another one of its CPUs. After the last comes the first.
    ///
    /// # Panics
    /// When the host refuses it.
    #[must_use]
    pub fn take_nth(number: usize) -> Self {
        let before = sched_getaffinity(None).unwrap();
        let own = || (0..CpuSet::MAX_CPU).filter(|&cpu| before.is_set(cpu));
        let mut one = CpuSet::new();
        one.set(own().nth(number % own().count()).unwrap());
        sched_setaffinity(None, &one).unwrap();
        OneCpu { before }
    }
}

impl Drop for OneCpu {
    fn drop(&mut self) {
        // It was allowed before.
        let _ = sched_setaffinity(None, &self.before);
    }
}
