// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is unfinished in a frame: as flags of a descriptor, and as the header of virtio-net, which
//! the host's kernel and the user-mode network use.

use crate::card::{cap, word};
use paravane_net::link::HEADER;
use paravane_vbus::ethernet::Ip;
use paravane_vbus::ethernet::complete;
use paravane_vbus::ethernet::flag::{CSUM, TSO4, TSO6, long_over};
use paravane_vbus_shm::layout;

const VALID: u32 = word(layout::VBUS_ETHERNET_VALID);
const OFFSET_SHIFT: u32 = word(layout::VBUS_ETHERNET_OFFSET_SHIFT);
const START_SHIFT: u32 = word(layout::VBUS_ETHERNET_START_SHIFT);
const SIZE_SHIFT: u32 = word(layout::VBUS_ETHERNET_SIZE_SHIFT);
/// The largest start and offset that flags can say.
const START_MOST: u16 = 0xff;
const OFFSET_MOST: u16 = 30;

/// `virtio_net_hdr.flags`.
const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
/// `virtio_net_hdr.gso_type`.
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;

/// The header of a frame that cannot have been damaged: its checksum need not be verified.
pub const VERIFIED: [u8; HEADER] = {
    let mut bytes = [0; HEADER];
    bytes[0] = DATA_VALID;
    bytes
};

/// `virtio_net_hdr_v1`, without its count of buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    flags: u8,
    gso_type: u8,
    gso_size: u16,
    start: u16,
    offset: u16,
}

impl Header {
    /// For flags of a guest, of which only those count that were agreed on.
    #[must_use]
    pub fn of_flags(flags: u32, caps: u32) -> Self {
        let mut header = Header::default();
        if flags & CSUM != 0 && caps & cap::CSUM != 0 {
            header.flags = NEEDS_CSUM;
            header.start = u16::try_from(flags >> START_SHIFT & 0xff).unwrap_or(0);
            header.offset = u16::try_from((flags >> OFFSET_SHIFT & 0xf) * 2).unwrap_or(0);
        }
        header.gso_type = match long_over(flags) {
            Some(Ip::V4) if caps & cap::TSO4 != 0 => GSO_TCPV4,
            Some(Ip::V6) if caps & cap::TSO6 != 0 => GSO_TCPV6,
            _ => GSO_NONE,
        };
        if header.gso_type != GSO_NONE {
            header.gso_size = u16::try_from(flags >> SIZE_SHIFT).unwrap_or(0);
        }
        header
    }

    fn read(bytes: &[u8; HEADER]) -> Self {
        let half = |at: usize| {
            let [low, high] = [at, at + 1].map(|at| bytes.get(at).copied().unwrap_or(0));
            u16::from_le_bytes([low, high])
        };
        Header {
            flags: bytes[0],
            gso_type: bytes[1],
            gso_size: half(4),
            start: half(6),
            offset: half(8),
        }
    }

    /// As the host's kernel reads it.
    #[must_use]
    pub fn bytes(self) -> [u8; HEADER] {
        let [s0, s1] = self.gso_size.to_le_bytes();
        let [a0, a1] = self.start.to_le_bytes();
        let [o0, o1] = self.offset.to_le_bytes();
        [
            self.flags,
            self.gso_type,
            0,
            0,
            s0,
            s1,
            a0,
            a1,
            o0,
            o1,
            0,
            0,
        ]
    }

    /// As flags for the guest.
    fn flags(self) -> u32 {
        if self.flags & NEEDS_CSUM != 0 {
            let (start, offset) = (u32::from(self.start), u32::from(self.offset));
            let checksum = CSUM | start << START_SHIFT | (offset / 2) << OFFSET_SHIFT;
            let long = match self.gso_type {
                GSO_TCPV4 => TSO4,
                GSO_TCPV6 => TSO6,
                _ => return checksum,
            };
            return checksum | long | u32::from(self.gso_size) << SIZE_SHIFT;
        }
        if self.flags & DATA_VALID != 0 {
            VALID
        } else {
            0
        }
    }
}

/// The flags for a header that names no other place than flags can.
#[must_use]
pub fn flags(header: &[u8; HEADER]) -> u32 {
    Header::read(header).flags()
}

