// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine and a process that attacking machines of the same user must not reach. They report
//! what they have noticed.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use crate::host_without::{Host, Programs};
use crate::lines::Lines;
use crate::program::{Ends, PATIENCE};
use crate::sandbox::{END, Status, URGENT};
use crate::tree;
use rustix::process::Signal;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A machine and a process of the same user.
#[derive(Debug)]
pub struct Victims {
    machine: Ends,
    zygote: u32,
    spaces: Vec<u32>,
    process: Ends,
    lines: Lines,
}

impl Victims {
    /// Starts them and waits until they run.
    ///
    /// # Panics
    /// When they do not start.
    #[must_use]
    #[allow(clippy::zombie_processes)] // They end with the value.
    pub fn start(programs: &Programs, host: Host) -> Self {
        let mut machine = programs.on(host, "paravane");
        machine.args([
            "conformance",
            "--hypervisor",
            "process",
            "--cpus",
            "2",
            "--append",
            "idle=36000",
        ]);
        machine.args(["--timeout", "36000"]);
        let machine = Ends(
            machine
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        );
        let process = programs
            .on(host, "victim")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut process = Ends(process);
        let mut lines = Lines::of(process.0.stdout.take());
        let line = lines.next_within(PATIENCE);
        assert_eq!(line, "ready\n", "{host:?}");
        let deadline = Instant::now() + PATIENCE;
        while tree::spaces(machine.0.id()).len() < 3 {
            assert!(
                Instant::now() < deadline,
                "{host:?}: the machine does not start"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        // Wait until it is idle.
        std::thread::sleep(Duration::from_millis(300));
        let zygote = tree::children(machine.0.id())[0];
        Victims {
            spaces: tree::spaces(machine.0.id()),
            machine,
            zygote,
            process,
            lines,
        }
    }

    /// Their names and ids.
    #[must_use]
    pub fn ids(&self) -> Vec<(&'static str, u32)> {
        vec![
            ("the other machine's zygote", self.zygote),
            ("a process of the other machine", self.spaces[0]),
            ("the other machine's monitor", self.machine.0.id()),
            ("a process of the user", self.process.0.id()),
        ]
    }

    /// Those that are children of the process that started them.
    #[must_use]
    pub fn children(&self) -> Vec<u32> {
        vec![self.machine.0.id(), self.process.0.id()]
    }

    /// Ends them and returns what they have noticed.
    ///
    /// # Panics
    /// When they cannot be asked.
    #[must_use]
    pub fn end(mut self) -> Vec<String> {
        let mut wrong = Vec::new();
        for &pid in self.spaces.iter().chain([&self.zygote]) {
            if Status::of(pid).is_none_or(|status| status.zombie) {
                wrong.push(format!("process {pid} of the other machine has ended"));
            }
        }
        // The zygote blocks signals: one that reached it stays pending.
        if let Some(status) = Status::of(self.zygote).filter(|s| s.pending & URGENT != 0) {
            wrong.push(format!(
                "the other machine's zygote got a signal: {status:?}"
            ));
        }
        drop(self.process.0.stdin.take());
        let count = self.lines.rest_within(PATIENCE);
        if count != "0\n" {
            wrong.push(format!(
                "the process of the user got {} signals",
                count.trim()
            ));
        }
        wrong.extend(end(
            &mut self.machine.0,
            &[&self.spaces[..], &[self.zygote]].concat(),
        ));
        wrong
    }
}

/// Ends a machine as a user does. Returns what was wrong with that.
fn end(monitor: &mut Child, processes: &[u32]) -> Option<String> {
    let start = Instant::now();
    tree::signal(monitor.id(), Signal::TERM);
    while start.elapsed() < END {
        if let Some(status) = monitor.try_wait().unwrap() {
            let left = tree::wait_gone(processes).err();
            return left.or_else(|| {
                (status.code() != Some(143)).then(|| format!("the machine ended with {status}"))
            });
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Some(format!("the machine did not end in {END:?}"))
}
