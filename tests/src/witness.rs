// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges the host calls of a machine's processes. It knows nothing of the monitor's policies: it
//! has a list of its own ([`calls`]) and sees by ptrace whether a call is refused.
//!
//! A call that is not on the list must end in the filter's signal or in the end of the process. A
//! process without a filter may only make the calls of its start, and none of its signal handlers
//! may have run.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

mod calls;

use crate::ptrace::{self, Call, Next, Observer, status};
use crate::sandbox::Status;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::ExitStatus;

use calls::Shown;
pub use ptrace::prepare;

/// The most reports that one trace collects.
const MOST: usize = 32;

/// What a process of the machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Monitor,
    /// A child of the monitor that is still the monitor's program.
    Copy,
    Zygote,
    Space,
}

#[derive(Clone, Copy, Debug)]
struct Process {
    kind: Kind,
    filtered: bool,
    /// It had a fault before its filter was installed.
    faulted: bool,
}

#[derive(Debug, Default)]
struct Thread {
    process: libc::pid_t,
    /// The call that it is making.
    call: Option<Call>,
    /// A call that must be refused.
    forbidden: Option<Call>,
}

/// What a trace saw.
#[derive(Debug, Default)]
pub struct Trace {
    /// Calls of the machine's processes.
    pub calls: u64,
    /// How many of the calls were refused.
    pub refused: u64,
    /// Address-space processes that were created.
    pub forks: u64,
    /// Forbidden things that happened.
    pub wrong: Vec<String>,
}

/// A machine that is being traced.
#[derive(Debug)]
struct Witness {
    monitor: libc::pid_t,
    instruction: u64,
    processes: BTreeMap<libc::pid_t, Process>,
    threads: BTreeMap<libc::pid_t, Thread>,
    trace: Trace,
    reported: BTreeSet<(Kind, u64)>,
}

/// Traces a prepared command's process and all that it starts until they have ended. Returns what
/// was seen, and how the process ended. The thread that started the process must call this.
///
/// # Panics
/// When the process cannot be traced.
#[must_use]
pub fn trace(monitor: u32) -> (Trace, Option<ExitStatus>) {
    let mut witness = Witness {
        monitor: libc::pid_t::try_from(monitor).unwrap(),
        instruction: calls::instruction(),
        processes: BTreeMap::new(),
        threads: BTreeMap::new(),
        trace: Trace::default(),
        reported: BTreeSet::new(),
    };
    let status = ptrace::follow(monitor, &mut witness).unwrap();
    (witness.trace, status)
}

impl Witness {
    fn wrong(&mut self, what: String) {
        if self.trace.wrong.len() < MOST {
            self.trace.wrong.push(what);
        }
    }

    fn kind(&self, tid: libc::pid_t) -> Kind {
        let process = self
            .threads
            .get(&tid)
            .and_then(|t| self.processes.get(&t.process));
        process.map_or(Kind::Monitor, |p| p.kind)
    }

    /// The call that installs a filter has succeeded. /proc must show the filter for every thread.
    fn filter_installed(&mut self, tid: libc::pid_t) {
        let process = self
            .threads
            .get(&tid)
            .map(|t| t.process)
            .unwrap_or_default();
        if self
            .processes
            .get(&process)
            .is_none_or(|p| p.kind != Kind::Space)
        {
            return;
        }
        let inherited = self
            .processes
            .iter()
            .find(|(_, p)| p.kind == Kind::Zygote)
            .map(|(&id, _)| id);
        let before = inherited
            .and_then(|id| Status::of(id.unsigned_abs()))
            .map_or(0, |s| s.filters);
        let tasks = fs::read_dir(format!("/proc/{process}/task"))
            .into_iter()
            .flatten()
            .flatten();
        for task in tasks.filter_map(|t| t.file_name().to_str()?.parse().ok()) {
            // A task that is ending has no status.
            if Status::of(task).is_some_and(|s| s.filters <= before || !s.no_new_privs) {
                self.wrong(format!(
                    "thread {task} of process {process} has no filter: {:?}",
                    Status::of(task)
                ));
            }
        }
        if let Some(process) = self.processes.get_mut(&process) {
            process.filtered = true;
        }
    }
}

