// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine under ptrace: every host call that its zygote makes, and every one of its other processes until their
//! filter stands, with what the host knows of the caller at that moment.
//!
//! The tracer follows forks from the monitor on, so it sees a process before its first instruction. A process whose
//! filter stands is let go: what it may call from then on is the filter's business.

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A host call, as its caller is about to make it.
#[derive(Clone, Debug)]
pub struct Call {
    /// Process and thread.
    pub process: i32,
    /// The thread that makes it.
    pub thread: i32,
    /// Number, of the x86-64 table.
    pub number: u64,
    /// Arguments.
    pub arguments: [u64; 6],
    /// The stack pointer.
    pub stack: u64,
    /// Signals that the thread blocks, bit n is signal n + 1.
    pub blocked: u64,
    /// The process's mappings, as /proc says them; only where [`Traced::run`] was asked for them.
    pub maps: Option<String>,
}

/// What a traced machine did.
#[derive(Debug, Default)]
pub struct Traced {
    /// The zygote's process id, 0 if there was none.
    pub zygote: i32,
    /// Calls of the zygote and of processes that have no filter yet, in the order in which they were seen.
    pub calls: Vec<Call>,
    /// The monitor's exit code, -1 after a signal.
    pub code: i32,
}

/// `SIGKILL` and `SIGSTOP` cannot be blocked.
pub const ALL_SIGNALS: u64 = !(1 << (9 - 1) | 1 << (19 - 1));

struct Task {
    process: i32,
    /// It has made a call and has not come back from it.
    inside: Option<u64>,
}

struct Tracer<'a> {
    tasks: HashMap<i32, Task>,
    /// Processes whose filter stands.
    filtered: Vec<i32>,
    monitor: i32,
    result: Traced,
    with_maps: &'a dyn Fn(u64) -> bool,
}

impl Traced {
    /// Runs a monitor to its end. `with_maps` says for which calls the caller's mappings are wanted.
    ///
    /// # Errors
    /// The program cannot be started, or the host does not let it be traced.
    pub fn run(mut command: Command, with_maps: &dyn Fn(u64) -> bool) -> Result<Traced, String> {
        // SAFETY: the call has no arguments that are pointers and takes no lock.
        unsafe {
            command.pre_exec(|| ptrace::traceme().map_err(Into::into));
        }
        let child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
        let monitor = i32::try_from(child.id()).map_err(|e| e.to_string())?;
        let mut tracer = Tracer {
            tasks: HashMap::new(),
            filtered: Vec::new(),
            monitor,
            result: Traced::default(),
            with_maps,
        };
        waitpid(Pid::from_raw(monitor), None).map_err(|e| format!("the first stop: {e}"))?;
        let options = Options::PTRACE_O_TRACEFORK
            | Options::PTRACE_O_TRACEVFORK
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEEXEC
            | Options::PTRACE_O_TRACESYSGOOD
            | Options::PTRACE_O_EXITKILL;
        ptrace::setoptions(Pid::from_raw(monitor), options).map_err(|e| format!("ptrace: {e}"))?;
        tracer.go_on(Pid::from_raw(monitor), None);
        tracer.follow()?;
        Ok(tracer.result)
    }
}

impl Tracer<'_> {
    fn follow(&mut self) -> Result<(), String> {
        loop {
            // Only those of this thread: other tests have children, too.
            let status = match waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)) {
                Ok(status) => status,
                Err(Errno::EINTR) => continue,
                Err(Errno::ECHILD) => return Ok(()),
                Err(error) => return Err(format!("wait: {error}")),
            };
            match status {
                WaitStatus::Exited(pid, code) if pid.as_raw() == self.monitor => {
                    self.result.code = code
                }
                WaitStatus::Signaled(pid, ..) if pid.as_raw() == self.monitor => {
                    self.result.code = -1
                }
                WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..) => {
                    self.tasks.remove(&pid.as_raw());
                }
                WaitStatus::PtraceSyscall(pid) => self.call(pid),
                WaitStatus::PtraceEvent(pid, ..) => self.go_on(pid, None),
                // A new task's first stop is no signal of anybody's.
                WaitStatus::Stopped(pid, Signal::SIGSTOP) => self.go_on(pid, None),
                WaitStatus::Stopped(pid, signal) => self.go_on(pid, Some(signal)),
                _ => {}
            }
        }
    }

    /// Is this task a part of the machine, and of which process?
    fn process_of(&self, pid: Pid) -> Option<i32> {
        let exe = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        if !exe.to_string_lossy().contains("memfd:paravane-layer") {
            return None;
        }
        status(pid, "Tgid")?.parse().ok()
    }

    /// Lets a task run: to its next call if it belongs to the machine and has no filter yet.
    fn go_on(&mut self, pid: Pid, signal: Option<Signal>) {
        let process = match self.tasks.get(&pid.as_raw()) {
            Some(task) => Some(task.process),
            None => self.process_of(pid),
        };
        let Some(process) = process else {
            // It may have ended meanwhile.
            let _ = ptrace::cont(pid, signal);
            return;
        };
        if self.result.zygote == 0 {
            self.result.zygote = process;
        }
        if self.filtered.contains(&process) {
            let _ = ptrace::detach(pid, signal);
            self.tasks.remove(&pid.as_raw());
            return;
        }
        self.tasks.entry(pid.as_raw()).or_insert(Task {
            process,
            inside: None,
        });
        let _ = ptrace::syscall(pid, signal);
    }

    fn call(&mut self, pid: Pid) {
        let Ok(registers) = ptrace::getregs(pid) else {
            return;
        };
        let number = registers.orig_rax;
        if let Some(task) = self.tasks.get_mut(&pid.as_raw()) {
            let process = task.process;
            if task.inside.take().is_some() {
                if number == libc_numbers::SECCOMP && registers.rax == 0 {
                    self.filtered.push(process);
                }
            } else {
                task.inside = Some(number);
                self.result.calls.push(Call {
                    process,
                    thread: pid.as_raw(),
                    number,
                    arguments: [
                        registers.rdi,
                        registers.rsi,
                        registers.rdx,
                        registers.r10,
                        registers.r8,
                        registers.r9,
                    ],
                    stack: registers.rsp,
                    blocked: status(pid, "SigBlk")
                        .map_or(0, |text| u64::from_str_radix(&text, 16).unwrap_or(0)),
                    maps: (self.with_maps)(number).then(|| {
                        fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default()
                    }),
                });
            }
        }
        self.go_on(pid, None);
    }
}

/// A line of a task's status.
fn status(pid: Pid, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().to_string())
}

/// Numbers of host calls that these tests name.
pub mod libc_numbers {
    /// rt_sigprocmask
    pub const SIGPROCMASK: u64 = 14;
    /// clone
    pub const CLONE: u64 = 56;
    /// prctl
    pub const PRCTL: u64 = 157;
    /// ppoll
    pub const PPOLL: u64 = 271;
    /// seccomp
    pub const SECCOMP: u64 = 317;
}
