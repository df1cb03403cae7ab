// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A shell of a machine with a shared folder.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use crate::lines::Lines;
use crate::{program, vm};
use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The longest wait for an answer that is wanted.
const LONGEST: Duration = Duration::from_secs(10);

/// A guest's shell that carries out a line at a time.
#[derive(Debug)]
pub struct Shell {
    monitor: program::Ends,
    lines: Lines,
}

impl Shell {
    /// In a machine with this volume, as `--volume` takes it.
    ///
    /// # Panics
    /// When the machine does not start.
    #[must_use]
    pub fn new(volume: &str) -> Self {
        let script = "while read line; do eval \"$line\" 2>&1; echo; echo --; done";
        let mut command = vm::command(["--timeout", "300", "--volume", volume]);
        let mut monitor = command
            .args(["--", "sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = Lines::of(monitor.stdout.take());
        Shell {
            monitor: program::Ends(monitor),
            lines,
        }
    }

    /// What a command says.
    ///
    /// # Panics
    /// When the machine ends.
    pub fn says(&mut self, command: &str) -> String {
        let stdin = self.monitor.0.stdin.as_mut().unwrap();
        writeln!(stdin, "{command}").unwrap();
        let mut all = String::new();
        while !all.ends_with("\n--\n") {
            let line = self.lines.next_within(program::PATIENCE);
            assert_ne!(line, "", "{all}");
            all.push_str(&line);
        }
        all[..all.len() - 4].trim_end().to_string()
    }

    /// Asks until a command says this. Returns when it was last asked in vain, if it was: on a
    /// busy processor an answer may take long.
    ///
    /// # Panics
    /// When it does not say that for ten seconds.
    pub fn until(&mut self, command: &str, wanted: &str) -> Option<Duration> {
        let begun = Instant::now();
        let mut in_vain = None;
        loop {
            let asked = begun.elapsed();
            let said = self.says(command);
            if said == wanted {
                return in_vain;
            }
            assert!(asked < LONGEST, "{command}: {said:?}, not {wanted:?}");
            in_vain = Some(asked);
        }
    }
}
