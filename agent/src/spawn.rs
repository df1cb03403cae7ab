// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Forks, and executes a program.
//!
//! `std::process::Command` reaps a child that it cannot execute, and returns only after execve(2).
//! Here, the caller learns the process ID right after the fork, so it needs no lock while chdir(2)
//! or execve(2) waits for a file system.

use rustix::process::{
    Gid, Resource, Rlimit, Uid, getrlimit, ioctl_tiocsctty, setpgid, setrlimit, setsid,
};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::OnceLock;

/// The user and groups of a new process.
#[derive(Debug)]
pub struct Identity {
    pub uid: Uid,
    pub gid: Gid,
    pub groups: Vec<Gid>,
}

/// A program that will be executed in a new process.
#[derive(Debug)]
pub struct Program {
    pub file: CString,
    pub argv: Vec<CString>,
    /// Words `KEY=VALUE`.
    pub env: Vec<CString>,
    pub folder: CString,
    /// Standard input, output and error. None of them is one of the agent's own three.
    pub streams: [OwnedFd; 3],
    /// Standard input becomes the controlling terminal. Otherwise the process is in the agent's
    /// session, with a process group of its own.
    pub terminal: bool,
    /// Another user than the agent's.
    pub identity: Option<Identity>,
}

/// The descriptor of the pipe for errors, in the new process.
const COMPLAINT: RawFd = 3;
/// The bytes of an error in that pipe.
const ERROR: usize = 4;

/// The limit of open files that new processes get.
static OPEN_FILES: OnceLock<Rlimit> = OnceLock::new();

/// Raises the agent's own limit of open files to its maximum: each command takes some of them.
/// Commands get the limit that holds now.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Called once.
    let _ = OPEN_FILES.set(limit);
    let most = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // If it fails, there is room for fewer commands.
    let _ = setrlimit(Resource::Nofile, most);
}

impl Program {
    /// Forks a process that executes the program, and returns its process ID. If the program cannot
    /// be executed, the process writes the reason to `complaint`, for [`failure`], and exits.
    pub fn fork(&self, complaint: &OwnedFd) -> io::Result<u32> {
        let pointers = |words: &[CString]| -> Vec<*const libc::c_char> {
            let words = words.iter().map(|word| word.as_ptr());
            words.chain([ptr::null()]).collect()
        };
        // Nothing may be allocated after the fork: another thread may hold the allocator's lock.
        let (argv, env) = (pointers(&self.argv), pointers(&self.env));
        let limit = OPEN_FILES.get().copied();
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: sigfillset() initializes `all`, and pthread_sigmask() `before`. The child only
        // makes system calls, and does not return from the block. Signals stay blocked in it until
        // it has no handler of the agent.
        let pid = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            let pid = libc::fork();
            if pid == 0 {
                let error = self.execute(complaint, limit, &argv, &env);
                let bytes = error.raw_os_error().unwrap_or(libc::EIO).to_ne_bytes();
                libc::write(COMPLAINT, bytes.as_ptr().cast(), bytes.len());
                libc::_exit(127);
            }
            // The kernel sets errno in fork() only.
            let error = io::Error::last_os_error();
            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
            if pid < 0 {
                return Err(error);
            }
            pid
        };
        u32::try_from(pid).map_err(io::Error::other)
    }

    /// In the new process: executes the program. Returns only if that fails.
    ///
    /// # Safety
    /// The process has one thread and has just been forked, with all signals blocked. The arrays
    /// end with a null pointer.
    unsafe fn execute(
        &self,
        complaint: &OwnedFd,
        limit: Option<Rlimit>,
        argv: &[*const libc::c_char],
        env: &[*const libc::c_char],
    ) -> io::Error {
        let prepared = self.streams_only(complaint).and_then(|()| {
            if self.terminal {
                setsid()?;
                ioctl_tiocsctty(rustix::stdio::stdin())?;
            } else {
                setpgid(None, None)?;
            }
            chdir(&self.folder)?;
            // SAFETY: this function's own requirements.
            unsafe { reset(limit) }?;
            if let Some(identity) = &self.identity {
                // After fork there is only this thread.
                set_thread_groups(&identity.groups)?;
                set_thread_gid(identity.gid)?;
                set_thread_uid(identity.uid)?;
            }
            Ok(())
        });
        if let Err(error) = prepared {
            return error;
        }
        // SAFETY: all strings end with a zero byte, and the arrays with a null pointer.
        unsafe { libc::execve(self.file.as_ptr(), argv.as_ptr(), env.as_ptr()) };
        io::Error::last_os_error()
    }

    /// Leaves the three streams and the pipe for errors open, and nothing else. This process may
    /// wait in execve(2) for long. Meanwhile, the streams of other sessions must be able to end.
    fn streams_only(&self, complaint: &OwnedFd) -> io::Result<()> {
        for (stream, place) in self.streams.iter().zip(0..) {
            dup2(stream.as_fd().as_raw_fd(), place, 0)?;
        }
        if complaint.as_raw_fd() != COMPLAINT {
            dup2(complaint.as_raw_fd(), COMPLAINT, libc::O_CLOEXEC)?;
        }
        // SAFETY: a system call with plain numbers. The descriptors belong to the parent's values,
        // which this process does not use any more. Linux before 5.9 lacks the call, and closes
        // the descriptors in execve(2).
        unsafe { libc::syscall(libc::SYS_close_range, COMPLAINT + 1, u32::MAX, 0) };
        Ok(())
    }
}

fn dup2(from: RawFd, to: RawFd, flags: libc::c_int) -> io::Result<()> {
    // SAFETY: a system call with plain numbers, in a process that does not use what `to` was.
    match unsafe { libc::dup3(from, to, flags) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn chdir(folder: &CStr) -> io::Result<()> {
    // SAFETY: the string ends with a zero byte.
    match unsafe { libc::chdir(folder.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets all signals to their default, whatever the agent's parent ignored, and blocks none: the
/// agent's threads block SIGCHLD. The kernel may choose the process when memory is short, whatever
/// holds for the agent. The limit of open files is the usual one.
///
/// # Safety
/// The process has one thread.
unsafe fn reset(limit: Option<Rlimit>) -> io::Result<()> {
    if let Some(limit) = limit {
        setrlimit(Resource::Nofile, limit)?;
    }
    // SAFETY: system calls. The set is initialized before it is used. signal() fails for signals
    // that cannot be changed.
    unsafe {
        for signal in 1..=libc::SIGRTMAX() {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = MaybeUninit::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
        let score = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY);
        // Without /proc, the agent is process 1 and has not changed its own.
        if score >= 0 {
            libc::write(score, c"0".as_ptr().cast(), 1);
            libc::close(score);
        }
    }
    Ok(())
}

/// Waits until a program is executed, and returns why it is not. `complaint` is the other end of
/// the pipe that [`Program::fork`] got.
pub fn failure(complaint: &OwnedFd) -> io::Result<Option<io::Error>> {
    let mut bytes = [0; ERROR];
    loop {
        match rustix::io::read(complaint, &mut bytes) {
            Ok(0) => return Ok(None),
            // The process has written all bytes at once.
            Ok(_) => {
                return Ok(Some(io::Error::from_raw_os_error(i32::from_ne_bytes(
                    bytes,
                ))));
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
