// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A card on what looks like a tap: a pair of sockets that keep frames apart.

use crate::card::cap;
use crate::test_guest::Guest;
use crate::{Bridge, Tap};
use paravane_devices::OwnDevice;
use paravane_net::Link;
use paravane_net::link::HEADER;
use paravane_vbus_shm::layout;
use std::os::fd::OwnedFd;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

/// The guest, and the host's end of its tap.
fn guest(caps: u32) -> (Guest, OwnedFd) {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (ours, theirs) = socketpair(kind.0, kind.1, SocketFlags::NONBLOCK, None).unwrap();
    let link = Link::reads(ours, 1500).unwrap();
    let mut guest = Guest::new(Bridge::tap(Tap::new(link, MAC)).unwrap());
    guest.up(u64::from(caps));
    (guest, theirs)
}

/// The host sends a frame.
fn arrives(guest: &mut Guest, host: &OwnedFd, header: [u8; HEADER], frame: &[u8]) {
    rustix::io::write(host, &[&header, frame].concat()).unwrap();
    let left = guest.bridge.serve(true, 0);
    guest.work(left);
}

/// What one frame leaves in the space for it is no part of the next.
#[test]
fn frames_of_any_length_reach_the_tap_whole() {
    let (mut guest, host) = guest(cap::CHAIN);
    let more = layout::VBUS_ETHERNET_MORE;
    let bytes: Vec<u8> = (0..12_000_u32).map(|i| i.to_le_bytes()[0] ^ 0x5a).collect();
    for parts in [
        &[4000, 4000, 4000][..],
        &[14, 46],
        &[60],
        &[14, 4000, 1],
        &[14, 1],
        &[4000, 4000, 2000],
    ] {
        let mut left = &bytes[..];
        for (number, &length) in parts.iter().enumerate() {
            let (part, rest) = left.split_at(length);
            let last = number + 1 == parts.len();
            guest.send(&[(part, if last { 0 } else { more })]);
            // Between the parts, too.
            guest.work(1);
            left = rest;
        }
        let mut frame = vec![0; 20_000];
        let length = rustix::io::read(&host, &mut frame[..]).unwrap();
        let all: usize = parts.iter().sum();
        assert_eq!(length, HEADER + all, "{parts:?}");
        assert_eq!(frame[..HEADER], [0; HEADER]);
        assert!(frame[HEADER..length] == bytes[..all], "{parts:?}");
        while guest.tx.as_mut().unwrap().north.take().unwrap().is_some() {}
    }
    assert!(rustix::io::read(&host, &mut [0; 8][..]).is_err(), "no more");
}

#[test]
fn long_segments_come_in_parts_with_the_size_of_those_on_the_wire() {
    let all = cap::CHAIN | cap::CSUM | cap::RX_TSO4;
    // A checksum at 34 + 16, TCP over IPv4 in segments of 1448 bytes.
    let header = [1, 1, 66, 0, 0xa8, 5, 34, 0, 16, 0, 0, 0];
    let frame: Vec<u8> = (0..10_000_u32).map(|i| i.to_le_bytes()[0]).collect();
    let (mut with, host) = guest(all);
    with.post(4, 4096);
    arrives(&mut with, &host, header, &frame);
    let parts = with.received();
    let lengths: Vec<_> = parts.iter().map(|(bytes, _)| bytes.len()).collect();
    assert_eq!(lengths, [4096, 4096, 1808]);
    let whole: Vec<u8> = parts.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
    assert!(whole == frame);
    let flags = u64::from(parts[0].1);
    assert_eq!(flags >> layout::VBUS_ETHERNET_SIZE_SHIFT, 1448);
    let said = layout::VBUS_ETHERNET_TSO4 | layout::VBUS_ETHERNET_CSUM | layout::VBUS_ETHERNET_MORE;
    assert_eq!(flags & 0xf, said);

    // A guest that has not agreed to it gets none, and all others.
    let (mut without, host) = guest(all & !cap::RX_TSO4);
    without.post(4, 4096);
    arrives(&mut without, &host, header, &frame);
    assert_eq!(without.received(), []);
    arrives(&mut without, &host, [0; HEADER], &frame[..60]);
    assert_eq!(without.received(), [(frame[..60].to_vec(), 0)]);
}
