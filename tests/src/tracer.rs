// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records every host call of a machine's zygote, and every call of its other processes until their
//! filter is installed, with the state of the caller at that moment.
//!
//! A process with a filter is no longer traced: from then on the filter decides what it may call.

use crate::ptrace::{self, Next, Observer, status};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

/// A host call, with the state of its caller at the entry.
#[derive(Clone, Debug)]
pub struct Call {
    /// The process id.
    pub process: i32,
    /// The thread id.
    pub thread: i32,
    /// Number, of the x86-64 table.
    pub number: u64,
    /// Arguments.
    pub arguments: [u64; 6],
    /// The stack pointer.
    pub stack: u64,
    /// Signals that the thread blocks. Bit n is signal n + 1.
    pub blocked: u64,
    /// `/proc/PROCESS/maps`, if [`Traced::run`] was asked for it.
    pub maps: Option<String>,
}

/// What a traced machine did.
#[derive(Debug, Default)]
pub struct Traced {
    /// Process id of the zygote, 0 if there was none.
    pub zygote: i32,
    /// Calls of the zygote and of processes without a filter, in the order in which they were seen.
    pub calls: Vec<Call>,
    /// Exit code of the monitor, -1 after a signal.
    pub code: i32,
}

/// `SIGKILL` and `SIGSTOP` cannot be blocked.
pub const ALL_SIGNALS: u64 = !(1 << (9 - 1) | 1 << (19 - 1));

struct Recorder<'a> {
    /// The process of each task of the machine.
    tasks: BTreeMap<i32, i32>,
    /// Tasks that are in the call that installs a filter.
    installing: BTreeSet<i32>,
    /// Processes with a filter.
    filtered: BTreeSet<i32>,
    result: Traced,
    with_maps: &'a dyn Fn(u64) -> bool,
}

impl Traced {
    /// Runs a monitor until it ends. `with_maps` selects the calls for which to record the mappings
    /// of the caller.
    ///
    /// # Errors
    /// The program cannot be started, or the host does not let it be traced.
    #[allow(clippy::zombie_processes)] // The tracer waits for it.
    pub fn run(mut command: Command, with_maps: &dyn Fn(u64) -> bool) -> Result<Traced, String> {
        ptrace::prepare(&mut command);
        let child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
        let mut recorder = Recorder {
            tasks: BTreeMap::new(),
            installing: BTreeSet::new(),
            filtered: BTreeSet::new(),
            result: Traced::default(),
            with_maps,
        };
        let end = ptrace::follow(child.id(), &mut recorder)
            .map_err(|e| format!("{command:?} cannot be traced: {e}"))?;
        recorder.result.code = end.and_then(|status| status.code()).unwrap_or(-1);
        Ok(recorder.result)
    }
}

/// The process of a task that runs the layer's program.
fn process_of(task: i32) -> Option<i32> {
    let exe = fs::read_link(format!("/proc/{task}/exe")).ok()?;
    if !exe.to_string_lossy().contains("memfd:paravane-layer") {
        return None;
    }
    status(task, "Tgid")?.parse().ok()
}

/// Whether the tracer still has the task.
fn is_stopped(task: i32) -> bool {
    status(task, "State").is_some_and(|state| state.starts_with('t'))
}

impl Observer for Recorder<'_> {
    fn entered(&mut self, task: i32, call: &ptrace::Call) {
        let Some(&process) = self.tasks.get(&task) else {
            return;
        };
        if call.number == numbers::SECCOMP {
            self.installing.insert(task);
        }
        let maps = (self.with_maps)(call.number)
            .then(|| fs::read_to_string(format!("/proc/{task}/maps")).unwrap_or_default());
        let blocked = status(task, "SigBlk").and_then(|text| u64::from_str_radix(&text, 16).ok());
        // Only SIGKILL ends the stop. What was read of a task that it has reached says nothing.
        let (Some(blocked), true) = (blocked, is_stopped(task)) else {
            return;
        };
        self.result.calls.push(Call {
            process,
            thread: task,
            number: call.number,
            arguments: call.arguments,
            stack: call.stack,
            blocked,
            maps,
        });
    }

    fn returned(&mut self, task: i32, result: i64) {
        if self.installing.remove(&task) && result == 0 {
            self.filtered.extend(self.tasks.get(&task));
        }
    }

    fn ended(&mut self, task: i32) {
        self.tasks.remove(&task);
        self.installing.remove(&task);
    }

    fn next(&mut self, task: i32) -> Next {
        let process = self.tasks.get(&task).copied();
        let Some(process) = process.or_else(|| process_of(task)) else {
            return Next::Signals;
        };
        if self.result.zygote == 0 {
            self.result.zygote = process;
        }
        if self.filtered.contains(&process) {
            self.tasks.remove(&task);
            return Next::Free;
        }
        self.tasks.insert(task, process);
        Next::Calls
    }
}

/// Numbers of the host calls that tests name.
pub mod numbers {
    /// clone
    pub const CLONE: u64 = 56;
    /// prctl
    pub const PRCTL: u64 = 157;
    /// ppoll
    pub const PPOLL: u64 = 271;
    /// seccomp
    pub const SECCOMP: u64 = 317;
}
