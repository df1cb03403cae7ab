// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The descriptors that a folder leaves to the rest of the process.
//!
//! A folder has one descriptor for each file that the guest knows or has open. All threads of the
//! process have the same table of descriptors. Without room in it, the monitor could neither take a
//! request of its user nor read what the machine takes of the host's memory. So a folder takes only
//! descriptors below a number.

use std::io;
use std::os::fd::RawFd;

/// The room that a folder has: descriptors below a number.
#[derive(Debug)]
pub struct Room {
    end: RawFd,
}

impl Room {
    /// Room up to this descriptor, which is not a part of it.
    pub fn new(end: RawFd) -> Self {
        Room { end }
    }

    /// Checks for room. The caller then does one operation, which keeps at most `count` new
    /// descriptors. The host always gives the lowest free number. So if the last `count` numbers
    /// below the end are free, the new descriptors are below the end. The check takes one host call
    /// for each of these numbers.
    ///
    /// # Errors
    /// EMFILE. The guest's kernel then forgets files that it does not use.
    pub fn check(&self, count: RawFd) -> io::Result<()> {
        let mut last = self.end.saturating_sub(count)..self.end;
        if self.end < count || last.any(is_open) {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        Ok(())
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
        for (end, count, room) in [
            (number, 2, true),
            (number + 1, 1, false),
            (number + 2, 1, true),
            (number + 2, 2, false),
            (number + 3, 2, true),
            (RawFd::MAX, 2, true),
            (3, 1, false),
            (1, 2, false),
            (0, 1, false),
            (-8, 1, false),
        ] {
            let checked = Room::new(end).check(count);
            assert_eq!(checked.is_ok(), room, "{end} {count}");
        }
    }
}
