// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One CPU of the host for all that a test starts.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Limits this thread, and what it starts, to the first of its CPUs until the value is dropped.
#[derive(Debug)]
pub struct OneCpu {
    before: CpuSet,
}

impl OneCpu {
    /// # Panics
    /// When the host refuses it.
    #[must_use]
    pub fn take() -> Self {
        let before = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU)
            .find(|&cpu| before.is_set(cpu))
            .unwrap();
        let mut one = CpuSet::new();
        one.set(first);
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