/// A frame of the host's kernel and its flags for a guest with these capabilities. A checksum whose
/// place flags cannot express is computed here, in `space`, and so is one for a guest that
/// completes none: the kernel may have queued the frame before it got the flags. `None`: it is no
/// frame for the guest.
#[must_use]
pub fn to_guest<'a>(
    header: &[u8; HEADER],
    frame: &'a [u8],
    space: &'a mut Vec<u8>,
    caps: u32,
) -> Option<(&'a [u8], u32)> {
    let header = Header::read(header);
    let agreed = caps & cap::CSUM != 0;
    let can_say = agreed
        && header.start <= START_MOST
        && header.offset <= OFFSET_MOST
        && header.offset.is_multiple_of(2);
    // Others were not asked for, and none of these has headers so long.
    let takes = match header.gso_type {
        GSO_TCPV4 => cap::RX_TSO4,
        GSO_TCPV6 => cap::RX_TSO6,
        _ => 0,
    };
    let long = caps & takes != 0 && header.flags & NEEDS_CSUM != 0 && can_say;
    if header.gso_type != GSO_NONE && !long {
        return None;
    }
    let of_agreed = |flags| if agreed { flags } else { 0 };
    if header.flags & NEEDS_CSUM == 0 || can_say {
        return Some((frame, of_agreed(header.flags())));
    }
    let start = usize::from(header.start);
    let at = start + usize::from(header.offset);
    if at + 2 > frame.len() {
        return None;
    }
    space.extend_from_slice(frame);
    complete(space, start, at);
    Some((space, of_agreed(VALID)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_headers_say_the_same() {
        let all = cap::CSUM | cap::TSO4 | cap::TSO6;
        let flags = CSUM | 34 << START_SHIFT | 8 << OFFSET_SHIFT;
        let header = Header::of_flags(flags, all);
        assert_eq!(
            header.bytes(),
            [NEEDS_CSUM, 0, 0, 0, 0, 0, 34, 0, 16, 0, 0, 0]
        );
        assert_eq!(super::flags(&header.bytes()), flags);
        let long = Header::of_flags(flags | TSO4 | 1448 << SIZE_SHIFT, all);
        assert_eq!(long.bytes()[..6], [NEEDS_CSUM, GSO_TCPV4, 0, 0, 0xa8, 5]);
        let said = flags | TSO6 | 1448 << SIZE_SHIFT;
        let six = Header::of_flags(said, all);
        assert_eq!(six.bytes()[..6], [NEEDS_CSUM, GSO_TCPV6, 0, 0, 0xa8, 5]);
        assert_eq!(super::flags(&six.bytes()), said);
        // Flags that were not agreed on have no effect.
        assert_eq!(Header::of_flags(u32::MAX, 0), Header::default());
        assert_eq!(Header::of_flags(said, all & !cap::TSO6), header);
        assert_eq!(
            super::flags(&[DATA_VALID, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            VALID
        );
    }

    #[test]
    fn a_checksum_that_flags_cannot_place_is_made_here() {
        // A datagram after headers of 300 bytes; its checksum has 1, for the pseudo header.
        let mut frame = vec![0; 300];
        frame.extend([0, 7, 0, 9, 0, 12, 0, 1, b'a', b'b', b'c', b'd']);
        let header = Header {
            flags: NEEDS_CSUM,
            start: 300,
            offset: 6,
            ..Header::default()
        };
        let mut space = Vec::new();
        let (done, flags) = to_guest(&header.bytes(), &frame, &mut space, cap::CSUM).unwrap();
        assert_eq!(flags, VALID);
        let sum = 7 + 9 + 12 + 1 + 0x6162 + 0x6364;
        assert_eq!(done[306..308], (!u16::try_from(sum).unwrap()).to_be_bytes());
        assert_eq!((&done[..306], &done[308..]), (&frame[..306], &frame[308..]));
        // A place outside of the frame.
        let mut space = Vec::new();
        let outside = Header {
            start: 400,
            ..header
        };
        assert_eq!(
            to_guest(&outside.bytes(), &frame, &mut space, cap::CSUM),
            None
        );
    }

    #[test]
    fn a_checksum_that_was_not_agreed_on_is_made_here() {
        let (mut frame, mut space) = (vec![0x11; 60], Vec::new());
        frame[50..52].copy_from_slice(&[0, 0]);
        let header = Header {
            flags: NEEDS_CSUM,
            start: 34,
            offset: 16,
            ..Header::default()
        };
        let said = CSUM | 34 << START_SHIFT | 8 << OFFSET_SHIFT;
        let told = to_guest(&header.bytes(), &frame, &mut space, cap::CSUM);
        assert_eq!(told, Some((&frame[..], said)));
        assert_eq!(
            to_guest(&VERIFIED, &frame, &mut Vec::new(), 0),
            Some((&frame[..], 0))
        );
        for caps in [0, cap::CHAIN, cap::CHAIN | cap::RX_TSO4] {
            let mut space = Vec::new();
            let (done, flags) = to_guest(&header.bytes(), &frame, &mut space, caps).unwrap();
            assert_eq!(flags, 0);
            // 12 words of 0x1111, whose carry is none.
            let sum: u16 = 12_u16.wrapping_mul(0x1111);
            assert_eq!(done[50..52], (!sum).to_be_bytes());
        }
    }

    #[test]
    fn long_segments_are_for_guests_that_want_them() {
        let frame = [0; 60];
        let long = Header {
            flags: NEEDS_CSUM,
            gso_type: GSO_TCPV4,
            gso_size: 1448,
            start: 34,
            offset: 16,
        };
        let flags = |header: Header, caps| {
            let mut space = Vec::new();
            to_guest(&header.bytes(), &frame, &mut space, caps).map(|(_, flags)| flags)
        };
        let all = cap::CHAIN | cap::CSUM | cap::RX_TSO4;
        let expected = CSUM | TSO4 | 34 << START_SHIFT | 8 << OFFSET_SHIFT | 1448 << SIZE_SHIFT;
        assert_eq!(flags(long, all), Some(expected));
        assert_eq!(flags(long, all & !cap::RX_TSO4), None);
        // Without a checksum to complete, or with one at no place that flags can say.
        assert_eq!(flags(Header { flags: 0, ..long }, all), None);
        assert_eq!(flags(Header { start: 300, ..long }, all), None);
        let six = Header {
            gso_type: GSO_TCPV6,
            ..long
        };
        assert_eq!(flags(six, all), None);
        assert_eq!(flags(six, all | cap::RX_TSO6), Some(expected | TSO6));
        // Datagrams.
        let other = Header {
            gso_type: 3,
            ..long
        };
        assert_eq!(flags(other, cap::ALL), None);
    }
}
