// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses frames as far as the network needs it, and makes frames with datagrams.

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, IpAddress, IpProtocol,
    Ipv4Packet, Ipv4Repr, TcpPacket, UdpPacket, UdpRepr,
};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Hardware address of the router, locally administered.
pub const ROUTER: EthernetAddress = EthernetAddress([0x02, 0x50, 0x56, 0x4d, 0x00, 0x01]);

/// What a frame of the guest contains.
#[derive(Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// The start of a TCP connection.
    Syn {
        from: SocketAddrV4,
        to: SocketAddrV4,
    },
    /// A datagram.
    Datagram {
        from: SocketAddrV4,
        to: SocketAddrV4,
        data: &'a [u8],
    },
    /// For the stack: other TCP segments, ARP, ICMP.
    Other,
    /// For nothing here.
    Bad,
}

/// Parses a frame. Checksums are not verified: the frame comes through memory, and a guest may
/// leave them to the device.
pub fn kind(frame: &[u8]) -> Kind<'_> {
    read(frame).unwrap_or(Kind::Bad)
}

fn read(frame: &[u8]) -> Option<Kind<'_>> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    match frame.ethertype() {
        EthernetProtocol::Ipv4 => {}
        EthernetProtocol::Arp => return Some(Kind::Other),
        _ => return None,
    }
    let packet = Ipv4Packet::new_checked(frame.payload()).ok()?;
    if packet.version() != 4 {
        return None;
    }
    let (source, target) = (packet.src_addr(), packet.dst_addr());
    let part = packet.more_frags() || packet.frag_offset() != 0;
    match packet.next_header() {
        // No fragments: with the MTU of this network a guest has no reason to make them.
        _ if part => None,
        IpProtocol::Tcp => {
            let tcp = TcpPacket::new_checked(packet.payload()).ok()?;
            if !tcp.syn() || tcp.ack() || tcp.rst() {
                return Some(Kind::Other);
            }
            Some(Kind::Syn {
                from: SocketAddrV4::new(source, tcp.src_port()),
                to: SocketAddrV4::new(target, tcp.dst_port()),
            })
        }
        IpProtocol::Udp => {
            let udp = UdpPacket::new_checked(packet.payload()).ok()?;
            Some(Kind::Datagram {
                from: SocketAddrV4::new(source, udp.src_port()),
                to: SocketAddrV4::new(target, udp.dst_port()),
                data: udp.payload(),
            })
        }
        _ => Some(Kind::Other),
    }
}

/// The hardware address of the sender.
pub fn source(frame: &[u8]) -> Option<EthernetAddress> {
    Some(EthernetFrame::new_checked(frame).ok()?.src_addr())
}

/// A frame with one datagram. `None` if it does not fit into an IPv4 packet of `mtu` bytes.
pub fn datagram(
    to_hardware: EthernetAddress,
    from: SocketAddrV4,
    to: SocketAddrV4,
    data: &[u8],
    mtu: u16,
) -> Option<Vec<u8>> {
    let udp = UdpRepr {
        src_port: from.port(),
        dst_port: to.port(),
    };
    let ip = Ipv4Repr {
        src_addr: *from.ip(),
        dst_addr: *to.ip(),
        next_header: IpProtocol::Udp,
        payload_len: udp.header_len() + data.len(),
        hop_limit: 64,
    };
    if ip.buffer_len() + ip.payload_len > usize::from(mtu) {
        return None;
    }
    let ethernet = EthernetRepr {
        src_addr: ROUTER,
        dst_addr: to_hardware,
        ethertype: EthernetProtocol::Ipv4,
    };
    let mut bytes = vec![0; ethernet.buffer_len() + ip.buffer_len() + ip.payload_len];
    let mut frame = EthernetFrame::new_unchecked(bytes.as_mut_slice());
    ethernet.emit(&mut frame);
    let checksums = ChecksumCapabilities::default();
    let mut packet = Ipv4Packet::new_unchecked(frame.payload_mut());
    ip.emit(&mut packet, &checksums);
    let (source, target) = (IpAddress::Ipv4(*from.ip()), IpAddress::Ipv4(*to.ip()));
    udp.emit(
        &mut UdpPacket::new_unchecked(packet.payload_mut()),
        &source,
        &target,
        data.len(),
        |space| space.copy_from_slice(data),
        &checksums,
    );
    Some(bytes)
}

/// Whether the address may belong to a host.
pub fn unicast(address: Ipv4Addr) -> bool {
    !(address.is_multicast() || address.is_broadcast() || address.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_frame_panics(frame in prop::collection::vec(any::<u8>(), 0..200)) {
            kind(&frame);
        }

        /// Nearly correct frames reach more of the parser than random ones.
        #[test]
        fn no_damaged_frame_panics(at in 0usize..60, value: u8, length in 0usize..70) {
            let from = SocketAddrV4::new(Ipv4Addr::new(10, 0, 2, 15), 1000);
            let mut frame = datagram(ROUTER, from, from, &[7; 20], 1500).unwrap();
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
            frame.truncate(length);
            kind(&frame);
        }

        #[test]
        fn a_datagram_is_read_as_it_was_made(
            port: u16,
            data in prop::collection::vec(any::<u8>(), 0..1400),
        ) {
            let from = SocketAddrV4::new(Ipv4Addr::new(1, 2, 3, 4), 99);
            let to = SocketAddrV4::new(Ipv4Addr::new(10, 0, 2, 15), port);
            let frame = datagram(ROUTER, from, to, &data, 1500).unwrap();
            prop_assert_eq!(kind(&frame), Kind::Datagram { from, to, data: &data });
        }
    }

    #[test]
    fn what_does_not_fit_is_not_made() {
        let at = SocketAddrV4::new(Ipv4Addr::new(1, 2, 3, 4), 99);
        assert!(datagram(ROUTER, at, at, &[0; 1472], 1500).is_some());
        assert!(datagram(ROUTER, at, at, &[0; 1473], 1500).is_none());
    }
}
