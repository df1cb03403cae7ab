// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A user's vbusd.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc)] // A failed setup fails the test.

use crate::host_without::{NOBODY, Programs};
use crate::program::{self, Run};
use crate::{linux, vm};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
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
    /// Where it finds programs, if not where the test does.
    path: Option<PathBuf>,
    /// Programs that an ordinary user may run, if it is that user's.
    ordinary: Option<Programs>,
}

impl Vbusd {
    /// With these buses, and a switch of its own on each: `lan-switch` on `lan`.
    #[must_use]
    pub fn start(buses: &[&str]) -> Self {
        Self::with(None, None, buses)
    }

    /// With these buses; it finds programs in this folder alone.
    #[must_use]
    pub fn start_with_path(path: &Path, buses: &[&str]) -> Self {
        Self::with(None, Some(path.to_path_buf()), buses)
    }

    /// Starts it with these buses as an ordinary user, who has these other programs of the tests,
    /// too. Only root can start it.
    #[must_use]
    pub fn start_as_ordinary_user(programs: &[&str], buses: &[&str]) -> Self {
        let programs = Programs::new(programs);
        let kernel = vm::kernel().unwrap_or_else(linux::kernel);
        fs::copy(kernel, programs.path("vmlinux")).unwrap();
        Self::with(Some(programs), None, buses)
    }

    fn with(ordinary: Option<Programs>, path: Option<PathBuf>, buses: &[&str]) -> Self {
        let state = tempfile::tempdir().unwrap();
        if ordinary.is_some() {
            chown(state.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let daemon = Vbusd {
            child: spawn(&state, ordinary.as_ref(), path.as_deref()),
            state,
            path,
            ordinary,
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
        administer(&self.state, self.ordinary.as_ref(), words)
    }

    /// `paravane run` with these options, as its user.
    #[must_use]
    pub fn machine(&self, options: &[&str]) -> Command {
        let mut command = match &self.ordinary {
            Some(programs) => run(programs, NOBODY, &self.state, options),
            None => vm::command(options),
        };
        command.env("XDG_STATE_HOME", self.state.path());
        command
    }

    /// Another program of the tests, as its user.
    #[must_use]
    pub fn tool(&self, name: &str) -> Command {
        match &self.ordinary {
            Some(programs) => as_user(NOBODY, Command::new(programs.path(name))),
            None => Command::new(program::tool(name)),
        }
    }

    /// Another ordinary user, who reaches the socket of this one's vbusd: its folders let others
    /// pass, and no more.
    #[must_use]
    pub fn other(&self, user: u32) -> Other<'_> {
        let folder = self.folder();
        for folder in folder.ancestors().take(3) {
            fs::set_permissions(folder, Permissions::from_mode(0o711)).unwrap();
        }
        let home = tempfile::tempdir().unwrap();
        let own = self::folder(&home);
        fs::create_dir_all(&own).unwrap();
        symlink(self.socket(), own.join("socket")).unwrap();
        for folder in own.ancestors().take(3) {
            chown(folder, Some(user), Some(user)).unwrap();
        }
        Other {
            programs: self.ordinary.as_ref().unwrap(),
            user,
            home,
        }
    }

    /// A figure of a device.
    #[must_use]
    pub fn figure(&self, device: &str, name: &str) -> u64 {
        let text = self.done(&["show", device, name]);
        text.trim_end().parse().unwrap()
    }

    /// The user that it runs as.
    #[must_use]
    pub fn user(&self) -> u32 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        let effective = line.unwrap().split_whitespace().nth(1);
        effective.unwrap().parse().unwrap()
    }

    /// `paravane vbus` with these words, which must succeed. Returns what it prints.
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
        self.child = spawn(&self.state, self.ordinary.as_ref(), self.path.as_deref());
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

/// Another ordinary user. The socket of vbusd is where this user's own would be.
#[derive(Debug)]
pub struct Other<'a> {
    programs: &'a Programs,
    user: u32,
    home: TempDir,
}

impl Other<'_> {
    /// `paravane run` with these options.
    #[must_use]
    pub fn machine(&self, options: &[&str]) -> Command {
        let mut command = run(self.programs, self.user, &self.home, options);
        command.env("XDG_STATE_HOME", self.home.path());
        command
    }

    /// `paravane vbus` with these words.
    #[must_use]
    pub fn administer(&self, words: &[&str]) -> Run {
        let mut command = paravane_of(self.programs, self.user, &self.home);
        command.arg("vbus").args(words).arg("--socket");
        program::finish(command.arg(self.socket()))
    }

    /// Another program of the tests.
    #[must_use]
    pub fn tool(&self, name: &str) -> Command {
        as_user(self.user, Command::new(self.programs.path(name)))
    }

    /// The socket of vbusd.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        folder(&self.home).join("socket")
    }
}

fn as_user(user: u32, mut command: Command) -> Command {
    command.uid(user).gid(user).current_dir("/");
    command
}

/// The program, as a user with this home.
fn paravane_of(programs: &Programs, user: u32, home: &TempDir) -> Command {
    let mut command = as_user(user, Command::new(programs.path("paravane")));
    command.env("PARAVANE_HYPERVISOR", "process");
    command.env("HOME", home.path()).stdin(Stdio::null());
    command
}

fn run(programs: &Programs, user: u32, home: &TempDir, options: &[&str]) -> Command {
    let mut command = paravane_of(programs, user, home);
    command.arg("run").arg("--kernel");
    command.arg(programs.path("vmlinux")).args(options);
    command
}

/// The program, as the user.
fn paravane(state: &TempDir, ordinary: Option<&Programs>) -> Command {
    match ordinary {
        Some(programs) => paravane_of(programs, NOBODY, state),
        None => program::command(),
    }
}

fn administer(state: &TempDir, ordinary: Option<&Programs>, words: &[&str]) -> Run {
    let socket = folder(state).join("socket");
    let mut command = paravane(state, ordinary);
    command.arg("vbus").args(words);
    program::finish(command.arg("--socket").arg(socket))
}

fn spawn(state: &TempDir, ordinary: Option<&Programs>, path: Option<&Path>) -> Child {
    let mut command = paravane(state, ordinary);
    command.args(["vbus", "daemon", "--folder"]);
    if let Some(path) = path {
        command.env("PATH", path);
    }
    let child = command.arg(folder(state)).spawn().unwrap();
    let begun = Instant::now();
    while administer(state, ordinary, &["ls"]).code != 0 {
        assert!(begun.elapsed() < PATIENCE, "vbusd does not listen");
        thread::sleep(Duration::from_millis(20));
    }
    child
}
