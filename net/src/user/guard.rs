// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps from smoltcp the segments that it is not prepared for.
//!
//! smoltcp 0.13 panics, or loses data, where a guest
//!
//! * answers a SYN that was not sent, or opens a connection that is being opened to it;
//! * sends more than the window of a SYN, which has no scale: smoltcp computes with one;
//! * ends its data with a FIN beyond the window: smoltcp cuts the data off and takes the FIN.

use super::frame::ETHERNET;
use smoltcp::socket::tcp::State;
use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet, TcpOption, TcpPacket,
};
use std::borrow::Cow;

/// The scale of windows that smoltcp announces for its buffer of this size.
const fn scale(buffer: usize) -> u32 {
    (usize::BITS - buffer.leading_zeros()).saturating_sub(16)
}

/// Where the flags are in a segment, and the FIN.
const FLAGS: usize = 13;
const FIN: u8 = 1;

/// What a segment says, of either direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub seq: u32,
    pub ack: Option<u32>,
    pub window: u16,
    /// The number after its data.
    end: u32,
    data: usize,
    pub syn: bool,
    pub fin: bool,
    pub rst: bool,
    /// It has the option without which no window of the connection has a scale.
    scaled: bool,
    /// Where the segment is in its frame.
    start: usize,
}

/// The header of the segment in a frame, if there is one.
pub fn header(frame: &[u8]) -> Option<Header> {
    let ethernet = EthernetFrame::new_checked(frame).ok()?;
    if ethernet.ethertype() != EthernetProtocol::Ipv4 {
        return None;
    }
    let packet = Ipv4Packet::new_checked(ethernet.payload()).ok()?;
    if packet.next_header() != IpProtocol::Tcp {
        return None;
    }
    let tcp = TcpPacket::new_checked(packet.payload()).ok()?;
    let number = |number: i32| u32::from_ne_bytes(number.to_ne_bytes());
    let (seq, data) = (number(tcp.seq_number().0), tcp.payload().len());
    Some(Header {
        seq,
        ack: tcp.ack().then(|| number(tcp.ack_number().0)),
        window: tcp.window_len(),
        end: seq.wrapping_add(u32::try_from(data).ok()?),
        data,
        syn: tcp.syn(),
        fin: tcp.fin(),
        rst: tcp.rst(),
        scaled: tcp.syn() && scaled(tcp.options()),
        start: frame.len() - ethernet.payload().len() + usize::from(packet.header_len()),
    })
}

fn scaled(mut options: &[u8]) -> bool {
    while !options.is_empty() {
        match TcpOption::parse(options) {
            Ok((_, TcpOption::WindowScale(_))) => return true,
            Ok((rest, option)) if option != TcpOption::EndOfList => options = rest,
            _ => return false,
        }
    }
    false
}

/// Where the length of its packet is in a frame, and the number in a segment.
const LENGTH: usize = ETHERNET + 2;
const SEQ: usize = 4;

/// The frame without the data and the end that it contains: it only acknowledges.
pub fn bare(header: &Header, frame: &[u8]) -> Option<Vec<u8>> {
    let words = usize::from(frame.get(header.start + FLAGS - 1)? >> 4);
    let mut bare = frame.get(..header.start + words * 4)?.to_vec();
    let length = u16::try_from(bare.len() - ETHERNET).ok()?;
    let seq = header.end.wrapping_add(u32::from(header.fin));
    let mut put = |at: usize, bytes: &[u8]| {
        let place = bare.get_mut(at..at + bytes.len())?;
        place.copy_from_slice(bytes);
        Some(())
    };
    put(LENGTH, &length.to_be_bytes())?;
    put(header.start + SEQ, &seq.to_be_bytes())?;
    *bare.get_mut(header.start + FLAGS)? &= !FIN;
    Some(bare)
}

/// Which data of the guest a connection takes.
#[derive(Debug, Default)]
pub struct Window {
    /// A SYN was sent.
    asked: bool,
    /// The end of the window that was last announced to the guest.
    edge: Option<u32>,
    /// That was a SYN's.
    first: bool,
    /// The scale of all other windows.
    shift: u32,
}

impl Window {
    /// A segment was sent to the guest.
    pub fn sent(&mut self, header: &Header) {
        // smoltcp does not reckon with what it says in a probe, which has one byte. So the edge may
        // be too low here, but not where data beyond it is refused.
        let probe = header.data == 1 && self.edge.is_some();
        if header.rst || (probe && !self.first) {
            return;
        }
        self.asked |= header.syn;
        if let Some(ack) = header.ack {
            let shift = if header.syn { 0 } else { self.shift };
            self.edge = Some(ack.wrapping_add(u32::from(header.window) << shift));
            self.first = header.syn || probe;
        }
    }

    /// What smoltcp may see of a frame of the guest. `None`: nothing. `buffer` is the size of its
    /// buffer for data of the guest.
    pub fn admit<'a>(
        &mut self,
        state: State,
        buffer: usize,
        header: &Header,
        frame: &'a [u8],
    ) -> Option<Cow<'a, [u8]>> {
        match state {
            State::Closed => {}
            State::Listen => self.learn(buffer, header),
            State::SynSent => {
                if !self.asked || (header.syn && header.ack.is_none()) {
                    return None;
                }
                if header.syn {
                    self.learn(buffer, header);
                    // The window of the SYN. This is one byte less, as in smoltcp.
                    let window = u16::try_from(buffer).unwrap_or(u16::MAX);
                    self.edge = Some(header.seq.wrapping_add(u32::from(window)));
                    self.first = true;
                }
            }
            _ => {
                let Some(edge) = self.edge else {
                    return header.rst.then_some(Cow::Borrowed(frame));
                };
                let beyond = header.end.wrapping_sub(edge).wrapping_sub(1) < 1 << 31;
                if beyond && self.first {
                    return None;
                }
                if beyond && header.fin && header.data > 0 {
                    // The guest repeats it.
                    let mut frame = frame.to_vec();
                    *frame.get_mut(header.start + FLAGS)? &= !FIN;
                    return Some(Cow::Owned(frame));
                }
            }
        }
        Some(Cow::Borrowed(frame))
    }

    fn learn(&mut self, buffer: usize, header: &Header) {
        if header.syn {
            self.shift = if header.scaled { scale(buffer) } else { 0 };
        }
    }
}
