// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A connected socket, and who is at its other end.

use paravane_vbus::{Credentials, MemberId};
use rustix::net::sockopt::socket_peercred;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Most groups that are read. A user with more is known by the primary one only.
const GROUPS: usize = 1024;

/// An administrator or client.
#[derive(Debug)]
pub struct Peer {
    pub socket: OwnedFd,
    pub who: Credentials,
    /// vbusd's own user, or root.
    pub administrator: bool,
    pub member: Option<MemberId>,
    /// A packet with an event for which the socket has no room.
    pub unsent: Option<Vec<u8>>,
}

impl Peer {
    /// Asks the kernel who has connected.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        let found = socket_peercred(&socket)?;
        let (uid, gid) = (found.uid.as_raw(), found.gid.as_raw());
        let mut gids = groups(&socket)?;
        gids.push(gid);
        let me = rustix::process::geteuid();
        Ok(Peer {
            socket,
            who: Credentials {
                process: u64::try_from(found.pid.as_raw_nonzero().get()).unwrap_or(0),
                uid,
                gids,
            },
            administrator: uid == me.as_raw() || uid == 0,
            member: None,
            unsent: None,
        })
    }
}

fn groups(socket: &OwnedFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; GROUPS];
    let mut len = libc::socklen_t::try_from(size_of_val(&groups[..])).unwrap_or(0);
    // SAFETY: the kernel writes at most `len` bytes to `groups`, and the length to `len`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result != 0 {
        let error = io::Error::last_os_error();
        // More than fit: the primary group is known all the same.
        return match error.raw_os_error() {
            Some(libc::ERANGE) => Ok(Vec::new()),
            _ => Err(error),
        };
    }
    groups.truncate(len as usize / size_of::<u32>());
    Ok(groups)
}
