// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Follows a program and all that it starts, by ptrace. An [`Observer`] sees the system calls and
//! signals of the tasks that it selects.
//!
//! The tracer follows forks from the first instruction of the program on, so it sees each task
//! before the task's own first instruction. It uses the host's interface directly: a hostile guest
//! may send real-time signals, and the usual wrappers have no number for them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

/// `SYS_SECCOMP`: `si_code` of a SIGSYS that a filter sent.
const BY_FILTER: i32 = 1;

/// A system call that a task is about to make.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// `AUDIT_ARCH_*` of the table that the number belongs to.
    pub arch: u32,
    /// Number of the call.
    pub number: u64,
    /// Arguments.
    pub arguments: [u64; 6],
    /// The address after its instruction.
    pub address: u64,
    /// The stack pointer.
    pub stack: u64,
}

/// How a task continues after a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It stops at the entry and at the exit of its next system call.
    Calls,
    /// It stops for signals, forks and exec only.
    Signals,
    /// It is traced no longer.
    Free,
}

/// What a test does with the events of a traced program. A task is a thread, known by its thread
/// id.
pub trait Observer {
    /// A task stopped for the first time.
    fn started(&mut self, _task: libc::pid_t) {}
    /// A task has executed a program.
    fn executed(&mut self, _task: libc::pid_t) {}
    /// A task is about to make a system call.
    fn entered(&mut self, task: libc::pid_t, call: &Call);
    /// A system call has returned this result.
    fn returned(&mut self, task: libc::pid_t, result: i64);
    /// A task is about to receive a signal. `by_filter`: a seccomp filter sent it.
    fn signalled(&mut self, _task: libc::pid_t, _signal: i32, _by_filter: bool) {}
    /// A task has ended.
    fn ended(&mut self, _task: libc::pid_t) {}
    /// How the task continues. Asked after each of its stops.
    fn next(&mut self, task: libc::pid_t) -> Next;
}

fn ptrace(request: libc::c_uint, task: libc::pid_t, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: the requests made here take numbers, or a pointer to a local structure of the size
    // that the request expects or that `address` gives.
    match unsafe { libc::ptrace(request, task, address, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Prepares a command to be traced by the thread that starts it.
pub fn prepare(command: &mut Command) {
    // SAFETY: one system call with plain numbers, between fork and exec.
    unsafe {
        command.pre_exec(|| ptrace(libc::PTRACE_TRACEME, 0, 0, 0));
    }
}

/// Follows a prepared command's process until it and all that it started have ended or are free.
/// Returns how the process ended. The thread that started the process must call this.
///
/// # Errors
/// The process ended before it could be traced, or the host does not let it be traced.
pub fn follow(first: u32, observer: &mut impl Observer) -> io::Result<Option<ExitStatus>> {
    let first = libc::pid_t::try_from(first).map_err(io::Error::other)?;
    let mut status = 0;
    // SAFETY: writes to the local value. The process is a child of this thread and stops at its
    // exec.
    let stopped = unsafe { libc::waitpid(first, &raw mut status, 0) };
    if stopped != first || !libc::WIFSTOPPED(status) {
        return Err(io::Error::other(format!(
            "no first stop: status {status:#x}"
        )));
    }
    let options = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_EXITKILL;
    let options = usize::try_from(options).map_err(io::Error::other)?;
    ptrace(libc::PTRACE_SETOPTIONS, first, 0, options)?;
    let mut tracer = Tracer {
        observer,
        known: BTreeSet::new(),
    };
    tracer.meet(first);
    tracer.resume(first, 0);
    let mut end = None;
    loop {
        let mut status = 0;
        // Other tests of this process have children, too: wait for the tracees of this thread only.
        // SAFETY: writes to the local value.
        let task = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        if task < 0 {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => continue,
                Some(libc::ECHILD) => return Ok(end),
                _ => return Err(error),
            }
        }
        if libc::WIFSTOPPED(status) {
            tracer.stopped(task, status);
        } else {
            tracer.known.remove(&task);
            tracer.observer.ended(task);
            if task == first {
                end = Some(ExitStatus::from_raw(status));
            }
        }
    }
}

/// The value of a line of `/proc/TASK/status`.
#[must_use]
pub fn status(task: libc::pid_t, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{task}/status")).ok()?;
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().to_string())
}

struct Tracer<'a, O> {
    observer: &'a mut O,
    known: BTreeSet<libc::pid_t>,
}

impl<O: Observer> Tracer<'_, O> {
    /// Whether the task is new.
    fn meet(&mut self, task: libc::pid_t) -> bool {
        let new = self.known.insert(task);
        if new {
            self.observer.started(task);
        }
        new
    }

    fn stopped(&mut self, task: libc::pid_t, status: i32) {
        let new = self.meet(task);
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        if event == libc::PTRACE_EVENT_EXEC {
            self.observer.executed(task);
        } else if event != 0 || (new && signal == libc::SIGSTOP) {
            // A task has started another one, or this is the first stop of that one.
        } else if signal == libc::SIGTRAP | 0x80 {
            self.at_call(task);
        } else {
            let by_filter = signal == libc::SIGSYS && self.by_filter(task);
            self.observer.signalled(task, signal, by_filter);
            self.resume(task, signal);
            return;
        }
        self.resume(task, 0);
    }

    fn resume(&mut self, task: libc::pid_t, signal: i32) {
        let request = match self.observer.next(task) {
            Next::Calls => libc::PTRACE_SYSCALL,
            Next::Signals => libc::PTRACE_CONT,
            Next::Free => {
                self.known.remove(&task);
                libc::PTRACE_DETACH
            }
        };
        // This fails if the task was killed meanwhile. The next wait reports its end.
        let _ = ptrace(request, task, 0, usize::try_from(signal).unwrap_or(0));
    }

    fn by_filter(&self, task: libc::pid_t) -> bool {
        // SAFETY: the structure may be all zeros.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        ptrace(libc::PTRACE_GETSIGINFO, task, 0, &raw mut info as usize).is_ok()
            && info.si_code == BY_FILTER
    }

    fn at_call(&mut self, task: libc::pid_t) {
        // SAFETY: the structure may be all zeros.
        let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
        let size = size_of_val(&info);
        if ptrace(
            libc::PTRACE_GET_SYSCALL_INFO,
            task,
            size,
            &raw mut info as usize,
        )
        .is_err()
        {
            return;
        }
        match info.op {
            libc::PTRACE_SYSCALL_INFO_ENTRY => {
                // SAFETY: the host has filled in this part of the union, as `op` says.
                let entry = unsafe { info.u.entry };
                let call = Call {
                    arch: info.arch,
                    number: entry.nr,
                    arguments: entry.args,
                    address: info.instruction_pointer,
                    stack: info.stack_pointer,
                };
                self.observer.entered(task, &call);
            }
            libc::PTRACE_SYSCALL_INFO_EXIT => {
                // SAFETY: as above.
                let exit = unsafe { info.u.exit };
                self.observer.returned(task, exit.sval);
            }
            _ => {}
        }
    }
}
