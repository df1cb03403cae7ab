// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Room for the descriptors of a shared folder's files: the device has one for each that the guest
//! knows.
//!
//! Linux doubles a process's table when it is full. While several threads share it, the thread that
//! needs the room then sleeps until all CPUs have passed through the scheduler (`expand_fdtable()`
//! in fs/file.c): a list of 9,700 files took six such sleeps of 7 to 19 ms, and workers served for
//! a while after each. A table never becomes smaller, so it is made large before.

use rustix::process::{Resource, getrlimit};
use std::io;
use std::os::fd::BorrowedFd;

/// Descriptors for which there is room from the beginning, if the process may have as many. They
/// take 130 KiB of the host's kernel. More are possible, and cost a wait each time the number
/// doubles.
const ROOM: u64 = 16384;

/// Makes room. `any` is open. While the process has other threads, this is one such sleep.
///
/// # Errors
/// The process has no descriptor left.
pub fn make_room(any: BorrowedFd<'_>) -> io::Result<()> {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(ROOM);
    let last = most.min(ROOM).saturating_sub(1);
    let last = i32::try_from(last).map_err(io::Error::other)?;
    // The last one may be in use: then there is room.
    match rustix::io::fcntl_dupfd_cloexec(any, last) {
        Ok(_) | Err(rustix::io::Errno::MFILE) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// The size of this process's table.
    fn size() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        line.unwrap().trim().parse().unwrap()
    }

    #[test]
    fn the_table_has_room_for_many() {
        let file = std::fs::File::open("/").unwrap();
        make_room(file.as_fd()).unwrap();
        let most = getrlimit(Resource::Nofile).current.unwrap_or(ROOM);
        assert!(size() >= most.min(ROOM), "{}", size());
    }
}
