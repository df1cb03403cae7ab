// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the `paravane` program.

use crate::conditions::by_length;
use crate::lines::Lines;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// The longest that a test waits for a program, unless it says how long: less than the time after
/// which its test program is ended (`scripts/lanes.sh`), so that the test reports what it waited
/// for.
pub const LONGEST: Duration = Duration::from_secs(600);
/// The longest that a test waits in a long run, and for a program that may build Linux.
pub const LONGEST_OF_ALL: Duration = Duration::from_secs(3600);
/// Within this time a machine does what it does at once on an idle host: prints a line, or ends
/// when it is asked to.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// For how long the pipes of a killed process are read.
const LAST_WORDS: Duration = Duration::from_secs(1);

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
/// When there is no such pipe, or no line comes.
#[must_use]
pub fn first_line(child: &mut Child) -> String {
    let output = child.stdout.take().unwrap_or_else(|| fail("no pipe"));
    Lines::of(Some(output)).next_within(PATIENCE)
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

/// How long [`finish`] waits.
fn longest() -> Duration {
    by_length(LONGEST, LONGEST_OF_ALL)
}

/// The program, without arguments yet.
#[must_use]
pub fn command() -> Command {
    prepared(path())
}

/// The program with the hooks that only tests use, without arguments yet.
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
/// When it cannot be started, or does not end.
pub fn run<I: IntoIterator<Item = S>, S: AsRef<std::ffi::OsStr>>(words: I) -> Run {
    finish(command().args(words))
}

/// Runs a prepared command, without input. To give it an input, or to keep its output elsewhere,
/// start it and use [`finish_child`].
///
/// # Panics
/// When it cannot be started, or does not end.
pub fn finish(command: &mut Command) -> Run {
    let ended = finish_within(command, longest());
    ended.unwrap_or_else(|run| fail(&format!("{command:?} has not ended: {run:?}")))
}

/// Waits for a process that was started. Returns what its pipes carry.
///
/// # Panics
/// When it does not end.
#[must_use]
pub fn finish_child(child: Child) -> Run {
    let ended = end_of(child, longest());
    ended.unwrap_or_else(|run| fail(&format!("the process has not ended: {run:?}")))
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
    match command.spawn() {
        Ok(child) => end_of(child, limit),
        Err(error) => fail(&format!("{command:?} cannot be run: {error}")),
    }
}

/// A process and its pipes must end within `limit`. Afterwards it is killed, and what it has said
/// until then is the error.
fn end_of(child: Child, limit: Duration) -> Result<Run, Run> {
    let deadline = Instant::now() + limit;
    let mut child = Ends(child);
    drop(child.0.stdin.take());
    let stdout = Lines::of(child.0.stdout.take());
    let stderr = Lines::of(child.0.stderr.take());
    let left = || deadline.saturating_duration_since(Instant::now());
    // Its end closes the pipes, unless a process of its own lives on.
    let all_said = stdout.end_within(left()) && stderr.end_within(left());
    let status = status_within(&mut child.0, left());
    drop(child);
    if !all_said {
        // The output of a killed process is in the pipes. They may stay open for ever.
        let _ = stdout.end_within(LAST_WORDS) && stderr.end_within(LAST_WORDS);
    }
    let run = Run {
        code: status.and_then(|status| status.code()).unwrap_or(-1),
        stdout: stdout.so_far(),
        stderr: stderr.so_far(),
    };
    if all_said && status.is_some() {
        Ok(run)
    } else {
        Err(run)
    }
}

/// Waits for the end of a process, which has closed its input then.
///
/// # Panics
/// When it does not end within `limit`. It is killed.
pub fn wait_within(child: &mut Child, limit: Duration) -> ExitStatus {
    drop(child.stdin.take());
    status_within(child, limit).unwrap_or_else(|| {
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
        fail(&format!(
            "process {} has not ended in {limit:?}",
            child.id()
        ))
    })
}

/// Waits for the end of a process for a limited time, and leaves it alone afterwards.
///
/// # Panics
/// When it cannot be waited for.
pub fn status_within(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < deadline => thread::sleep(pause),
            Ok(status) => return status,
            Err(error) => fail(&format!("process {}: {error}", child.id())),
        }
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::{Run, end_of, finish_within, wait_within};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    const SHORT: Duration = Duration::from_secs(2);
    const LONG: Duration = Duration::from_secs(60);

    fn said(run: &Run) -> (i32, &str, &str) {
        (run.code, &run.stdout, &run.stderr)
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_a_command_says_is_its_result() {
        let script = "cat; echo out; echo err >&2; exit 3";
        let run = finish_within(&mut shell(script), LONG).unwrap();
        assert_eq!(said(&run), (3, "out\n", "err\n"));
    }

    #[test]
    fn an_input_of_the_caller_is_kept() {
        let mut command = shell("cat; exit 4");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "input").unwrap();
        command.stdin(file.reopen().unwrap()).stdout(Stdio::piped());
        let run = end_of(command.spawn().unwrap(), LONG).unwrap();
        assert_eq!(said(&run), (4, "input", ""));
        // A pipe as input ends at once, because the test writes nothing.
        command.stdin(Stdio::piped());
        let run = end_of(command.spawn().unwrap(), LONG).unwrap();
        assert_eq!(said(&run), (4, "", ""));
    }

    #[test]
    fn a_command_that_does_not_end_is_killed() {
        let begun = Instant::now();
        let run = finish_within(&mut shell("echo begun; exec sleep 60"), SHORT).unwrap_err();
        assert_eq!(said(&run), (-1, "begun\n", ""));
        // Another process keeps the pipes.
        let run = finish_within(&mut shell("echo begun; sleep 30; true"), SHORT).unwrap_err();
        assert_eq!(said(&run), (-1, "begun\n", ""));
        let run = finish_within(&mut shell("sleep 30 & exit 5"), SHORT).unwrap_err();
        assert_eq!(said(&run), (5, "", ""));
        assert!(begun.elapsed() < LONG / 2, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_process_that_is_waited_for_in_vain_is_killed() {
        let mut child = shell("cat; exit 6").stdin(Stdio::piped()).spawn().unwrap();
        assert_eq!(wait_within(&mut child, LONG).code(), Some(6));
        let mut child = shell("exec sleep 60").spawn().unwrap();
        let waited = catch_unwind(AssertUnwindSafe(|| wait_within(&mut child, SHORT)));
        let message = *waited.unwrap_err().downcast::<String>().unwrap();
        let expected = format!("process {} has not ended in 2s", child.id());
        assert_eq!(message, expected);
        assert_eq!(child.try_wait().unwrap().unwrap().code(), None);
    }
}
