// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Users and their named machines. Panics when something is not as expected, since that fails the
//! test.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use crate::{program, vm, wait};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// A user without machines at first. The machines of the user end with the test.
#[derive(Debug)]
pub struct User(TempDir);

impl User {
    /// A user with no machines.
    #[must_use]
    #[allow(clippy::new_without_default)] // It makes a folder.
    pub fn new() -> Self {
        User(tempfile::tempdir().unwrap())
    }

    /// The program, as that user, with these arguments.
    #[must_use]
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = program::command();
        command.env("XDG_STATE_HOME", self.0.path()).args(words);
        command
    }

    /// Runs the program.
    pub fn run(&self, words: &[&str]) -> program::Run {
        program::finish(&mut self.command(words))
    }

    /// Runs the program, which must succeed. Returns what it printed.
    pub fn ok(&self, words: &[&str]) -> String {
        let run = self.run(words);
        assert_eq!(
            (run.code, run.stderr.as_str()),
            (0, ""),
            "{words:?}: {run:?}"
        );
        run.stdout
    }

    /// Runs the program, which must fail with one line of explanation. Returns that line.
    pub fn refused(&self, words: &[&str], part: &str) {
        let run = self.run(words);
        assert_eq!(
            (run.code, run.stderr.lines().count()),
            (2, 1),
            "{words:?}: {run:?}"
        );
        assert!(
            run.stderr.starts_with("paravane: ") && run.stderr.contains(part),
            "{run:?}"
        );
    }

    /// Runs a script in a background machine. Returns what was printed.
    pub fn detach(&self, options: &[&str], script: &str) -> String {
        let mut command = vm::command(["--detach"]);
        command.args(options).args(["--", "sh", "-c", script]);
        let run = program::finish(command.env("XDG_STATE_HOME", self.0.path()));
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
        run.stdout.trim_end().to_string()
    }

    /// The output of `inspect`.
    pub fn inspect(&self, name: &str) -> Value {
        serde_json::from_str(&self.ok(&["inspect", name])).unwrap()
    }

    /// The state in the output of `inspect`.
    pub fn state(&self, name: &str) -> String {
        self.inspect(name)["state"].as_str().unwrap().to_string()
    }

    /// The process id of a machine's monitor.
    pub fn monitor(&self, name: &str) -> u32 {
        self.inspect(name)["pid"]
            .as_u64()
            .unwrap()
            .try_into()
            .unwrap()
    }

    /// Waits until a machine is in that state.
    pub fn wait_for(&self, name: &str, state: &str) {
        let wanted = state.to_string();
        wait::equal(Duration::from_secs(30), &wanted, || self.state(name));
    }
}

impl User {
    /// The folder with all files of this user.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let list = self.run(&["ps", "--all", "--json"]).stdout;
        let all: Vec<Value> = serde_json::from_str(&list).unwrap_or_default();
        for machine in all {
            self.run(&[
                "rm",
                "--force",
                machine["name"].as_str().unwrap_or_default(),
            ]);
        }
    }
}
