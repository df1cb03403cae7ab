// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest kernel's log: kept in case something goes wrong, or printed as it comes.

use paravane_user_io::{stderr, text};
use std::collections::VecDeque;

/// Number of lines that are kept.
const KEPT: usize = 400;
/// Longest line in bytes. Longer ones are split: a guest may print without end.
const MAX_LINE: usize = 1024;

/// Bytes that may wait for stderr's reader. Beyond that the guest waits.
const WAITING: usize = 64 << 10;

/// Prefix of the agent's messages on the console, before it has a connection to the monitor.
const AGENT: &str = "paravane-agent: ";

/// In the log of a kernel that panics.
const PANIC: &str = "Kernel panic - not syncing: ";

/// The console's lines.
#[derive(Debug)]
pub struct KernelLog {
    /// Print every line on stderr at once.
    live: bool,
    partial: Vec<u8>,
    lines: VecDeque<String>,
    /// Bytes that stderr has not taken yet.
    unsent: Vec<u8>,
    /// The agent's last message.
    agent: Option<String>,
    /// The kernel has said that it panics. A kernel that prints the stacks of all CPUs may print
    /// more lines after that than are kept.
    panicked: bool,
}

impl KernelLog {
    pub fn new(live: bool) -> Self {
        KernelLog {
            live,
            partial: Vec::new(),
            lines: VecDeque::new(),
            unsent: Vec::new(),
            agent: None,
            panicked: false,
        }
    }

    /// Adds bytes of the console.
    pub fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte == b'\n' || self.partial.len() == MAX_LINE {
                self.line();
            }
            if byte != b'\n' {
                self.partial.push(byte);
            }
        }
    }

    fn line(&mut self) {
        let line = text::clean(&std::mem::take(&mut self.partial));
        if let Some(said) = line.strip_prefix(AGENT) {
            self.agent = Some(said.to_string());
        }
        self.panicked |= line.contains(PANIC);
        if self.live {
            self.print(&line);
        }
        if self.lines.len() == KEPT {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// The agent's last message on the console, if there is one.
    pub fn agent(&self) -> Option<&str> {
        self.agent.as_deref()
    }

    /// Whether the kernel has panicked.
    pub fn panicked(&self) -> bool {
        self.panicked
    }

    /// What follows these words in the kernel's log, if they are there.
    pub fn after(&self, words: &str) -> Option<&str> {
        self.lines
            .iter()
            .find_map(|line| Some(line.split_once(words)?.1))
    }

    /// Prints the kept lines, after something went wrong.
    pub fn show(&mut self) {
        if !self.partial.is_empty() {
            self.line();
        }
        // A live log has printed everything already.
        let printed = self.live;
        for line in std::mem::take(&mut self.lines).iter().filter(|_| !printed) {
            self.print(line);
        }
        stderr::finish(&mut self.unsent);
    }

    fn print(&mut self, line: &str) {
        self.unsent.extend(line.as_bytes());
        // The terminal may be in raw mode, which needs the carriage return.
        self.unsent.extend(b"\r\n");
    }

    /// Writes as much as possible without waiting.
    pub fn write(&mut self) {
        stderr::write(&mut self.unsent);
    }

    /// Whether bytes wait for stderr's reader.
    pub fn waits(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Whether the buffer is full, so that nothing more may be taken from the guest.
    pub fn is_full(&self) -> bool {
        self.unsent.len() >= WAITING
    }
}

/// Prints the rest of a live log, if stderr has a reader.
impl Drop for KernelLog {
    fn drop(&mut self) {
        stderr::finish(&mut self.unsent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept() {
        let mut log = KernelLog::new(false);
        log.add(b"first\nsec");
        log.add(b"ond\x1b[2J\n");
        assert_eq!(log.lines, ["first", "second"]);
        assert_eq!(log.agent(), None);
        log.add(b"paravane-agent: no\nthird\n");
        assert_eq!(log.agent(), Some("no"));
        log.add(&[b'x'; 3 * MAX_LINE]);
        for n in 0..KEPT {
            log.add(format!("{n}\n").as_bytes());
        }
        assert_eq!(log.lines.len(), KEPT);
        assert_eq!(log.lines.back().map(String::as_str), Some("399"));
        assert!(log.lines.iter().all(|line| line.len() <= MAX_LINE));
    }

    #[test]
    fn a_panic_is_remembered_after_its_line() {
        let mut log = KernelLog::new(false);
        log.add(b"[1.0] Kernel panic - not syncing: Fatal ");
        assert!(!log.panicked());
        log.add(b"exception\n");
        for n in 0..=KEPT {
            log.add(format!("[1.1] {n}\n").as_bytes());
        }
        assert_eq!(log.after(PANIC), None);
        assert!(log.panicked());
        let mut other = KernelLog::new(false);
        other.add(b"[1.0] no Kernel panic\n");
        assert!(!other.panicked());
    }
}
