// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tries something in a child process: the attempt may kill or change the process, or hang.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::File;
use std::io::{self, Read, Write};
use std::time::Duration;

/// Runs `body` in a child. Returns its result; `None` if the child died or exceeded the timeout.
pub fn in_child(timeout: Duration, body: impl FnOnce() -> Option<u64>) -> Option<u64> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).ok()?;
    // SAFETY: this command has one thread, so everything works in the child's copy of the program.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return None;
    }
    if pid == 0 {
        // The attempt can block in the host's kernel for seconds.
        let _ =
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
        let result = body();
        let code = i32::from(
            result.is_none_or(|value| File::from(write).write_all(&value.to_ne_bytes()).is_err()),
        );
        // SAFETY: ends the child without running the parent's exit handlers.
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

/// Reports whether `body` returns true in a child.
pub fn works(body: impl FnOnce() -> bool) -> bool {
    const TIMEOUT: Duration = Duration::from_secs(5);
    in_child(TIMEOUT, || body().then_some(1)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    // The test harness has several threads, but these children only make system calls.

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
