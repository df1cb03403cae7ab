// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A tracer of a machine's processes that knows nothing of the monitor's policies: it sees by
//! ptrace what each asks of the host's kernel, and whether it is refused, and judges that by a list
//! of its own.
//!
//! A call that the list has not must be followed by the filter's signal or the end of the process.
//! Before its filter stands, a process may only do what its start takes, and no handler of a signal
//! may have run.

#![allow(clippy::unwrap_used)] // What cannot be set up has failed.

mod calls;

use crate::sandbox::Status;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

use calls::{Call, SECCOMP};

/// `__WNOTHREAD`: this thread's tracees alone.
const OF_THIS_THREAD: libc::c_int = 0x2000_0000;
const GET_SYSCALL_INFO: libc::c_uint = 0x420e;
/// `SYS_SECCOMP` of a SIGSYS.
const BY_FILTER: i32 = 1;
const STEP_ENTRY: u8 = 1;
const STEP_EXIT: u8 = 2;
/// More reports than this help nobody.
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
    /// A signal of a fault has come before the filter was there.
    faulted: bool,
}

#[derive(Debug, Default)]
struct Thread {
    process: libc::pid_t,
    /// The call that it is in.
    call: Option<Call>,
    /// One that must be refused.
    forbidden: Option<Call>,
}

/// What was seen.
#[derive(Debug, Default)]
pub struct Trace {
    /// Calls of the machine's processes.
    pub calls: u64,
    /// Of these, refused.
    pub refused: u64,
    /// Processes that were made.
    pub forks: u64,
    /// What must not be.
    pub wrong: Vec<String>,
}

/// `struct ptrace_syscall_info`, as far as it is used.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct SyscallInfo {
    op: u8,
    pad: [u8; 3],
    arch: u32,
    instruction_pointer: u64,
    stack_pointer: u64,
    /// At the entry: number and arguments. At the exit: the result.
    words: [u64; 8],
}

