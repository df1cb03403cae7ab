// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Trying something in a child process: it may be killed for it, change itself for good, or hang.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::File;
use std::io::{self, Read, Write};
use std::time::Duration;

/// Runs `body` in a child; its result, or nothing if it did not come to one in time.
pub fn in_child(timeout: Duration, body: impl FnOnce() -> Option<u64>) -> Option<u64> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).ok()?;
    // SAFETY: this command has one thread, so the child is a whole copy of the program in which everything works.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return None;
    }
    if pid == 0 {
        // What is tried can wait for the host's kernel for seconds.
        let _ =
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
        let result = body();
        let code = i32::from(
            result.is_none_or(|value| File::from(write).write_all(&value.to_ne_bytes()).is_err()),
        );
        // SAFETY: ends the child without running what the parent has prepared for its own end.
        unsafe { libc::_exit(code) }
    }
    drop(write);
    let result = number(File::from(read), timeout);
    // SAFETY: the process is our child, and this is the only place that waits for it.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        while libc::waitpid(pid, std::ptr::null_mut(), 0) < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
    result
}

fn number(mut file: File, timeout: Duration) -> Option<u64> {
    let timeout = Timespec::try_from(timeout).ok()?;
    if poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&timeout)).ok()? == 0 {
        return None;
    }
    let mut bytes = [0u8; 8];
    file.read_exact(&mut bytes).ok()?;
    Some(u64::from_ne_bytes(bytes))
}

/// Whether `body` says yes in a child.
pub fn works(body: impl FnOnce() -> bool) -> bool {
    const TIMEOUT: Duration = Duration::from_secs(5);
    in_child(TIMEOUT, || body().then_some(1)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    // The test harness has threads: these children only make system calls.

    #[test]
    fn results_come_back_and_bad_ends_do_not_matter() {
        assert_eq!(in_child(Duration::from_secs(5), || Some(7)), Some(7));
        assert_eq!(in_child(Duration::from_secs(5), || None), None);
        let killed = || {
            // SAFETY: kills the calling process.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            Some(1)
        };
        assert_eq!(in_child(Duration::from_secs(5), killed), None);
        let hangs = || loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        };
        assert_eq!(in_child(Duration::from_millis(20), hangs), None);
    }
}
