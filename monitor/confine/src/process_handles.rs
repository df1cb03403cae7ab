// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Descriptors by which confined threads may end a process.
//!
//! A policy sees a descriptor's number, not what the descriptor refers to. `pidfd_send_signal`
//! accepts an open folder `/proc/PID` as well as a pidfd, and some threads may open such folders.
//! Therefore the numbers of the pidfds are reserved: no policy lets a thread close them or replace
//! what they refer to.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{DupFlags, Errno, dup3, fcntl_dupfd_cloexec};
use rustix::process::{Signal, pidfd_send_signal};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A machine needs two: one for the zygote, one for passt.
const COUNT: usize = 8;
/// The search for free numbers starts here.
const LOWEST: RawFd = 16;

/// The first reserved number.
static FIRST: OnceLock<RawFd> = OnceLock::new();
static USED: Mutex<[bool; COUNT]> = Mutex::new([false; COUNT]);

/// A process descriptor under a reserved number.
#[derive(Debug)]
pub struct Kept(usize);

/// The first and the last reserved number. The first caller reserves them.
///
/// # Errors
/// The host has no free descriptors.
pub fn numbers() -> io::Result<(RawFd, RawFd)> {
    // Two concurrent callers must not both reserve.
    let _used = USED.lock().unwrap_or_else(PoisonError::into_inner);
    let first = match FIRST.get() {
        Some(&first) => first,
        None => {
            let first = reserve()?;
            *FIRST.get_or_init(|| first)
        }
    };
    Ok((first, number(first, COUNT - 1)))
}

fn number(first: RawFd, index: usize) -> RawFd {
    first + RawFd::try_from(index).unwrap_or(0)
}

/// Occupies consecutive free numbers with a descriptor that refers to no process. Other threads may
/// open files at the same time.
fn reserve() -> io::Result<RawFd> {
    let nobody = eventfd(0, EventfdFlags::CLOEXEC)?;
    let (mut row, mut others) = (Vec::new(), Vec::new());
    while row.len() < COUNT {
        // The lowest free number.
        let next = fcntl_dupfd_cloexec(&nobody, LOWEST)?;
        if row
            .last()
            .is_some_and(|last: &OwnedFd| last.as_raw_fd() + 1 != next.as_raw_fd())
        {
            others.append(&mut row);
        }
        row.push(next);
    }
    let numbers: Vec<RawFd> = row.into_iter().map(IntoRawFd::into_raw_fd).collect();
    numbers.first().copied().ok_or_else(|| Errno::MFILE.into())
}

/// Puts a copy of a descriptor under a reserved number.
fn put(file: BorrowedFd<'_>, at: RawFd) -> io::Result<()> {
    // SAFETY: the number is reserved, so no other owner exists. It is never dropped.
    let mut to = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(at) });
    dup3(file, &mut to, DupFlags::CLOEXEC)?;
    Ok(())
}

/// Keeps a process descriptor under a reserved number. A confined thread cannot do this.
///
/// # Errors
/// All reserved numbers are in use.
pub fn keep(process: &OwnedFd) -> io::Result<Kept> {
    let (first, _) = numbers()?;
    let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
    let index = used.iter().position(|used| !used).ok_or(Errno::MFILE)?;
    put(process.as_fd(), number(first, index))?;
    used[index] = true;
    Ok(Kept(index))
}

impl Kept {
    /// Kills the process. Does nothing after the process has ended.
    pub fn kill(&self) {
        let Some(&first) = FIRST.get() else { return };
        // SAFETY: reserved numbers stay open.
        let file = unsafe { BorrowedFd::borrow_raw(number(first, self.0)) };
        let _ = pidfd_send_signal(file, Signal::KILL);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // The number stays open until it is reused: confined threads must not be able to close it.
        USED.lock().unwrap_or_else(PoisonError::into_inner)[self.0] = false;
    }
}