fn ptrace(request: libc::c_uint, tid: libc::pid_t, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: the requests made here take numbers, or a pointer to a local structure of the size
    // that is told.
    match unsafe { libc::ptrace(request, tid, address, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// A machine that is being traced.
#[derive(Debug)]
pub struct Tracer {
    monitor: libc::pid_t,
    instruction: u64,
    processes: BTreeMap<libc::pid_t, Process>,
    threads: BTreeMap<libc::pid_t, Thread>,
    trace: Trace,
    reported: BTreeSet<(Kind, u64)>,
    status: Option<ExitStatus>,
}

/// Prepares a command to be traced by the thread that starts it.
pub fn prepare(command: &mut Command) {
    // SAFETY: one system call with plain numbers, between fork and exec.
    unsafe {
        command.pre_exec(|| ptrace(libc::PTRACE_TRACEME, 0, 0, 0));
    }
}

/// Traces a prepared command's process and all that comes of it until they have ended, and how the
/// first ended. By the thread that has started it.
///
/// # Panics
/// When it cannot be traced.
#[must_use]
pub fn trace(monitor: u32) -> (Trace, Option<ExitStatus>) {
    let monitor = libc::pid_t::try_from(monitor).unwrap();
    let mut tracer = Tracer {
        monitor,
        instruction: calls::instruction(),
        processes: BTreeMap::new(),
        threads: BTreeMap::new(),
        trace: Trace::default(),
        reported: BTreeSet::new(),
        status: None,
    };
    let mut status = 0;
    // SAFETY: writes to the local value; the process is our child, and stops at its exec.
    let stopped = unsafe { libc::waitpid(monitor, &raw mut status, 0) };
    assert!(
        stopped == monitor && libc::WIFSTOPPED(status),
        "it does not start: {status:#x}"
    );
    let options = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_EXITKILL;
    ptrace(
        libc::PTRACE_SETOPTIONS,
        monitor,
        0,
        usize::try_from(options).unwrap(),
    )
    .unwrap();
    tracer.meet(monitor);
    tracer.resume(monitor, 0);
    tracer.run();
    (tracer.trace, tracer.status)
}

impl Tracer {
    fn run(&mut self) {
        loop {
            let mut status = 0;
            // SAFETY: writes to the local value.
            let tid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | OF_THIS_THREAD) };
            if tid < 0 {
                if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                // Nobody is left.
                return;
            }
            if libc::WIFSTOPPED(status) {
                self.stopped(tid, status);
            } else {
                self.ended(tid);
                if tid == self.monitor {
                    self.status = Some(ExitStatus::from_raw(status));
                }
            }
        }
    }

    fn wrong(&mut self, what: String) {
        if self.trace.wrong.len() < MOST {
            self.trace.wrong.push(what);
        }
    }

    /// A thread that was not known: what it belongs to.
    fn meet(&mut self, tid: libc::pid_t) {
        if self.threads.contains_key(&tid) {
            return;
        }
        let text = fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
        let number = |name: &str| -> Option<libc::pid_t> {
            text.lines()
                .find_map(|l| l.strip_prefix(name))?
                .trim()
                .parse()
                .ok()
        };
        let (Some(process), Some(parent)) = (number("Tgid:"), number("PPid:")) else {
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

    fn kind(&self, tid: libc::pid_t) -> Kind {
        let process = self
            .threads
            .get(&tid)
            .and_then(|t| self.processes.get(&t.process));
        process.map_or(Kind::Monitor, |p| p.kind)
    }

    fn resume(&mut self, tid: libc::pid_t, signal: i32) {
        let request = match self.kind(tid) {
            Kind::Monitor | Kind::Copy => libc::PTRACE_CONT,
            Kind::Zygote | Kind::Space => libc::PTRACE_SYSCALL,
        };
        // It may have been killed meanwhile.
        let _ = ptrace(request, tid, 0, usize::try_from(signal).unwrap_or(0));
    }

    fn stopped(&mut self, tid: libc::pid_t, status: i32) {
        let known = self.threads.contains_key(&tid);
        self.meet(tid);
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        if event == libc::PTRACE_EVENT_EXEC {
            self.executed(tid);
        } else if event != 0 || (!known && signal == libc::SIGSTOP) {
            // A new thread or process, which comes by itself; or its first stop.
        } else if signal == libc::SIGTRAP | 0x80 {
            self.at_call(tid);
        } else {
            self.at_signal(tid, signal);
            self.resume(tid, signal);
            return;
        }
        self.resume(tid, 0);
    }

    /// The monitor's child has become the layer's program.
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

    fn at_signal(&mut self, tid: libc::pid_t, signal: i32) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        // SAFETY: the structure may be all zeros.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let by_filter = ptrace(libc::PTRACE_GETSIGINFO, tid, 0, &raw mut info as usize).is_ok()
            && signal == libc::SIGSYS
            && info.si_code == BY_FILTER;
        let forbidden = thread.forbidden.take();
        self.trace.refused += u64::from(by_filter);
        if let Some(call) = forbidden.filter(|_| !by_filter) {
            self.wrong(format!(
                "process {tid} was not refused {call}: signal {signal} came instead"
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
        let process = self
            .threads
            .get(&tid)
            .map(|t| t.process)
            .unwrap_or_default();
        if let Some(process) = self.processes.get_mut(&process) {
            process.faulted |= fault && process.kind == Kind::Space && !process.filtered;
        }
    }

    fn at_call(&mut self, tid: libc::pid_t) {
        let mut info = SyscallInfo::default();
        let size = size_of::<SyscallInfo>();
        if ptrace(GET_SYSCALL_INFO, tid, size, &raw mut info as usize).is_err() {
            return;
        }
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        if info.op == STEP_EXIT {
            let [result, ..] = info.words;
            if thread
                .call
                .take()
                .is_some_and(|call| call.number == SECCOMP)
                && result == 0
            {
                self.filter_stands(tid);
            }
            return;
        }
        if info.op != STEP_ENTRY {
            return;
        }
        let [number, arguments @ ..] = info.words;
        let call = Call {
            arch: info.arch,
            number,
            arguments,
            address: info.instruction_pointer,
        };
        thread.call = Some(call);
        let (process, skipped) = (thread.process, thread.forbidden.take());
        self.trace.calls += 1;
        if let Some(skipped) = skipped {
            self.wrong(format!(
                "process {process} was not refused {skipped}: it went on with {call}"
            ));
        }
        let Some(of) = self.processes.get(&process).copied() else {
            return;
        };
        let fine = match of.kind {
            Kind::Monitor | Kind::Copy => true,
            Kind::Zygote => call.zygote_may(),
            Kind::Space if of.filtered => call.space_may(self.instruction),
            Kind::Space => call.start_takes(),
        };
        if of.kind == Kind::Space && of.faulted && !of.filtered {
            self.wrong(format!(
                "process {process} went on after a fault without a filter: {call}"
            ));
        }
        if fine {
            return;
        }
        if of.filtered {
            if let Some(thread) = self.threads.get_mut(&tid) {
                thread.forbidden = Some(call);
            }
        } else {
            let kind = of.kind;
            // Once for each call: it comes again and again.
            if !self.reported.insert((kind, call.number)) {
                return;
            }
            self.wrong(format!(
                "{kind:?} {process} made the call {call} without a filter"
            ));
        }
    }

    /// The call that installed it has succeeded; /proc must agree, for every thread.
    fn filter_stands(&mut self, tid: libc::pid_t) {
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
            // One that is ending is none.
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

    fn ended(&mut self, tid: libc::pid_t) {
        if let Some(thread) = self.threads.remove(&tid) {
            self.trace.refused += u64::from(thread.forbidden.is_some());
            if thread.process == tid {
                self.processes.remove(&tid);
            }
        }
    }
}
