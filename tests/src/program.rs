// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the `paravane` program.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The program. Builds it if it is not up to date.
///
/// Cargo tells a test the path of a program only inside the program's own package. So this asks
/// cargo to build it, for the same profile and into the same folder, where it usually exists
/// already.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| build("paravane", &[]).unwrap_or_else(|message| fail(&message)))
}

/// The program with the hooks that only tests use (feature `test-hooks` of the package `paravane`).
///
/// # Panics
/// When it cannot be built.
pub fn path_with_hooks() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    let features = ["--features", "test-hooks"];
    PATH.get_or_init(|| {
        build("paravane-test-hooks", &features).unwrap_or_else(|message| fail(&message))
    })
}

/// Another program of the tests, from `src/bin`. Cargo has built it for the test that calls this.
///
/// # Panics
/// When it does not exist.
#[must_use]
pub fn tool(name: &str) -> PathBuf {
    let this =
        std::env::current_exe().unwrap_or_else(|e| fail(&format!("where is this test? {e}")));
    let found = profile(&this).map(|folder| folder.join(name));
    found
        .filter(|path| path.is_file())
        .unwrap_or_else(|| fail(&format!("{name} was not built")))
}

/// The folder of a profile, such as target/debug. `this` is target/PROFILE/deps/TEST or
/// target/PROFILE/PROGRAM.
fn profile(this: &Path) -> Option<&Path> {
    let folder = this.parent()?;
    if folder.ends_with("deps") {
        folder.parent()
    } else {
        Some(folder)
    }
}

#[allow(clippy::panic)] // A panic fails the test.
fn fail(message: &str) -> ! {
    panic!("{message}")
}

/// The folder target/PROFILE of this test.
fn profile_folder() -> Result<PathBuf, String> {
    let this = std::env::current_exe().map_err(|e| format!("where is this test? {e}"))?;
    let found = profile(&this).ok_or("this test is not in a target folder")?;
    Ok(found.to_path_buf())
}

/// Cargo's target folder.
pub(crate) fn target_folder() -> Result<PathBuf, String> {
    let profile = profile_folder()?;
    let target = profile
        .parent()
        .ok_or("this test is not in a target folder")?;
    Ok(target.to_path_buf())
}

fn build(program: &str, features: &[&str]) -> Result<PathBuf, String> {
    let profile = profile_folder()?;
    let target = target_folder()?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args([
        "build",
        "--quiet",
        "--package",
        "paravane",
        "--bin",
        program,
        "--manifest-path",
    ]);
    command
        .arg(crate::source_root().join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .args(features);
    if profile.ends_with("release") {
        command.arg("--release");
    }
    match command.status() {
        Ok(status) if status.success() => Ok(profile.join(program)),
        Ok(status) => Err(format!("cargo build failed: {status}")),
        Err(error) => Err(format!("cargo cannot be run: {error}")),
    }
}

/// A process that is killed when this value is dropped.
#[derive(Debug)]
pub struct Ends(pub Child);

impl Drop for Ends {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The first line that a process prints, which its pipe for standard output carries; what it prints
/// after it is lost.
///
/// # Panics
/// When there is no such pipe, or no text.
#[must_use]
pub fn first_line(child: &mut Child) -> String {
    let output = child.stdout.take().unwrap_or_else(|| fail("no pipe"));
    let mut line = String::new();
    let read = BufReader::new(output).read_line(&mut line);
    read.unwrap_or_else(|e| fail(&format!("no first line: {e}")));
    line
}

/// The result of a run of the program.
#[derive(Debug)]
pub struct Run {
    /// Exit code, -1 if a signal ended it.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Run {
    /// From the output of a command.
    #[must_use]
    pub fn of(output: &Output) -> Self {
        Run {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The last line of standard output.
    #[must_use]
    pub fn last_line(&self) -> &str {
        self.stdout.lines().last().unwrap_or_default()
    }

    /// The result of one test in the TAP on standard output: `Some(true)` for ok.
    #[must_use]
    pub fn tap_result(&self, test: &str) -> Option<bool> {
        self.stdout.lines().find_map(|line| {
            let (status, name) = line.split_once(" - ")?;
            // Without the directive, if there is one.
            if name.split(" # ").next() != Some(test) {
                return None;
            }
            Some(!status.starts_with("not "))
        })
    }
}

/// The program, without arguments yet.
#[must_use]
pub fn command() -> Command {
    prepared(path())
}

/// The same of the program with the hooks that only tests use.
#[must_use]
pub fn command_with_hooks() -> Command {
    prepared(path_with_hooks())
}

fn prepared(program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env("RUST_BACKTRACE", "1")
        // Also where KVM is fast: most tests are about machines of processes.
        .env("PARAVANE_HYPERVISOR", "process")
        .stdin(Stdio::null());
    command
}

/// Runs the program with these arguments.
///
/// # Panics
/// When it cannot be started.
pub fn run<I: IntoIterator<Item = S>, S: AsRef<std::ffi::OsStr>>(words: I) -> Run {
    finish(command().args(words))
}

/// Runs a prepared command.
///
/// # Panics
/// When it cannot be started.
pub fn finish(command: &mut Command) -> Run {
    match command.output() {
        Ok(output) => Run::of(&output),
        Err(error) => fail(&format!("{command:?} cannot be run: {error}")),
    }
}

/// Runs a prepared command that must end within `limit`: what it has said by then is of use when it
/// does not, which is the error.
///
/// # Panics
/// When it cannot be started.
pub fn finish_within(command: &mut Command, limit: Duration) -> Result<Run, Run> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let started = command.spawn();
    let child = started.unwrap_or_else(|e| fail(&format!("{command:?} cannot be run: {e}")));
    let mut child = Ends(child);
    let stdout = collect(child.0.stdout.take());
    let stderr = collect(child.0.stderr.take());
    let begun = Instant::now();
    let status = loop {
        match child.0.try_wait() {
            Ok(None) if begun.elapsed() < limit => thread::sleep(Duration::from_millis(20)),
            Ok(status) => break status,
            Err(error) => fail(&format!("{command:?}: {error}")),
        }
    };
    // Its end closes the pipes, unless a process of its own lives on.
    drop(child);
    let text = |thread: JoinHandle<Vec<u8>>| {
        let bytes = thread.join().unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let run = Run {
        code: status.and_then(|status| status.code()).unwrap_or(-1),
        stdout: text(stdout),
        stderr: text(stderr),
    };
    if status.is_some() { Ok(run) } else { Err(run) }
}

/// Reads a pipe to its end.
fn collect(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What has come before an error is kept.
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}
