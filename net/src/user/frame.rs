// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses frames as far as the network needs it, and makes frames with datagrams and the headers of
//! frames.

use crate::link::{DATA_VALID, HEADER, NEEDS_CSUM};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr,
    Icmpv4DstUnreachable, Icmpv4Packet, Icmpv4Repr, IpAddress, IpProtocol, Ipv4Packet, Ipv4Repr,
    TcpPacket, UdpPacket, UdpRepr,
};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Hardware address of the router, locally administered.
pub const ROUTER: EthernetAddress = EthernetAddress([0x02, 0x50, 0x56, 0x4d, 0x00, 0x01]);

/// Length of the Ethernet header.
pub const ETHERNET: usize = 14;
/// Where the checksum is in a TCP segment.
const TCP_SUM: u16 = 16;

/// What a frame of the guest contains.
#[derive(Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// A TCP segment.
    Segment {
        from: SocketAddrV4,
        to: SocketAddrV4,
        /// It starts a connection.
        syn: bool,
    },
    /// A datagram.
    Datagram {
        from: SocketAddrV4,
        to: SocketAddrV4,
        data: &'a [u8],
    },
    /// Asks who has the address `to`, or answers that. The sender has `from`.
    Arp { from: Ipv4Addr, to: Ipv4Addr },
    /// ICMP.
    Icmp { to: Ipv4Addr },
    /// For the stack, which refuses it.
    Other,
    /// For nothing here.
    Bad,
}

impl Kind<'_> {
    /// The sender's address, as far as it is known.
    pub fn sender(&self) -> Option<Ipv4Addr> {
        match self {
            Kind::Segment { from, .. } | Kind::Datagram { from, .. } => Some(*from.ip()),
            Kind::Arp { from, .. } => Some(*from),
            Kind::Icmp { .. } | Kind::Other | Kind::Bad => None,
        }
    }
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
        EthernetProtocol::Arp => {
            let arp = ArpPacket::new_checked(frame.payload()).ok()?;
            let ArpRepr::EthernetIpv4 {
                source_protocol_addr: from,
                target_protocol_addr: to,
                ..
            } = ArpRepr::parse(&arp).ok()?
            else {
                return None;
            };
            return Some(Kind::Arp { from, to });
        }
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
            Some(Kind::Segment {
                from: SocketAddrV4::new(source, tcp.src_port()),
                to: SocketAddrV4::new(target, tcp.dst_port()),
                syn: tcp.syn() && !tcp.ack() && !tcp.rst(),
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
        IpProtocol::Icmp => Some(Kind::Icmp { to: target }),
        _ => Some(Kind::Other),
    }
}

/// The hardware addresses of the sender and the receiver.
pub fn ends(frame: &[u8]) -> Option<(EthernetAddress, EthernetAddress)> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    Some((frame.src_addr(), frame.dst_addr()))
}

/// Completes a frame of this stack, and returns the header with which the guest gets it (virtio
/// 1.2, section 5.1.6). With `partial` the checksum of TCP is left to the guest, which needs it
/// only if it sends the packet on: then the field holds the sum of the pseudo header. Other
/// checksums are there: programs that read whole packets, as DHCP clients do, look at that of UDP.
pub fn header(frame: &mut [u8], partial: bool) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    if partial {
        header[0] = DATA_VALID;
        if let Some(start) = leave_open(frame) {
            header[0] = NEEDS_CSUM;
            header[6..8].copy_from_slice(&start.to_le_bytes());
            header[8..10].copy_from_slice(&TCP_SUM.to_le_bytes());
        }
    }
    header
}

