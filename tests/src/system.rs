// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A complete Debian with its systemd, in the background.

use crate::program::{self, Run};
use crate::vm;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

const NAME: &str = "debian";

/// The machine. It has a user of its own, and ends when this value is dropped.
#[derive(Debug)]
pub struct System(TempDir);

impl System {
    /// Starts it on an image, which stays unchanged.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    #[allow(clippy::unwrap_used)] // A failed setup fails the test.
    pub fn start(image: &Path, options: &[&str]) -> Self {
        let system = System(tempfile::tempdir().unwrap());
        let root = format!("{}:snapshot", image.display());
        let mut command = vm::command(["--detach", "--name", NAME, "--rootfs", &root]);
        let run = system.finish(command.args(options));
        assert_eq!((run.code, run.stdout.as_str()), (0, "debian\n"), "{run:?}");
        system
    }

    fn finish(&self, command: &mut Command) -> Run {
        program::finish(command.env("XDG_STATE_HOME", self.0.path()))
    }

    /// The program, as that user.
    #[must_use]
    pub fn run(&self, words: &[&str]) -> Run {
        self.finish(program::command().args(words))
    }

    /// Runs the program, which must succeed. Returns what it printed.
    ///
    /// # Panics
    /// When it fails.
    #[must_use]
    pub fn ok(&self, words: &[&str]) -> String {
        let run = self.run(words);
        assert_eq!(run.code, 0, "{words:?}: {run:?}");
        run.stdout
    }

    /// Runs a command in the guest, which must succeed. Returns what it printed.
    #[must_use]
    pub fn inside(&self, words: &[&str]) -> String {
        self.ok(&[&["exec", NAME, "--"], words].concat())
    }

    /// Runs a script in the guest, which must succeed.
    #[must_use]
    pub fn shell(&self, script: &str) -> String {
        self.inside(&["sh", "-c", script])
    }

    /// Copies a file into the guest.
    pub fn copy_in(&self, file: &Path, to: &str) {
        let _ = self.ok(&["cp", &file.display().to_string(), &format!("{NAME}:{to}")]);
    }

    /// Waits until the boot is complete.
    ///
    /// # Panics
    /// When a unit has failed.
    pub fn is_up(&self) {
        let state = self.run(&[
            "exec",
            NAME,
            "--",
            "systemctl",
            "is-system-running",
            "--wait",
        ]);
        let failed = self.inside(&["systemctl", "--failed", "--plain", "--no-legend"]);
        assert_eq!(
            (state.stdout.as_str(), failed.as_str()),
            ("running\n", ""),
            "{}",
            self.inside(&[
                "journalctl",
                "--boot",
                "--priority",
                "warning",
                "--no-pager"
            ])
        );
    }
}

impl Drop for System {
    fn drop(&mut self) {
        let _ = self.run(&["rm", "--force", NAME]);
    }
}
