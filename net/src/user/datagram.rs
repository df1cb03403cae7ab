// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Datagrams of the guest and for the guest, and how one socket of the host is read.

use rustix::io::Errno;
use smoltcp::wire::{EthernetAddress, Icmpv4DstUnreachable};
use std::io;
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};

/// Datagrams from one socket before others get their turn.
const BURST: usize = 32;

/// A datagram of the guest.
#[derive(Clone, Copy, Debug)]
pub struct Sent<'a> {
    /// The card that has sent it: the guest's, or that of a guest of the guest.
    pub hardware: EthernetAddress,
    pub from: SocketAddrV4,
    pub to: SocketAddrV4,
    pub data: &'a [u8],
}

/// What comes for the guest.
#[derive(Clone, Copy, Debug)]
pub enum Incoming<'a> {
    Datagram {
        /// The card that has asked; none for a datagram by a published port.
        hardware: Option<EthernetAddress>,
        from: SocketAddrV4,
        to: SocketAddrV4,
        data: &'a [u8],
    },
    /// No program receives what this end of the guest has sent.
    Refused {
        hardware: EthernetAddress,
        from: SocketAddrV4,
        to: SocketAddrV4,
    },
}

/// How a look at a socket ended.
#[derive(Debug)]
pub struct Looked {
    /// The socket may have more.
    pub more: bool,
    /// The guest has room for more.
    pub room: bool,
    /// No program received an earlier datagram.
    pub refused: bool,
}

/// The ICMP error that reports the host's error to the guest, if there is one.
pub fn reason(error: &io::Error) -> Option<Icmpv4DstUnreachable> {
    match Errno::from_io_error(error)? {
        Errno::CONNREFUSED => Some(Icmpv4DstUnreachable::PortUnreachable),
        Errno::HOSTUNREACH => Some(Icmpv4DstUnreachable::HostUnreachable),
        // The host may have none of the name server's kind.
        Errno::NETUNREACH | Errno::AFNOSUPPORT => Some(Icmpv4DstUnreachable::NetUnreachable),
        _ => None,
    }
}

/// Takes datagrams from one socket. `ends` maps the sender's address to the addresses that the
/// guest sees, the peer's and its own; datagrams without such addresses are dropped.
pub fn receive(
    socket: &UdpSocket,
    buffer: &mut [u8],
    mut ends: impl FnMut(SocketAddr) -> Option<(SocketAddrV4, SocketAddrV4)>,
    to_guest: &mut impl FnMut(SocketAddrV4, SocketAddrV4, &[u8]) -> bool,
) -> Looked {
    let mut looked = Looked {
        more: true,
        room: true,
        refused: false,
    };
    for _ in 0..BURST {
        let (length, peer) = match socket.recv_from(buffer) {
            Ok(got) => got,
            // The error belongs to an earlier datagram (port unreachable). The next receive may
            // return data.
            Err(e) if reason(&e).is_some() => {
                looked.refused = true;
                continue;
            }
            Err(_) => {
                looked.more = false;
                break;
            }
        };
        let data = buffer.get(..length).unwrap_or_default();
        if ends(peer).is_some_and(|(from, to)| !to_guest(from, to, data)) {
            looked.room = false;
            break;
        }
    }
    looked
}
