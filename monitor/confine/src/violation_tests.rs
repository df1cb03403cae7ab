// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Violations in children whose standard error is a pipe.

use super::watch;
use crate::thread_policies::{MONITOR, compile};
use seccompiler::BpfProgram;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Forks a child with this standard error that makes a call which its policy does not admit.
/// Returns its exit code; none if it has not ended in time.
fn violate(filter: &BpfProgram, error: &OwnedFd) -> Option<i32> {
    // SAFETY: the child makes system calls; it neither takes a lock nor uses the heap.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        // SAFETY: as above. The call is not executed.
        unsafe {
            libc::dup2(error.as_raw_fd(), libc::STDERR_FILENO);
            let ready = watch("test").is_ok() && seccompiler::apply_filter(filter).is_ok();
            if ready {
                libc::syscall(libc::SYS_kill, 1 << 30, 0);
            }
            libc::_exit(255)
        }
    }
    let begun = Instant::now();
    let mut status = 0;
    loop {
        // SAFETY: waits for our own child.
        match unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } {
            0 if begun.elapsed() > Duration::from_secs(5) => {
                // SAFETY: ends our own child.
                unsafe {
                    libc::kill(pid, libc::SIGKILL);
                    libc::waitpid(pid, &raw mut status, 0);
                }
                return None;
            }
            0 => std::thread::sleep(Duration::from_millis(1)),
            done => {
                assert_eq!(done, pid);
                assert!(libc::WIFEXITED(status), "signal {}", libc::WTERMSIG(status));
                return Some(libc::WEXITSTATUS(status));
            }
        }
    }
}

/// A guest can fill standard error before it makes a thread of the monitor do something else.
#[test]
fn a_violation_ends_the_process_though_nobody_reads_the_report() {
    for (name, policy) in compile(MONITOR).unwrap() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        assert_eq!(violate(&policy.filter, &write), Some(1), "{name}");
        drop(write);
        let mut report = String::new();
        File::from(read).read_to_string(&mut report).unwrap();
        assert!(
            report.contains("made the host call kill"),
            "{name}: {report}"
        );

        let (_read, write) = rustix::pipe::pipe().unwrap();
        while rustix::io::ioctl_fionread(&write).unwrap() < 64 << 10 {
            rustix::io::write(&write, &[0; 4096]).unwrap();
        }
        assert_eq!(violate(&policy.filter, &write), Some(1), "{name}");
    }
}
