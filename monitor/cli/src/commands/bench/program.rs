// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A static program that measures on a host and in a guest, and prints what it finds in lines.
//!
//! A line is a word and numbers. Around a stream it prints `begin`, and at the end a line with the
//! bytes and the ns, between which the CPU time is taken.

use anyhow::{Context, bail};
use paravane_user_io::signals::Signals;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// The most of an error message that is read, in bytes.
const ERRORS_MAX: u64 = 4096;

/// A process that is ended with the value.
#[derive(Debug)]
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder with a program, for hosts and guests.
pub fn folder(name: &str, program: &[u8]) -> anyhow::Result<TempDir> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let path = folder.path().join(name);
    fs::write(&path, program)
        .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)))
        .with_context(|| path.display().to_string())?;
    Ok(folder)
}

/// Runs a command and passes on each of its lines.
///
/// # Errors
/// It cannot be started or fails, a signal came, or a line was refused.
pub fn run(
    mut command: Command,
    signals: &Signals,
    mut line: impl FnMut(&str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    let mut child = Running(command.spawn().context("cannot start the program")?);
    let output = child.0.stdout.take().context("no pipe")?;
    for text in BufReader::new(output).lines() {
        line(&text.context("the program's output")?)?;
    }
    let status = child.0.wait()?;
    if let Some(signal) = signals.pending() {
        bail!("ended by signal {signal}");
    }
    if !status.success() {
        let mut said = String::new();
        if let Some(errors) = child.0.stderr.take() {
            errors.take(ERRORS_MAX).read_to_string(&mut said)?;
        }
        bail!("the program failed ({status}): {}", said.trim());
    }
    Ok(())
}

/// The number at this place of a line: finite and above 0.
pub fn number(line: &str, index: usize) -> anyhow::Result<f64> {
    let word = line.split_whitespace().nth(index).unwrap_or_default();
    match word.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => bail!("the program said `{line}`"),
    }
}

/// The streams of a turn.
#[derive(Debug, Default)]
pub struct Streams {
    begun: Option<f64>,
    cpu: f64,
    bytes: f64,
}

impl Streams {
    /// A stream begins at these CPU seconds.
    pub fn begin(&mut self, cpu: f64) {
        self.begun = Some(cpu);
    }

    /// It has ended: `WORD BYTES NS`. Returns 10^9 bytes per second.
    pub fn end(&mut self, line: &str, cpu: f64) -> anyhow::Result<f64> {
        let begun = self.begun.take().context("a stream without a beginning")?;
        let (bytes, ns) = (number(line, 1)?, number(line, 2)?);
        self.cpu += cpu - begun;
        self.bytes += bytes;
        Ok(bytes / ns)
    }

    /// CPU seconds for each 10^9 bytes of all of them.
    pub fn cpu_for_gb(&self) -> f64 {
        self.cpu * 1e9 / self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_strictly() {
        assert!((number("trip 12.5 3", 1).unwrap() - 12.5).abs() < 1e-9);
        for bad in ["trip", "trip x", "trip -1", "trip inf", "trip 0"] {
            assert!(number(bad, 1).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_time_of_a_stream_is_from_its_beginning_to_its_end() {
        let mut streams = Streams::default();
        assert!(streams.end("send 1 1", 0.0).is_err(), "no beginning");
        streams.begin(1.0);
        let rate = streams.end("send 2000000000 1000000000", 1.5).unwrap();
        streams.begin(9.0);
        streams.end("receive 2000000000 1000000000", 9.5).unwrap();
        assert!((rate - 2.0).abs() < 1e-9);
        assert!((streams.cpu_for_gb() - 0.25).abs() < 1e-9);
    }

    #[test]
    fn a_program_that_fails_says_why() {
        let signals = Signals::install().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo one 1; echo wrong >&2; exit 3"]);
        let mut lines = Vec::new();
        let error = run(command, &signals, |line| {
            lines.push(line.to_string());
            Ok(())
        });
        assert_eq!(lines, ["one 1"]);
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("exit status: 3") && error.ends_with("wrong"),
            "{error}"
        );
    }
}
