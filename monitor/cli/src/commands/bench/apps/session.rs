// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One side of a measurement: a process that runs scripts in a root, on the host or in a guest. It
//! stays for many turns. `driver.sh` is its other end.

use anyhow::{Context, bail};
use paravane_user_io::events::{PollFlags, Waits, is_ready};
use paravane_user_io::signals::{Interrupted, Signals};
use paravane_user_io::text;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The program of each side, for bash.
pub const DRIVER: &str = include_str!("driver.sh");
/// Prints the last messages of the guest's kernel in a line: they say where a program was killed.
const KERNEL_SAID: &str = "dmesg | tail -n 4 | tr '\\n' ';'";
/// A shell's exit code for a command that a signal killed is larger.
const BY_SIGNAL: u32 = 128;
/// The most that is kept of what a side prints between two answers, in bytes.
const LINES_MAX: usize = 64 << 10;
/// The most that is read of what a side printed on stderr, in bytes.
const ERRORS_MAX: u64 = 64 << 10;
/// The time that a side has for its end after its input has ended.
const ENDING: Duration = Duration::from_secs(10);
/// The time after which something is typed again that has had no answer.
const AGAIN: Duration = Duration::from_secs(5);
/// The interval between two looks at a process that ends.
const LOOK: Duration = Duration::from_millis(5);

/// What a session needs besides its command.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// Signals that end it.
    pub signals: &'a Signals,
    /// The longest time for its start, and for each script.
    pub timeout: Duration,
}

/// How a side ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At the end of its input. In the middle of a script it is killed, and everything with it.
    Namespaces,
    /// At the end of its input. In the middle of a script SIGTERM ends it, for it has files.
    Machine,
    /// It is killed: a console has no end of input.
    Console,
}

/// A side that runs.
#[derive(Debug)]
pub struct Session<'a> {
    /// The name in error messages.
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    /// Output that nothing has read yet.
    unread: Vec<u8>,
    errors: File,
    end: End,
    /// Whether it is in the middle of a script, or of its start.
    busy: bool,
    terms: Terms<'a>,
}

/// The answer to a script that succeeded.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The time that it took by the side's own clock.
    pub seconds: f64,
    /// The last line that it printed.
    pub line: String,
}

/// What is wrong with a script. Its side goes on with the next one, unlike after other errors.
#[derive(Debug, thiserror::Error)]
#[error("{side}: {what}")]
pub struct Wrong {
    side: String,
    what: String,
}

impl<'a> Session<'a> {
    /// Starts a command that becomes the driver, and waits until it is ready.
    pub fn start(name: &str, command: Command, end: End, terms: Terms<'a>) -> anyhow::Result<Self> {
        let mut session = Self::spawn(name, command, end, terms)?;
        session.ready()?;
        Ok(session)
    }

    /// Starts a command with a shell at its console, types something and waits for the answer.
    pub fn at_console(
        name: &str,
        command: Command,
        typed: &str,
        answer: &str,
        terms: Terms<'a>,
    ) -> anyhow::Result<Self> {
        let mut session = Self::spawn(name, command, End::Console, terms)?;
        let deadline = Instant::now() + terms.timeout;
        loop {
            // A console loses what comes before its driver is there.
            session.send(typed)?;
            let again = deadline.min(Instant::now() + AGAIN);
            while let Some(line) = session.line_until(again)? {
                if line.ends_with(answer) {
                    return Ok(session);
                }
            }
            if Instant::now() >= deadline {
                return session.too_late();
            }
        }
    }

    /// Types what makes the driver of the shell, and waits until it is ready.
    pub fn type_in(&mut self, text: &str) -> anyhow::Result<()> {
        self.send(text)?;
        self.ready()
    }

