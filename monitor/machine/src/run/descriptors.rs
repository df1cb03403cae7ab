// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Room for the descriptors of shared folders: the device has one for each file that the guest
//! knows. What else a guest can have the monitor open must leave some of them.
//!
//! Linux doubles a process's table when it is full. While several threads share it, the thread that
//! needs the room then sleeps until all CPUs have passed through the scheduler (`expand_fdtable()`
//! in fs/file.c): a list of 9,700 files took six such sleeps of 7 to 19 ms, and workers served for
//! a while after each. A table never becomes smaller, so it is made large before there are threads.

use rustix::process::{Resource, getrlimit, setrlimit};
use std::io::stderr;

/// Descriptors for which there is room from the beginning, if the process may have as many. They
/// take 130 KiB of the host's kernel. More are possible, and cost a wait each time the number
/// doubles.
const ROOM: u64 = 16384;

/// Raises the limit of descriptors to its maximum.
pub fn raise() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If a sandbox refuses this, the lower limit stays.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// The number of descriptors that the process may have.
pub fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Makes room, and leaves the limit as it was: programs that build a kernel need no more. While the
/// process has other threads, this is one of the sleeps that it saves. Without the room, everything
/// works.
pub fn make_room() {
    let before = getrlimit(Resource::Nofile);
    raise();
    let most = limit();
    let last = i32::try_from(most.min(ROOM).saturating_sub(1)).unwrap_or(0);
    // The last one may be in use: then there is room.
    if let Err(error) = rustix::io::fcntl_dupfd_cloexec(stderr(), last) {
        tracing::debug!(%error, "no room for descriptors");
    }
    let _ = setrlimit(Resource::Nofile, before);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of this process's table.
    fn size() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        line.unwrap().trim().parse().unwrap()
    }

    #[test]
    fn the_table_has_room_for_many() {
        make_room();
        raise();
        assert!(size() >= limit().min(ROOM), "{}", size());
    }
}
