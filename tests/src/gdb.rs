// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines with `--gdb`: gdb itself, and its side of the protocol.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed setup fails the test.

use crate::lines::Lines;
use crate::program;
use crate::vm;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A machine that waits for gdb.
#[derive(Debug)]
pub struct Machine {
    child: Child,
    /// What its command prints.
    pub output: Lines,
    errors: Lines,
    /// gdb's option that loads the kernel's symbols.
    symbols: String,
    /// gdb's option that connects.
    connect: String,
}

impl Machine {
    /// Starts it, with this address for gdb.
    ///
    /// # Panics
    /// When it does not say how to connect.
    #[must_use]
    pub fn start(address: &str, options: &[&str], command: &[&str]) -> Self {
        let mut child = vm::command(options)
            .args(["--gdb", address, "--"])
            .args(command)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = Lines::of(child.stdout.take());
        let mut errors = Lines::of(child.stderr.take());
        let line = errors.next_within(program::PATIENCE);
        // paravane: waiting for gdb -ex 'symbol-file ...' -ex 'target remote ...'
        let mut quoted = line.split('\'').skip(1).step_by(2).map(str::to_string);
        let (Some(symbols), Some(connect)) = (quoted.next(), quoted.next()) else {
            panic!("no way to connect: {line}");
        };
        Machine {
            child,
            output,
            errors,
            symbols,
            connect,
        }
    }

    /// The process id of its monitor.
    #[must_use]
    pub fn monitor(&self) -> u32 {
        self.child.id()
    }

    /// gdb with these commands, connected to it.
    #[must_use]
    pub fn gdb(&self, commands: &[&str]) -> Command {
        let mut gdb = Command::new("gdb");
        gdb.args([
            "-q",
            "-nx",
            "-batch",
            "-ex",
            "set pagination off",
            "-ex",
            "set confirm off",
        ]);
        for command in [self.symbols.as_str(), self.connect.as_str()]
            .iter()
            .chain(commands)
        {
            gdb.args(["-ex", command]);
        }
        gdb.stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        gdb
    }

    /// Runs gdb with these commands. Returns what it prints.
    ///
    /// # Panics
    /// When gdb fails.
    #[must_use]
    pub fn debug(&self, commands: &[&str]) -> String {
        let run = program::finish(&mut self.gdb(commands));
        assert_eq!(run.code, 0, "{run:?}");
        run.stdout + &run.stderr
    }

    /// Waits for the end. Returns the exit code, and what was printed on both streams.
    ///
    /// # Panics
    /// When it cannot be waited for.
    #[must_use]
    pub fn finish(mut self) -> (i32, String, String) {
        let said = self.output.rest_within(program::LONGEST);
        let errors = self.errors.rest_within(program::PATIENCE);
        let status = program::wait_within(&mut self.child, program::PATIENCE);
        (status.code().unwrap_or(-1), said, errors)
    }
}

/// gdb's side of the protocol, as far as it is needed to stop, step and continue.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
}

impl Client {
    /// Connects. Each answer comes within `patience`.
    ///
    /// # Errors
    /// No process listens.
    pub fn connect(path: &Path, patience: Duration) -> io::Result<Client> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(patience))?;
        Ok(Client { stream })
    }

    /// Sends a packet.
    ///
    /// # Errors
    /// The connection's.
    pub fn send(&mut self, packet: &str) -> io::Result<()> {
        let sum = packet.bytes().fold(0u8, u8::wrapping_add);
        write!(self.stream, "${packet}#{sum:02x}")
    }

    /// Interrupts the machine.
    ///
    /// # Errors
    /// The connection's.
    pub fn interrupt(&mut self) -> io::Result<()> {
        self.stream.write_all(b"\x03")
    }

    /// Receives the next packet and acknowledges it.
    ///
    /// # Errors
    /// The connection's, or a packet that is no text.
    pub fn receive(&mut self) -> io::Result<String> {
        let mut packet = Vec::new();
        let mut byte = [0];
        while byte != [b'$'] {
            self.stream.read_exact(&mut byte)?;
        }
        loop {
            self.stream.read_exact(&mut byte)?;
            if byte == [b'#'] {
                break;
            }
            packet.extend(byte);
        }
        self.stream.read_exact(&mut [0; 2])?;
        // The machine may end with this packet, so an error is of no interest.
        let _ = self.stream.write_all(b"+");
        String::from_utf8(unfold(&packet)).map_err(io::Error::other)
    }
}

/// A byte, `*` and a count that begins at 29 stand for that number of further copies of the byte.
fn unfold(packet: &[u8]) -> Vec<u8> {
    let mut all: Vec<u8> = Vec::new();
    let mut bytes = packet.iter();
    while let Some(byte) = bytes.next() {
        match (byte, all.last().copied()) {
            (b'*', Some(last)) => {
                let more = bytes.next().map_or(0, |count| count.saturating_sub(29));
                all.extend(std::iter::repeat_n(last, more.into()));
            }
            _ => all.push(*byte),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_folded_packet_is_unfolded() {
        assert_eq!(super::unfold(b"T05"), b"T05");
        assert_eq!(super::unfold(b"10* 2* "), b"100002222");
    }
}
