// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A connected socket, and the user at its other end.

use paravane_vbus::{ConnectionId, Credentials, Event, MemberId};
use paravane_vbus_protocol::{Error, Reply, encode, send};
use rustix::net::SendFlags;
use rustix::net::sockopt::set_socket_passcred;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Most groups that are read. A user with more is known by the primary one only.
const GROUPS: usize = 1024;
/// Numbers from here on are no process ids.
const UNKNOWN: u64 = 1 << 32;
/// Numbers that `SO_MEMINFO` gives, and the place of the bytes that the other end has not read.
const FIGURES: usize = 16;
const UNREAD: usize = 2;
/// Bytes that a packet may take in the kernel besides twice its own.
const OVERHEAD: u64 = 2048;
/// Bytes of answers that a client may leave unread when it opens a connection: a few small ones.
const SLACK: u64 = 2 * OVERHEAD;

/// An administrator or client.
#[derive(Debug)]
pub struct Peer {
    pub socket: OwnedFd,
    pub who: Credentials,
    /// vbusd's own user, or root.
    pub administrator: bool,
    pub member: Option<MemberId>,
    /// An event for which the socket has no room.
    pub unsent: Option<Unsent>,
    /// One of its cards still ends: no event is sent, and room for events is not waited for.
    pub held: bool,
    /// An answer waits (`crate::later`): no further request is taken.
    pub waits: bool,
    /// A bound of the kernel's bytes that were sent since the last answer with files.
    sent: u64,
}

/// An event that is not sent yet.
#[derive(Debug)]
pub struct Unsent {
    pub packet: Vec<u8>,
    /// The connection whose memory goes beside it.
    pub lender: Option<ConnectionId>,
}

impl Unsent {
    /// `None`: it cannot be said in a packet.
    pub fn new(event: Event) -> Option<Self> {
        let lender = match event {
            Event::Lends { lender, .. } => Some(lender),
            _ => None,
        };
        let packet = encode(&Reply::Event(event)).ok()?;
        Some(Unsent { packet, lender })
    }
}

impl Peer {
    /// Asks the kernel who has connected. `number` is the peer's alone.
    ///
    /// # Errors
    /// The kernel does not say. The socket comes back.
    pub fn new(socket: OwnedFd, number: u64) -> Result<Self, OwnedFd> {
        match identify(&socket, number) {
            Ok(who) => {
                let me = rustix::process::geteuid();
                let administrator = who.uid == me.as_raw() || who.uid == 0;
                Ok(Peer {
                    socket,
                    who,
                    administrator,
                    member: None,
                    unsent: None,
                    held: false,
                    waits: false,
                    sent: 0,
                })
            }
            Err(_) => Err(socket),
        }
    }

    /// Sends a packet with files without waiting.
    ///
    /// # Errors
    /// The socket's; [`Error::Full`]: it has no room.
    pub fn send(&mut self, packet: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), Error> {
        send(self.socket.as_fd(), packet, files, SendFlags::DONTWAIT)?;
        if files.is_empty() {
            let bytes = 2 * packet.len() as u64 + OVERHEAD;
            self.sent = self.sent.saturating_add(bytes);
        } else {
            self.sent = 0;
        }
        Ok(())
    }

    /// Whether the client surely has not read answers with files: there is more to read than what
    /// came after the last one. Events may come whenever the client looks elsewhere.
    pub fn leaves_files(&self) -> bool {
        let mut figures = [0u32; FIGURES];
        let count = option(&self.socket, libc::SO_MEMINFO, &mut figures);
        let unread = match count {
            Ok(count) if count > UNREAD => figures[UNREAD],
            _ => u32::MAX,
        };
        u64::from(unread) > self.sent.saturating_add(SLACK)
    }
}

fn identify(socket: &OwnedFd, number: u64) -> io::Result<Credentials> {
    // See `receive`.
    set_socket_passcred(socket, true)?;
    let mut found = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    option(socket, libc::SO_PEERCRED, std::slice::from_mut(&mut found))?;
    let mut gids = groups(socket)?;
    gids.push(found.gid);
    Ok(Credentials {
        // 0: a process that vbusd's PID namespace does not have. It cannot be compared with another
        // one.
        process: match u64::try_from(found.pid) {
            Ok(process) if process != 0 => process,
            _ => UNKNOWN + number,
        },
        uid: found.uid,
        gids,
    })
}

fn groups(socket: &OwnedFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; GROUPS];
    match option(socket, libc::SO_PEERGROUPS, &mut groups) {
        Ok(count) => {
            groups.truncate(count);
            Ok(groups)
        }
        // There are more groups than fit: the primary group is known nevertheless.
        Err(error) if error.raw_os_error() == Some(libc::ERANGE) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Reads an option that has elements of a type for which all bytes are valid. Returns how many.
fn option<T: Copy>(socket: &OwnedFd, name: libc::c_int, to: &mut [T]) -> io::Result<usize> {
    let mut len = libc::socklen_t::try_from(size_of_val(to)).unwrap_or(0);
    // SAFETY: the kernel writes at most `len` bytes to `to`, and the length to `len`. The callers
    // pass numbers and structures of them.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            to.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(len as usize / size_of::<T>())
}
