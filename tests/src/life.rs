// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine that reports in lines what it has done, and is killed at a random moment.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use crate::lines::Lines;
use crate::program::LONGEST;
use std::hash::{BuildHasher, Hasher};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The machine, and the lines of its output. They end with the machine.
#[derive(Debug)]
pub struct Life {
    monitor: Child,
    lines: Lines,
}

impl Life {
    /// Starts it.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn begin(command: &mut Command) -> Self {
        let mut monitor = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = Lines::of(monitor.stdout.take());
        Life { monitor, lines }
    }

    /// The lines before this one, which is consumed, too.
    pub fn before<'a>(&'a mut self, end: &'a str) -> impl Iterator<Item = String> + 'a {
        self.by_ref().take_while(move |line| line != end)
    }

    /// Kills the monitor at a random moment within `most`. Passes the lines until then to `note`;
    /// the last one may be incomplete.
    ///
    /// # Panics
    /// When the monitor has ended already.
    pub fn end(self, most: Duration, note: impl FnMut(String)) {
        let Life {
            mut monitor,
            mut lines,
        } = self;
        let killer = std::thread::spawn(move || {
            std::thread::sleep(some_time(most));
            monitor.kill().unwrap();
            monitor.wait().unwrap();
        });
        lines.each_within(LONGEST).for_each(note);
        killer.join().unwrap();
    }
}

impl Iterator for Life {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        self.lines.each_within(LONGEST).next()
    }
}

/// A random moment within `most`.
fn some_time(most: Duration) -> Duration {
    let random = std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish();
    Duration::from_nanos(random % u64::try_from(most.as_nanos()).unwrap())
}
