// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The monitor's descriptors: room for many, and shares for what a guest can have the monitor open.
//!
//! A shared folder has one for each file that the guest knows, each TCP connection of the guest has
//! one, and so has each of its sockets to the host and each socket for its datagrams. All threads
//! of a process have the same table. Without a descriptor, the monitor could neither take a request
//! of its user nor read what the machine takes of the host's memory. So each kind of device has a
//! share, and the monitor has one.
//!
//! Linux doubles a process's table when it is full. While several threads share it, the thread that
//! needs the room then sleeps until all CPUs have passed through the scheduler (`expand_fdtable()`
//! in fs/file.c): a list of 9,700 files took six such sleeps of 7 to 19 ms, and workers served for
//! a while after each. A table never becomes smaller, so it is made large before there are threads.

use rustix::process::{Resource, getrlimit, setrlimit};
use std::io::stderr;
use std::os::fd::RawFd;

/// Descriptors for which there is room from the beginning, if the process may have as many. They
/// take 130 KiB of the host's kernel. More are possible, and cost a wait each time the number
/// doubles.
const ROOM: u64 = 16384;

/// Connections that wait at a listener of vsock, each with a descriptor.
const BACKLOG: RawFd = 128;

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

/// What each kind of device may have of the process's descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// The most TCP connections through the stack. With their buffers, they take at most 368 MiB
    /// ([`paravane_net::user::TCP_BUFFER`]).
    pub connections: usize,
    /// The most sockets for datagrams through the stack.
    pub datagrams: usize,
    /// The most connections of the guest's sockets (vsock).
    pub sockets: usize,
    /// Folders have descriptors below this one. It leaves the shares above, one for connections of
    /// vsock that were not accepted yet, and one for the monitor itself.
    pub folders: RawFd,
}

impl Shares {
    /// The shares of a process that may have this number of descriptors.
    pub fn of(limit: u64) -> Self {
        let limit = RawFd::try_from(limit).unwrap_or(RawFd::MAX);
        // The stack needs four connections for its own ends.
        let connections = (limit / 4).clamp(4, 4096);
        let datagrams = (limit / 16).clamp(4, 256);
        let sockets = (limit / 8).clamp(4, 1024);
        let waiting = (limit / 8).min(BACKLOG);
        let own = (limit / 8).min(1024);
        Shares {
            connections: connections.unsigned_abs() as usize,
            datagrams: datagrams.unsigned_abs() as usize,
            sockets: sockets.unsigned_abs() as usize,
            folders: limit - connections - datagrams - sockets - waiting - own,
        }
    }
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
    fn each_share_leaves_the_others() {
        for (limit, connections, datagrams, sockets, folders) in [
            (0, 4, 4, 4, -12),
            (200, 50, 12, 25, 63),
            (1024, 256, 64, 128, 320),
            (4096, 1024, 256, 512, 1664),
            (524_288, 4096, 256, 1024, 517_760),
            (u64::MAX, 4096, 256, 1024, RawFd::MAX - 6528),
        ] {
            let expected = Shares {
                connections,
                datagrams,
                sockets,
                folders,
            };
            assert_eq!(Shares::of(limit), expected, "{limit}");
        }
    }

    #[test]
    fn the_table_has_room_for_many() {
        make_room();
        raise();
        assert!(size() >= limit().min(ROOM), "{}", size());
    }
}
