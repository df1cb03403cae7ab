// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine's output as the events of [`Running`]: lines, and the verdict of a conformance guest.

use crate::output::{End, Output};
use crate::output_queue::Outputs;
use crate::{Counters, Event, Running, Verdict};
use paravane_user_io::signals::Signals;
use paravane_user_io::text;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longer lines are truncated: a guest may print without end.
const MAX_LINE: usize = 4096;

/// A machine that runs a conformance guest. Dropping it ends the machine.
#[derive(Debug)]
pub struct Conversation<M> {
    machine: M,
    outputs: Arc<Outputs<Output>>,
    /// What the machine has counted so far, if its back end counts.
    counters: fn(&M) -> Option<Counters>,
    lines: Lines,
    ended: Option<Verdict>,
}

impl<M> Conversation<M> {
    /// With a machine that has just started, and its outputs.
    pub fn new(
        machine: M,
        outputs: Arc<Outputs<Output>>,
        counters: fn(&M) -> Option<Counters>,
    ) -> Self {
        Conversation {
            machine,
            outputs,
            counters,
            lines: Lines::default(),
            ended: None,
        }
    }

    /// Waits for output, a signal or the timeout.
    fn wait(&self, left: Duration, signals: &Signals) {
        let mut files = [
            PollFd::from_borrowed_fd(self.outputs.bell(), PollFlags::IN),
            PollFd::from_borrowed_fd(signals.wake(), PollFlags::IN),
        ];
        let timeout = Timespec::try_from(left).ok();
        // The caller checks everything again, whatever ended the wait.
        let _ = rustix::event::poll(&mut files, timeout.as_ref());
    }
}

impl<M> Running for Conversation<M> {
    fn next(&mut self, deadline: Instant, signals: &Signals) -> Event {
        loop {
            if let Some(line) = self.lines.next() {
                return Event::Line(text::clean(&line));
            }
            if let Some(verdict) = self.ended.take() {
                return Event::Ended(verdict);
            }
            if let Some(signal) = signals.pending() {
                return Event::Interrupted(signal);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Event::TimedOut;
            }
            match self.outputs.pop() {
                Some(Output::Console(bytes)) => self.lines.add(&bytes),
                Some(Output::End(end)) => {
                    self.lines.end();
                    self.ended = Some(verdict(&end));
                }
                None => self.wait(left, signals),
            }
        }
    }

    fn counters(&self) -> Option<Counters> {
        (self.counters)(&self.machine)
    }
}

fn verdict(end: &End) -> Verdict {
    match end {
        End::Shutdown(0) => Verdict::Passed,
        End::Shutdown(1) => Verdict::Failed,
        End::Shutdown(code) => Verdict::Crashed(format!("it ended with exit code {code}")),
        End::Reboot(_) => Verdict::Crashed("the machine was reset".to_string()),
        End::Failed(why) => Verdict::Crashed(format!("{why}; the virtual machine was ended")),
    }
}

/// Splits output into lines.
#[derive(Debug, Default)]
struct Lines {
    partial: Vec<u8>,
    whole: VecDeque<Vec<u8>>,
}

impl Lines {
    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte != b'\n' {
                self.partial.push(byte);
            }
            if byte == b'\n' || self.partial.len() == MAX_LINE {
                self.whole.push_back(std::mem::take(&mut self.partial));
            }
        }
    }

    fn end(&mut self) {
        if !self.partial.is_empty() {
            self.whole.push_back(std::mem::take(&mut self.partial));
        }
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        self.whole.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_together_and_cut() {
        let mut lines = Lines::default();
        lines.add(b"ok 1\nok");
        lines.add(b" 2\n");
        lines.add(&[b'x'; MAX_LINE + 1]);
        lines.end();
        let all: Vec<_> = std::iter::from_fn(|| lines.next()).collect();
        assert_eq!(all[..2], [b"ok 1".to_vec(), b"ok 2".to_vec()]);
        assert_eq!((all[2].len(), all[3].len(), all.len()), (MAX_LINE, 1, 4));
    }

    #[test]
    fn the_exit_code_is_the_verdict() {
        assert_eq!(verdict(&End::Shutdown(0)), Verdict::Passed);
        assert_eq!(verdict(&End::Shutdown(1)), Verdict::Failed);
        assert!(matches!(verdict(&End::Shutdown(2)), Verdict::Crashed(_)));
        assert!(matches!(verdict(&End::Reboot(0)), Verdict::Crashed(_)));
    }
}