/// Puts the sum of the pseudo header where the checksum of TCP will be. Returns where the segment
/// begins in the frame, `None` if there is none.
fn leave_open(frame: &mut [u8]) -> Option<u16> {
    const TCP: u8 = 6;
    let start = ETHERNET + usize::from(frame.get(ETHERNET)? & 15) * 4;
    if frame.get(12..ETHERNET)? != [8, 0] || *frame.get(ETHERNET + 9)? != TCP {
        return None;
    }
    let length = u32::try_from(frame.len().checked_sub(start)?).ok()?;
    let word = |bytes: &[u8]| u32::from(u16::from_be_bytes([bytes[0], bytes[1]]));
    let addresses = frame.get(ETHERNET + 12..ETHERNET + 20)?;
    let sum = addresses.chunks_exact(2).map(word).sum::<u32>() + u32::from(TCP) + length;
    // Six numbers of 16 bits: two rounds add all that is carried.
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    let at = start + usize::from(TCP_SUM);
    let field = frame.get_mut(at..at + 2)?;
    field.copy_from_slice(&u16::try_from(sum).ok()?.to_be_bytes());
    u16::try_from(start).ok()
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

/// An answer of this router by ICMP: the packet in this frame does not reach its destination.
pub fn unreachable(
    router: Ipv4Addr,
    reason: Icmpv4DstUnreachable,
    frame: &[u8],
) -> Option<Vec<u8>> {
    /// As much of the packet's content as every answer contains: the ports, and the number of TCP.
    const START: usize = 8;
    let ethernet = EthernetFrame::new_checked(frame).ok()?;
    let packet = Ipv4Packet::new_checked(ethernet.payload()).ok()?;
    let icmp = Icmpv4Repr::DstUnreachable {
        reason,
        header: Ipv4Repr {
            src_addr: packet.src_addr(),
            dst_addr: packet.dst_addr(),
            next_header: packet.next_header(),
            payload_len: packet.payload().len(),
            hop_limit: packet.hop_limit(),
        },
        data: packet.payload().get(..START)?,
    };
    let ip = Ipv4Repr {
        src_addr: router,
        dst_addr: packet.src_addr(),
        next_header: IpProtocol::Icmp,
        payload_len: icmp.buffer_len(),
        hop_limit: 64,
    };
    let outer = EthernetRepr {
        src_addr: ROUTER,
        dst_addr: ethernet.src_addr(),
        ethertype: EthernetProtocol::Ipv4,
    };
    let mut bytes = vec![0; outer.buffer_len() + ip.buffer_len() + ip.payload_len];
    let mut answer = EthernetFrame::new_unchecked(bytes.as_mut_slice());
    outer.emit(&mut answer);
    let checksums = ChecksumCapabilities::default();
    let mut packet = Ipv4Packet::new_unchecked(answer.payload_mut());
    ip.emit(&mut packet, &checksums);
    icmp.emit(
        &mut Icmpv4Packet::new_unchecked(packet.payload_mut()),
        &checksums,
    );
    Some(bytes)
}

/// An answer of this router by ICMP: no program receives a datagram that was sent.
pub fn refused(
    router: Ipv4Addr,
    hardware: EthernetAddress,
    from: SocketAddrV4,
    to: SocketAddrV4,
) -> Option<Vec<u8>> {
    // As much of the datagram as the answer contains.
    let mut sent = datagram(ROUTER, from, to, &[], u16::MAX)?;
    EthernetFrame::new_checked(sent.as_mut_slice())
        .ok()?
        .set_src_addr(hardware);
    unreachable(router, Icmpv4DstUnreachable::PortUnreachable, &sent)
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

    /// A frame with a TCP segment, with or without its checksum.
    fn segment(data: &[u8], sum: bool) -> Vec<u8> {
        use smoltcp::phy::Checksum;
        use smoltcp::wire::{TcpControl, TcpRepr, TcpSeqNumber};
        let address = Ipv4Addr::new(192, 168, 255, 254);
        let tcp = TcpRepr {
            src_port: 1,
            dst_port: 2,
            control: TcpControl::Psh,
            seq_number: TcpSeqNumber(7),
            ack_number: Some(TcpSeqNumber(8)),
            window_len: 9,
            window_scale: None,
            max_seg_size: None,
            sack_permitted: false,
            sack_ranges: [None; 3],
            timestamp: None,
            payload: data,
        };
        // A frame of the right size and addresses, whose content is replaced.
        let at = SocketAddrV4::new(address, 1);
        let room = vec![0; tcp.buffer_len() - 8];
        let mut bytes = datagram(ROUTER, at, at, &room, u16::MAX).unwrap();
        bytes[ETHERNET + 9] = 6;
        let mut checksums = ChecksumCapabilities::default();
        checksums.tcp = if sum { Checksum::Both } else { Checksum::None };
        tcp.emit(
            &mut TcpPacket::new_unchecked(&mut bytes[34..]),
            &IpAddress::Ipv4(address),
            &IpAddress::Ipv4(address),
            &checksums,
        );
        bytes
    }

    /// Completes a partial checksum as a guest does that forwards the packet: it adds the rest to
    /// the value in the field.
    #[test]
    fn a_partial_checksum_completes_to_the_whole_one() {
        for length in [0, 1, 2, 3, 1000, 60_000] {
            let data = vec![0xfe; length];
            let whole = segment(&data, true);
            let mut frame = segment(&data, false);
            let head = header(&mut frame, true);
            let word = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
            assert_eq!((head[0], word(6), word(8)), (NEEDS_CSUM, 34, 16));
            let mut sum = 0u64;
            for pair in frame[word(6)..].chunks(2) {
                sum += u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u64::from(low));
            }
            while sum > 0xffff {
                sum = (sum & 0xffff) + (sum >> 16);
            }
            let field = word(6) + word(8);
            let sum = !u16::try_from(sum).unwrap();
            frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
            assert_eq!(frame, whole, "{length}");
        }
        // Nothing to complete.
        for mut other in [vec![0; 60], vec![8; 14], segment(&[], true)[..40].to_vec()] {
            let before = other.clone();
            assert_eq!(header(&mut other, true)[0], DATA_VALID);
            assert_eq!(other, before);
        }
        assert_eq!(header(&mut segment(&[], true), false), [0; HEADER]);
    }

    #[test]
    fn what_does_not_fit_is_not_made() {
        let at = SocketAddrV4::new(Ipv4Addr::new(1, 2, 3, 4), 99);
        assert!(datagram(ROUTER, at, at, &[0; 1472], 1500).is_some());
        assert!(datagram(ROUTER, at, at, &[0; 1473], 1500).is_none());
    }
}
