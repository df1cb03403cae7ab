// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A user's vbusd.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc)] // A failed setup fails the test.

use crate::program::{self, Run};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

/// A user's vbusd, which is killed with the value.
#[derive(Debug)]
pub struct Vbusd {
    /// Its process.
    pub child: Child,
    /// The folder for `XDG_STATE_HOME`.
    pub state: TempDir,
}

impl Vbusd {
    /// With these buses, and a switch of its own on each: `lan-switch` on `lan`.
    #[must_use]
    pub fn start(buses: &[&str]) -> Self {
        let state = tempfile::tempdir().unwrap();
        let daemon = Vbusd {
            child: spawn(&state),
            state,
        };
        for bus in buses {
            let switch = format!("{bus}-switch");
            daemon.done(&["create-bus", bus]);
            daemon.done(&["create-device", &switch, "venet-switch"]);
            daemon.done(&["link", bus, &switch]);
        }
        daemon
    }

    /// `paravane vbus` with these words.
    #[must_use]
    pub fn administer(&self, words: &[&str]) -> Run {
        administer(&self.state, words)
    }

    /// The same where it must succeed. Returns what it prints.
    #[expect(clippy::must_use_candidate, reason = "most callers want the effect")]
    pub fn done(&self, words: &[&str]) -> String {
        let run = self.administer(words);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{words:?}");
        run.stdout
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        folder(&self.state)
    }

    /// Its socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder().join("socket")
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Another one with the same state.
    pub fn again(&mut self) {
        self.child = spawn(&self.state);
    }
}

impl Drop for Vbusd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn folder(state: &TempDir) -> PathBuf {
    state.path().join("paravane/vbus")
}

fn administer(state: &TempDir, words: &[&str]) -> Run {
    let socket = folder(state).join("socket");
    let mut all = vec!["vbus"];
    all.extend(words);
    all.extend(["--socket", socket.to_str().unwrap()]);
    program::run(all)
}

fn spawn(state: &TempDir) -> Child {
    let mut command = Command::new(program::path());
    command.args(["vbus", "daemon", "--folder"]);
    let child = command.arg(folder(state)).spawn().unwrap();
    let begun = Instant::now();
    while administer(state, &["ls"]).code != 0 {
        assert!(begun.elapsed() < PATIENCE, "vbusd does not listen");
        thread::sleep(Duration::from_millis(20));
    }
    child
}
