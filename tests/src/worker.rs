// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines that do one piece of work for each line of input, and the cost of that work.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use crate::lines::Lines;
use crate::{program, vm};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Runs each line that it reads as a command.
pub const COMMANDS: &str = "while read -r line; do eval \"$line\"; echo; done";

/// Every piece of work takes less than this time.
const LONGEST: Duration = Duration::from_secs(600);

/// A machine with the name `one`, of a user of its own.
#[derive(Debug)]
pub struct Worker {
    folder: TempDir,
    child: Child,
    output: Lines,
}

impl Worker {
    /// A machine whose command is this script: for each line that it reads it does some work and
    /// prints a line. It has done so once when this returns. `options` receives a folder that is
    /// removed with the machine. If `by` is given, it starts the monitor with these arguments.
    pub fn start<O: Into<OsString>>(
        by: Option<&str>,
        script: &str,
        options: impl FnOnce(&Path) -> Vec<O>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut machine = vm::command(["--name", "one"]);
        machine.args(options(folder.path()).into_iter().map(Into::into));
        machine.args(["--", "sh", "-c", script]);
        let mut command = match by {
            Some(by) => Command::new(by),
            None => Command::new(machine.get_program()),
        };
        if by.is_some() {
            command.arg(machine.get_program());
        }
        command
            .args(machine.get_args())
            .env("XDG_STATE_HOME", folder.path());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = Lines::of(child.stdout.take());
        let mut worker = Worker {
            folder,
            child,
            output,
        };
        worker.work();
        worker
    }

    /// A machine of one vCPU that carries out commands, and is in a folder of the host, at /x.
    /// `options` are those of the volume, such as `:ro`. `fill` receives the folder, which is
    /// empty.
    pub fn in_volume(options: &str, fill: impl FnOnce(&Path)) -> Self {
        let mut machine = Worker::start(None, COMMANDS, |folder| {
            let shared = folder.join("shared");
            fs::create_dir(&shared).unwrap();
            fill(&shared);
            let volume = format!("{}:/x{options}", shared.display());
            ["--cpus", "1", "--net", "none", "--volume", &volume]
                .map(String::from)
                .to_vec()
        });
        machine.does("cd /x");
        machine
    }

    /// The folder at /x, on the host.
    #[must_use]
    pub fn shared(&self) -> PathBuf {
        self.folder().join("shared")
    }

    /// Has a command carried out that prints nothing.
    pub fn does(&mut self, command: &str) {
        assert_eq!(self.tell(command), "\n", "{command}");
    }

    /// Makes it work once and waits. Returns what it printed.
    pub fn work(&mut self) -> String {
        self.tell("")
    }

    /// Makes it work once, with this text in the line. Returns what it printed.
    pub fn tell(&mut self, line: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        self.output.next_within(LONGEST)
    }

    /// Has a command carried out until it says this. `bound` is the longest time for that.
    pub fn until(&mut self, bound: Duration, command: &str, wanted: &str) {
        let begun = Instant::now();
        loop {
            let asked = begun.elapsed();
            let said = self.tell(command);
            if said.trim() == wanted {
                return;
            }
            assert!(asked < bound, "{command}: {said:?}, not {wanted:?}");
        }
    }

    /// The program, as the machine's user.
    #[must_use]
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = program::command();
        command
            .args(words)
            .env("XDG_STATE_HOME", self.folder.path());
        command
    }

    /// What the machine has done.
    #[must_use]
    pub fn stat(&self) -> Value {
        let run = program::finish(&mut self.command(&["stat", "one", "--json"]));
        assert_eq!(run.code, 0, "{run:?}");
        serde_json::from_str(&run.stdout).unwrap()
    }

    /// Makes it work again and again, each time after a pause. Returns the cost of each time in the
    /// vCPU figures of these names.
    pub fn costs<const N: usize>(
        &mut self,
        pause: Duration,
        times: u32,
        fields: [&str; N],
    ) -> [Vec<u64>; N] {
        let mut costs = [const { vec![] }; N];
        for _ in 0..times {
            let before = self.stat();
            std::thread::sleep(pause);
            self.work();
            let after = self.stat();
            for (costs, field) in costs.iter_mut().zip(fields) {
                costs.push(sum(&after, field) - sum(&before, field));
            }
        }
        costs
    }

    /// The process id of the monitor, or of what started it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The folder that the options received.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ends it. It must end well.
    pub fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(program::wait_within(&mut self.child, program::PATIENCE).success());
    }
}

/// The sum of a figure over all vCPUs.
#[must_use]
pub fn sum(stats: &Value, field: &str) -> u64 {
    let vcpus = stats["vcpus"].as_array().unwrap();
    vcpus.iter().map(|vcpu| vcpu[field].as_u64().unwrap()).sum()
}