    fn spawn(name: &str, mut command: Command, end: End, terms: Terms<'a>) -> anyhow::Result<Self> {
        let errors = tempfile::tempfile().context("cannot make a temporary file")?;
        let signal = match end {
            End::Machine => Signal::TERM,
            End::Namespaces | End::Console => Signal::KILL,
        };
        // SAFETY: runs between fork and exec, and makes only one system call.
        unsafe {
            // Nothing else ends the side in the middle of a script when this program is killed.
            command.pre_exec(move || Ok(set_parent_process_death_signal(Some(signal))?));
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors.try_clone()?)
            .spawn()
            .with_context(|| format!("cannot run {}", command.get_program().to_string_lossy()))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("{name}: no pipes to it");
        };
        Ok(Session {
            name: name.to_string(),
            child,
            input: Some(input),
            output,
            unread: Vec::new(),
            errors,
            end,
            busy: true,
            terms,
        })
    }

    /// Waits for the driver.
    fn ready(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + self.terms.timeout;
        // A prompt may be before the words.
        while !self.line(deadline)?.ends_with("bench ready") {}
        self.busy = false;
        Ok(())
    }

    /// The id of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Runs a script. Fails with [`Wrong`] if the script does.
    pub fn run(&mut self, script: &str) -> anyhow::Result<Answer> {
        let line = script.replace('\\', r"\\").replace('\n', r"\n");
        self.busy = true;
        self.send(&format!("{line}\n"))?;
        let deadline = Instant::now() + self.terms.timeout;
        let (status, seconds) = loop {
            // The kernel's messages may be among the lines of a console.
            if let Some(done) = self.line(deadline)?.strip_prefix("bench done ") {
                break parse(done).with_context(|| format!("{}: {done:?}", self.name))?;
            }
        };
        let (line, error) = (self.line(deadline)?, self.line(deadline)?);
        self.busy = false;
        if status != 0 {
            let why = if error.is_empty() { &line } else { &error };
            let mut what = format!("a script failed with {status}: {why}");
            if status > BY_SIGNAL && self.end == End::Machine {
                if let Ok(said) = self.run(KERNEL_SAID) {
                    let _ = write!(what, "; the kernel said: {}", said.line);
                }
            }
            return Err(self.wrong(what));
        }
        Ok(Answer { seconds, line })
    }

    /// An error of its script.
    pub fn wrong(&self, what: String) -> anyhow::Error {
        let side = self.name.clone();
        Wrong { side, what }.into()
    }

    /// Ends it and waits for its end.
    pub fn end(mut self) -> anyhow::Result<()> {
        self.close();
        match self.wait(Instant::now() + ENDING)? {
            Some(_) => Ok(()),
            None => bail!("{}: it does not end", self.name),
        }
    }

    /// Makes it end.
    fn close(&mut self) {
        self.input = None;
        if self.end == End::Machine {
            if self.busy && matches!(self.child.try_wait(), Ok(None)) {
                let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            }
        } else if self.busy || self.end == End::Console {
            // It may have ended by now.
            let _ = self.child.kill();
        }
    }

    fn wait(&mut self, deadline: Instant) -> anyhow::Result<Option<ExitStatus>> {
        loop {
            let status = self.child.try_wait().context("cannot wait for a process")?;
            if status.is_some() || Instant::now() >= deadline {
                return Ok(status);
            }
            std::thread::sleep(LOOK);
        }
    }

    fn send(&mut self, text: &str) -> anyhow::Result<()> {
        let sent = match &mut self.input {
            Some(input) => input
                .write_all(text.as_bytes())
                .and_then(|()| input.flush()),
            None => Ok(()),
        };
        match sent {
            Ok(()) => Ok(()),
            Err(_) => self.over(),
        }
    }

    /// The next line that it prints.
    fn line(&mut self, deadline: Instant) -> anyhow::Result<String> {
        match self.line_until(deadline)? {
            Some(line) => Ok(line),
            None => self.too_late(),
        }
    }

    fn too_late<T>(&self) -> anyhow::Result<T> {
        let limit = self.terms.timeout.as_secs();
        bail!("{}: no answer after {limit} s (--timeout)", self.name)
    }

    /// The next line that it prints before the deadline.
    fn line_until(&mut self, deadline: Instant) -> anyhow::Result<Option<String>> {
        loop {
            if let Some(end) = self.unread.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return Ok(Some(text::clean(&line).trim_end().to_string()));
            }
            if self.unread.len() > LINES_MAX {
                bail!("{}: it prints a line without an end", self.name);
            }
            if let Some(signal) = self.terms.signals.pending() {
                return Err(Interrupted(signal).into());
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            let mut waits = Waits::default();
            waits.to_read(self.output.as_fd());
            waits.to_read(self.terms.signals.wake());
            waits.until(deadline);
            waits.wait()?;
            if !is_ready(self.output.as_fd(), PollFlags::IN | PollFlags::HUP) {
                continue;
            }
            let mut piece = [0; 4096];
            match self
                .output
                .read(&mut piece)
                .context("cannot read from a pipe")?
            {
                0 => return self.over(),
                read => self
                    .unread
                    .extend_from_slice(piece.get(..read).unwrap_or(&piece)),
            }
        }
    }

    /// The error that it has ended by itself.
    fn over<T>(&mut self) -> anyhow::Result<T> {
        if let Some(signal) = self.terms.signals.pending() {
            return Err(Interrupted(signal).into());
        }
        let status = self.wait(Instant::now() + ENDING)?;
        let status = status.map_or("no exit code".to_string(), |status| status.to_string());
        let mut said = Vec::new();
        let _ = self.errors.seek(SeekFrom::Start(0));
        let _ = (&self.errors).take(ERRORS_MAX).read_to_end(&mut said);
        let said = String::from_utf8_lossy(&said).into_owned();
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        bail!(
            "{}: it has ended ({status}): {}",
            self.name,
            text::clean(last.unwrap_or("without a message").as_bytes())
        )
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.close();
        if !matches!(self.wait(Instant::now() + ENDING), Ok(Some(_))) {
            // It may have ended by now. Its processes end with it.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Parses `STATUS MICROSECONDS`.
fn parse(text: &str) -> anyhow::Result<(u32, f64)> {
    if let [status, time] = text.split(' ').collect::<Vec<_>>()[..] {
        if let (Ok(status), Ok(time)) = (status.parse(), time.parse::<u32>()) {
            return Ok((status, f64::from(time) / 1e6));
        }
    }
    bail!("an exit code and a time were expected")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn bash(script: &str) -> Command {
        let mut command = Command::new("bash");
        command.args(["-c", &script.replace("cd /srv", ":")]);
        command
    }

    /// The driver, without a root of its own: this is its folder for temporary files.
    fn driver(temporary: &tempfile::TempDir) -> Command {
        bash(&DRIVER.replace("/tmp/", &format!("{}/", temporary.path().display())))
    }

    fn with<T>(act: impl FnOnce(Terms<'_>) -> T) -> T {
        let signals = Signals::install().unwrap();
        act(Terms {
            signals: &signals,
            timeout: Duration::from_secs(20),
        })
    }

    #[test]
    fn scripts_are_answered_one_after_the_other() {
        let temporary = tempfile::tempdir().unwrap();
        let left = || fs::read_dir(temporary.path()).unwrap().count();
        with(|terms| {
            let command = driver(&temporary);
            let mut side = Session::start("a side", command, End::Namespaces, terms).unwrap();
            assert_eq!(left(), 1);
            let first = side.run("echo noise; printf 'a b'").unwrap();
            assert_eq!(first.line, "a b");
            let second = side.run("sleep 0.2").unwrap();
            assert_eq!(second.line, "");
            assert!((0.2..10.0).contains(&second.seconds), "{second:?}");
            let third = side.run("printf '%s' 'a\\tb\\\\n'\necho '\\'").unwrap();
            assert_eq!(third.line, r"a\tb\\n\");
            // A script with other bytes than ASCII, and one that reads its input.
            assert_eq!(side.run("echo \u{e4}; cat; echo 1").unwrap().line, "1");
            side.end().unwrap();
        });
        assert_eq!(left(), 0);
    }

    #[test]
    fn a_failure_is_one_line_and_the_side_goes_on() {
        let temporary = tempfile::tempdir().unwrap();
        with(|terms| {
            let command = driver(&temporary);
            let mut side = Session::start("a side", command, End::Namespaces, terms).unwrap();
            let error = side.run("echo no luck >&2; false; true").unwrap_err();
            assert!(error.is::<Wrong>());
            let expected = "a side: a script failed with 1: no luck";
            assert_eq!(error.to_string(), expected);
            let error = side.run("false | cat; true").unwrap_err().to_string();
            assert!(error.contains("failed with 1"), "{error}");
            assert_eq!(side.run("echo 2").unwrap().line, "2");
        });
    }

    #[test]
    fn an_end_too_early_says_why() {
        let temporary = tempfile::tempdir().unwrap();
        with(|terms| {
            let early = bash("echo x; echo no such root >&2; exit 3");
            let error = Session::start("a side", early, End::Namespaces, terms).unwrap_err();
            let expected = "a side: it has ended (exit status: 3): no such root";
            assert_eq!(error.to_string(), expected);
            let command = driver(&temporary);
            let mut side = Session::start("a side", command, End::Namespaces, terms).unwrap();
            let error = side.run("kill -9 $$").unwrap_err();
            assert!(!error.is::<Wrong>());
            let error = error.to_string();
            assert!(error.contains("it has ended (signal: 9"), "{error}");
        });
    }

    #[test]
    fn what_a_console_loses_is_typed_again() {
        with(|terms| {
            // The first line is lost.
            let script = format!(
                "read -r lost; echo noise; exec bash -c '{}'",
                "read -r line; \
                eval \"$line\"; read -r line; echo bench ready; cat >/dev/null"
            );
            let mut side =
                Session::at_console("a side", bash(&script), "echo typing\n", "typing", terms)
                    .unwrap();
            side.type_in("driver\n").unwrap();
            side.end().unwrap();
        });
    }

    #[test]
    fn a_script_without_an_end_is_given_up() {
        let temporary = tempfile::tempdir().unwrap();
        let signals = Signals::install().unwrap();
        let terms = Terms {
            signals: &signals,
            timeout: Duration::from_secs(1),
        };
        let command = driver(&temporary);
        let mut side = Session::start("a side", command, End::Namespaces, terms).unwrap();
        let error = side.run("sleep 5").unwrap_err().to_string();
        assert_eq!(error, "a side: no answer after 1 s (--timeout)");
        let begun = Instant::now();
        drop(side);
        assert!(begun.elapsed() < Duration::from_secs(4));
    }

    #[test]
    fn a_machine_in_the_middle_of_a_script_is_asked_to_end() {
        let folder = tempfile::tempdir().unwrap();
        let asked = folder.path().join("asked");
        let signals = Signals::install().unwrap();
        let terms = Terms {
            signals: &signals,
            timeout: Duration::from_secs(1),
        };
        let script = format!(
            "trap 'touch {}; kill $!; exit' TERM; sleep 1000 & echo bench ready; wait",
            asked.display()
        );
        let mut side = Session::start("a side", bash(&script), End::Machine, terms).unwrap();
        side.run("sleep 1000").unwrap_err();
        drop(side);
        assert!(asked.exists());
    }

    #[test]
    fn answers_are_read_strictly() {
        assert_eq!(parse("0 1500000").unwrap(), (0, 1.5));
        for bad in ["", "0", "0 -1", "x 1", "0 1 2", "0 99999999999999"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
