// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reaps processes that have exited: the agent's commands, and as process 1 all orphans.
//!
//! One thread waits for all of them, because a wait for any child would consume a status that
//! another thread waits for. The thread first waits without consuming (WNOWAIT). It reaps under the
//! lock that the fork of a command holds. So it never reaps a command before the table contains it.

use crate::spawn::{self, Program};
use rustix::pipe::{PipeFlags, pipe_with};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

/// How a command has exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// With this exit code.
    Exited(u8),
    /// By this signal.
    Killed(u8),
}

impl Status {
    /// The size of a status in the pipe of a command, in bytes.
    const SIZE: usize = 2;

    fn of_wait(status: i32) -> Status {
        let byte = |value: i32| u8::try_from(value & 0xff).unwrap_or(0);
        if libc::WIFSIGNALED(status) {
            Status::Killed(byte(libc::WTERMSIG(status)))
        } else {
            Status::Exited(byte(libc::WEXITSTATUS(status)))
        }
    }

    /// Reads the status from a command's pipe.
    pub fn read(pipe: &OwnedFd) -> io::Result<Status> {
        let mut bytes = [0; Self::SIZE];
        match (rustix::io::read(pipe, &mut bytes)?, bytes) {
            (Self::SIZE, [0, code]) => Ok(Status::Exited(code)),
            (Self::SIZE, [1, signal]) => Ok(Status::Killed(signal)),
            _ => Err(io::Error::other("the exit status of the command is lost")),
        }
    }
}

/// Running commands by process ID: the write ends of their pipes.
static COMMANDS: LazyLock<Mutex<HashMap<u32, OwnedFd>>> = LazyLock::new(Mutex::default);
/// Signalled when a command starts.
static STARTED: Condvar = Condvar::new();

fn commands() -> MutexGuard<'static, HashMap<u32, OwnedFd>> {
    COMMANDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a program. Returns its process ID and a pipe that becomes readable when the process has
/// exited, for [`Status::read`]. Waits until the program is executed: the file system that has it
/// may be slow, or may never answer. No lock is held then, so other commands start and end.
pub fn spawn(program: &Program) -> io::Result<(u32, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    let (complaint, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    let mut table = commands();
    let pid = program.fork(&theirs)?;
    table.insert(pid, write);
    STARTED.notify_one();
    drop(table);
    // While it is open here, the pipe does not end.
    drop(theirs);
    match spawn::failure(&complaint)? {
        None => Ok((pid, read)),
        Some(error) => Err(error),
    }
}

/// Calls `then` if the command has not been reaped. Until `then` returns, its process ID is not
/// reused.
pub fn while_it_runs(pid: u32, then: impl FnOnce()) {
    if commands().contains_key(&pid) {
        then();
    }
}

/// Stops the start of commands and the reports of their ends, because the machine will end now.
pub fn stop() {
    std::mem::forget(commands());
}

/// Starts the thread that reaps.
pub fn start() -> io::Result<()> {
    std::thread::Builder::new()
        .name("reap".to_string())
        .spawn(work)?;
    Ok(())
}

fn work() {
    loop {
        let Some(pid) = next_ended() else {
            // Without children there are no descendants that could become orphans.
            let commands = commands();
            if commands.is_empty() {
                drop(STARTED.wait(commands));
            }
            continue;
        };
        let mut commands = commands();
        let mut status = 0;
        // SAFETY: waitpid() writes to the local value only.
        if unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } != pid {
            continue;
        }
        if let Some(pipe) = u32::try_from(pid)
            .ok()
            .and_then(|pid| commands.remove(&pid))
        {
            let bytes = match Status::of_wait(status) {
                Status::Exited(code) => [0, code],
                Status::Killed(signal) => [1, signal],
            };
            // Fails if the session has ended, or the program could not be executed.
            let _ = rustix::io::write(&pipe, &bytes);
        }
    }
}

/// Waits until a child has exited, without reaping it. None if there is no child.
fn next_ended() -> Option<libc::pid_t> {
    // SAFETY: siginfo_t is plain data for which all zeroes is a valid value, and waitid() writes to
    // the local value only. On success it has filled the fields of SIGCHLD, such as the pid.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        loop {
            if libc::waitid(libc::P_ALL, 0, &raw mut info, libc::WEXITED | libc::WNOWAIT) == 0 {
                return Some(info.si_pid());
            }
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return None;
            }
        }
    }
}
