// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process hypervisor as a back end.

use super::doorbell::{End, Output};
use super::vm::{Config, Vm};
use crate::{Counters, Event, Hypervisor, Machine, Running, Verdict};
use paravane_devices::rng::Rng;
use paravane_user_io::signals::Signals;
use paravane_user_io::text;
use paravane_user_io::worker::{self, Limit};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longer lines are truncated: a guest may print without end.
const MAX_LINE: usize = 4096;

/// The back end, and options that only this one has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Process {
    /// The number of address-space processes; as many as the host allows if `None`.
    pub spaces: Option<u32>,
    /// Debuggers may attach to the processes.
    pub debuggable: bool,
}

impl Hypervisor for Process {
    fn describe(&self) -> String {
        "process (host processes), isolation vm".to_string()
    }

    fn start(&self, machine: &Machine<'_>, limit: &Limit<'_>) -> anyhow::Result<Box<dyn Running>> {
        let Process { spaces, debuggable } = *self;
        let (guest, command_line) = (Arc::clone(machine.guest), machine.command_line.clone());
        let (vcpus, memory) = (machine.cpus, u64::from(machine.memory_mib) << 20);
        // The layer must live as long as the program.
        let layer: &'static [u8] = match machine.layer {
            Some(bytes) => Box::leak(bytes.into()),
            None => paravane_blobs::PROCESS_LAYER,
        };
        let vm = worker::within(limit, "starter", move || {
            let config = Config {
                name: &guest.name,
                kernel: &guest.bytes,
                layer,
                command_line: &command_line,
                initrd: &[],
                vcpus,
                memory,
                spaces,
                debuggable,
                device_place: true,
                large_pages: true,
            };
            Vm::start_with(&config, vec![Box::new(Rng::default())])
        })?;
        Ok(Box::new(Instance {
            vm,
            lines: Lines::default(),
            ended: None,
        }))
    }
}

struct Instance {
    vm: Vm,
    lines: Lines,
    ended: Option<Verdict>,
}

impl Running for Instance {
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
            match self.vm.next() {
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
        Some(self.vm.counters())
    }
}

impl Instance {
    /// Waits for output, a signal or the timeout.
    fn wait(&self, left: Duration, signals: &Signals) {
        let mut files = [
            PollFd::from_borrowed_fd(self.vm.bell(), PollFlags::IN),
            PollFd::from_borrowed_fd(signals.wake(), PollFlags::IN),
        ];
        let timeout = Timespec::try_from(left).ok();
        // The caller checks everything again, whatever ended the wait.
        let _ = rustix::event::poll(&mut files, timeout.as_ref());
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
