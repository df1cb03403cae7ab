// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The descriptors that a folder leaves to the rest of the process.
//!
//! A folder has one descriptor for each file that the guest knows or has open. All threads of the
//! process have the same table of descriptors. Without room in it, the monitor could neither take a
//! request of its user nor read what the machine takes of the host's memory. So a folder takes only
//! descriptors below a number.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// The descriptors that the operations of all threads may keep which are being carried out. All
/// folders of a process share its descriptors, so there is one such number.
static PENDING: AtomicI32 = AtomicI32::new(0);

/// The room that a folder has: descriptors below a number.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    end: RawFd,
}

/// An operation that was checked is being carried out.
#[derive(Debug)]
#[must_use = "the operation must be carried out before this is dropped"]
pub struct Taking(RawFd);

impl Taking {
    /// Returns it, and how many descriptors all operations may keep.
    fn begin(count: RawFd) -> (Self, RawFd) {
        let before = PENDING.fetch_add(count, Ordering::SeqCst);
        (Taking(count), before + count)
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        PENDING.fetch_sub(self.0, Ordering::SeqCst);
    }
}

impl Room {
    /// Room up to this descriptor, which is not a part of it.
    pub fn new(end: RawFd) -> Self {
        Room { end }
    }

    /// Checks for room. The caller then does one operation, which keeps at most `count` new
    /// descriptors, while it has the result. The host always gives the lowest free number. So if as
    /// many numbers below the end are free as all threads are about to take, the new descriptors
    /// are below the end. If these are the last ones, this takes one host call for each.
    ///
    /// One of the last numbers may have been in use for long, while lower ones have become free
    /// since. So if they are not free, the check takes as many descriptors for a moment, and looks
    /// where they are.
    ///
    /// # Errors
    /// EMFILE. The guest's kernel then forgets files that it does not use.
    pub fn check(&self, count: RawFd) -> io::Result<Taking> {
        let (taking, all) = Taking::begin(count);
        let mut last = self.end.saturating_sub(all)..self.end;
        if (self.end >= all && !last.any(is_open)) || self.gets(all) {
            return Ok(taking);
        }
        Err(io::Error::from_raw_os_error(libc::EMFILE))
    }

    /// Whether a descriptor is one of the folder's. Others must not stay open.
    pub fn has(&self, descriptor: RawFd) -> bool {
        descriptor < self.end
    }

    /// Whether the next `count` descriptors are below the end.
    fn gets(&self, count: RawFd) -> bool {
        let mut taken = Vec::new();
        for _ in 0..count {
            match rustix::io::fcntl_dupfd_cloexec(io::stderr(), 0) {
                Ok(descriptor) if descriptor.as_raw_fd() < self.end => taken.push(descriptor),
                _ => return false,
            }
        }
        true
    }
}

fn is_open(number: RawFd) -> bool {
    // SAFETY: F_GETFD reads a flag of a descriptor, and fails if there is none.
    unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn there_is_room_while_the_last_descriptors_are_free() {
        let file = std::fs::File::open("/dev/null").unwrap();
        // So far up that no other test takes it or its neighbours.
        let high = rustix::io::fcntl_dupfd_cloexec(&file, 900).unwrap();
        let number = high.as_raw_fd();
        for (end, count) in [
            (number, 2),
            (number + 2, 1),
            (number + 3, 2),
            (RawFd::MAX, 2),
        ] {
            assert!(Room::new(end).check(count).is_ok(), "{end} {count}");
        }
    }

    /// The number before the end is in use, and those below are free.
    #[test]
    fn there_is_room_if_lower_descriptors_are_free() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let high = rustix::io::fcntl_dupfd_cloexec(&file, 800).unwrap();
        for count in [1, 2, 5] {
            assert!(
                Room::new(high.as_raw_fd() + 1).check(count).is_ok(),
                "{count}"
            );
        }
    }

    /// Standard input, output and error are in use.
    #[test]
    fn there_is_no_room_below_what_is_in_use() {
        for (end, count) in [(3, 1), (1, 2), (0, 1), (-8, 1)] {
            assert!(Room::new(end).check(count).is_err(), "{end} {count}");
        }
    }
}
