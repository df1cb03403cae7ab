// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other programs that use the host's processors.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use std::process::{Child, Command, Stdio};

/// Programs that burn processor time until the value is dropped.
#[derive(Debug)]
pub struct Busy(Vec<Child>);

impl Busy {
    /// Starts as many for each processor of the calling thread.
    ///
    /// # Panics
    /// When none can be started.
    #[must_use]
    pub fn start(each: usize) -> Self {
        let count = std::thread::available_parallelism().map_or(2, std::num::NonZero::get) * each;
        let start = |_| {
            Command::new("sh")
                .args(["-c", "while :; do :; done"])
                .stdin(Stdio::null())
                .spawn()
                .unwrap()
        };
        Busy((0..count).map(start).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Wait for it even if it has ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
