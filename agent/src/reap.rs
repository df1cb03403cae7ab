// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting for processes that have ended: our own commands, and as process 1 everybody's orphans.
//!
//! One thread waits for all of them, since a wait for any process takes away the status that another thread waits for.
//! It only looks first, and collects under the lock that a start of a command holds: so it never collects a process that
//! is not known yet, nor one that the start itself has to collect because the program could not be executed.

use rustix::pipe::{PipeFlags, pipe_with};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

/// How a command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// With this exit code.
    Exited(u8),
    /// By this signal.
    Killed(u8),
}

impl Status {
    /// The bytes that the pipe of a command carries.
    const SIZE: usize = 2;

    fn of_wait(status: i32) -> Status {
        let byte = |value: i32| u8::try_from(value & 0xff).unwrap_or(0);
        if libc::WIFSIGNALED(status) {
            Status::Killed(byte(libc::WTERMSIG(status)))
        } else {
            Status::Exited(byte(libc::WEXITSTATUS(status)))
        }
    }

    /// What was read of a command's pipe.
    pub fn read(pipe: &OwnedFd) -> io::Result<Status> {
        let mut bytes = [0; Self::SIZE];
        match (rustix::io::read(pipe, &mut bytes)?, bytes) {
            (Self::SIZE, [0, code]) => Ok(Status::Exited(code)),
            (Self::SIZE, [1, signal]) => Ok(Status::Killed(signal)),
            _ => Err(io::Error::other("how the command ended is not known")),
        }
    }
}

/// The commands that run: the ends to write of their pipes.
static COMMANDS: LazyLock<Mutex<HashMap<u32, OwnedFd>>> = LazyLock::new(Mutex::default);
/// There is something to wait for again.
static STARTED: Condvar = Condvar::new();

fn commands() -> MutexGuard<'static, HashMap<u32, OwnedFd>> {
    COMMANDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a command with `spawn`. The second one becomes readable when it has ended, for [`Status::read`].
pub fn spawn(spawn: impl FnOnce() -> io::Result<Child>) -> io::Result<(u32, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    let mut commands = commands();
    let pid = spawn()?.id();
    commands.insert(pid, write);
    STARTED.notify_one();
    Ok((pid, read))
}

/// Whether this command has not been collected: its number is its own.
pub fn while_it_runs(pid: u32, then: impl FnOnce()) {
    if commands().contains_key(&pid) {
        then();
    }
}

/// Starts the thread.
pub fn start() -> io::Result<()> {
    std::thread::Builder::new()
        .name("reap".to_string())
        .spawn(work)?;
    Ok(())
}

fn work() {
    loop {
        let Some(pid) = next_ended() else {
            // No child at all, hence nobody whose orphans could become ours.
            let commands = commands();
            if commands.is_empty() {
                drop(STARTED.wait(commands));
            }
            continue;
        };
        let mut commands = commands();
        let mut status = 0;
        // SAFETY: writes to the local value.
        if unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } != pid {
            // A start has collected it.
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
            // Fails when nobody wants to know.
            let _ = rustix::io::write(&pipe, &bytes);
        }
    }
}

/// Waits until a child has ended, and leaves it as it is. None if there is no child.
fn next_ended() -> Option<libc::pid_t> {
    // SAFETY: the call writes to the local value, for which zero is a value; after success it is about a child.
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