impl Observer for Witness {
    fn started(&mut self, tid: libc::pid_t) {
        let number = |name| -> Option<libc::pid_t> { status(tid, name)?.parse().ok() };
        let (Some(process), Some(parent)) = (number("Tgid"), number("PPid")) else {
            return;
        };
        self.threads.insert(
            tid,
            Thread {
                process,
                ..Thread::default()
            },
        );
        if self.processes.contains_key(&process) {
            return;
        }
        let kind = match self.processes.get(&parent).map(|p| p.kind) {
            None => Kind::Monitor,
            Some(Kind::Monitor | Kind::Copy) => Kind::Copy,
            Some(Kind::Zygote | Kind::Space) => Kind::Space,
        };
        self.trace.forks += u64::from(kind == Kind::Space);
        self.processes.insert(
            process,
            Process {
                kind,
                filtered: false,
                faulted: false,
            },
        );
    }

    /// The monitor's child executes the layer's program; no other process executes anything.
    fn executed(&mut self, tid: libc::pid_t) {
        if let Some(process) = self.processes.get_mut(&tid) {
            if process.kind == Kind::Copy {
                process.kind = Kind::Zygote;
            } else if tid != self.monitor {
                let what = format!("process {tid} has executed another program");
                self.wrong(what);
            }
        }
    }

    fn entered(&mut self, tid: libc::pid_t, call: &Call) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        thread.call = Some(*call);
        let (process, skipped) = (thread.process, thread.forbidden.take());
        self.trace.calls += 1;
        let shown = Shown(call);
        if let Some(skipped) = skipped {
            self.wrong(format!(
                "process {process} was not refused {}: it continued with {shown}",
                Shown(&skipped)
            ));
        }
        let Some(of) = self.processes.get(&process).copied() else {
            return;
        };
        let fine = match of.kind {
            Kind::Monitor | Kind::Copy => true,
            Kind::Zygote => calls::zygote_may(call),
            Kind::Space if of.filtered => calls::space_may(call, self.instruction),
            Kind::Space => calls::start_may(call),
        };
        if of.kind == Kind::Space && of.faulted && !of.filtered {
            self.wrong(format!(
                "process {process} continued after a fault without a filter: {shown}"
            ));
        }
        if fine {
            return;
        }
        if of.filtered {
            if let Some(thread) = self.threads.get_mut(&tid) {
                thread.forbidden = Some(*call);
            }
        } else if self.reported.insert((of.kind, call.number)) {
            self.wrong(format!(
                "{:?} {process} made the call {shown} without a filter",
                of.kind
            ));
        }
    }

    fn returned(&mut self, tid: libc::pid_t, result: i64) {
        let call = self.threads.get_mut(&tid).and_then(|t| t.call.take());
        if call.is_some_and(|call| call.number == calls::SECCOMP) && result == 0 {
            self.filter_installed(tid);
        }
    }

    fn signalled(&mut self, tid: libc::pid_t, signal: i32, by_filter: bool) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let (process, forbidden) = (thread.process, thread.forbidden.take());
        self.trace.refused += u64::from(by_filter);
        if let Some(call) = forbidden.filter(|_| !by_filter) {
            self.wrong(format!(
                "process {tid} was not refused {}: signal {signal} came instead",
                Shown(&call)
            ));
        }
        let fault = matches!(
            signal,
            libc::SIGSEGV
                | libc::SIGBUS
                | libc::SIGILL
                | libc::SIGFPE
                | libc::SIGTRAP
                | libc::SIGSYS
        );
        if let Some(process) = self.processes.get_mut(&process) {
            process.faulted |= fault && process.kind == Kind::Space && !process.filtered;
        }
    }

    fn ended(&mut self, tid: libc::pid_t) {
        if let Some(thread) = self.threads.remove(&tid) {
            self.trace.refused += u64::from(thread.forbidden.is_some());
            if thread.process == tid {
                self.processes.remove(&tid);
            }
        }
    }

    fn next(&mut self, tid: libc::pid_t) -> Next {
        match self.kind(tid) {
            Kind::Monitor | Kind::Copy => Next::Signals,
            Kind::Zygote | Kind::Space => Next::Calls,
        }
    }
}
