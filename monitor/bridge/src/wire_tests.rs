// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A card on a pair of sockets that stands in for a tap and keeps frames apart, and on a stream
//! that stands in for passt.

use crate::card::cap;
use crate::test_guest::Guest;
use crate::{Bridge, Wire};
use paravane_devices::OwnDevice;
use paravane_net::link::HEADER;
use paravane_net::{Link, Received};
use paravane_vbus_shm::layout;
use paravane_vbus_shm::signal::Left;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

/// The guest, and the host's end of its tap.
fn guest(caps: u32) -> (Guest, OwnedFd) {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (ours, theirs) = socketpair(kind.0, kind.1, SocketFlags::NONBLOCK, None).unwrap();
    let link = Link::reads(ours, 1500).unwrap();
    (up(link, caps), theirs)
}

fn up(link: Link, caps: u32) -> Guest {
    let mut guest = Guest::new(Bridge::wire(Wire::new(link, MAC)).unwrap());
    guest.up(u64::from(caps));
    guest
}

/// The host sends a frame.
fn arrives(guest: &mut Guest, host: &OwnedFd, header: [u8; HEADER], frame: &[u8]) {
    rustix::io::write(host, &[&header, frame].concat()).unwrap();
    let left = guest.bridge.serve(true, 0);
    guest.work(left);
}

/// The bytes that one frame leaves in its buffer are no part of the next frame.
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
    long_segments_come(1, cap::RX_TSO4, layout::VBUS_ETHERNET_TSO4);
    long_segments_come(4, cap::RX_TSO6, layout::VBUS_ETHERNET_TSO6);
}

/// Of a kind that the host's kernel gives this number, for a guest with this capability.
fn long_segments_come(kind: u8, takes: u32, flag: u64) {
    let all = cap::CHAIN | cap::CSUM | takes;
    // A checksum at 34 + 16, TCP in segments of 1448 bytes.
    let header = [1, kind, 66, 0, 0xa8, 5, 34, 0, 16, 0, 0, 0];
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
    let said = flag | layout::VBUS_ETHERNET_CSUM | layout::VBUS_ETHERNET_MORE;
    assert_eq!(flags & 0xf, said);

    // A guest that has not agreed to it gets none, and all others.
    let (mut without, host) = guest((all | cap::RX_TSO4 | cap::RX_TSO6) & !takes);
    without.post(4, 4096);
    arrives(&mut without, &host, header, &frame);
    assert_eq!(without.received(), []);
    arrives(&mut without, &host, [0; HEADER], &frame[..60]);
    assert_eq!(without.received(), [(frame[..60].to_vec(), 0)]);
}

/// A stream has no headers, and takes frames in parts. The part that it does not take at once
/// follows later.
#[test]
fn a_stream_has_whole_frames_and_loses_none() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let link = Link::stream(ours.into(), 1500).unwrap();
    let mut guest = up(link, cap::CHAIN | cap::CSUM);
    let mut other = Link::stream(theirs.into(), 1500).unwrap();
    let frame = |number: usize| vec![u8::try_from(number % 251).unwrap(); 1514];
    // More than the socket and the link hold: the guest's frames wait then.
    let (all, mut sent, mut taken, mut seen, mut waited) = (2000, 0, 0, 0, 0);
    while seen < all {
        while sent < all && sent - taken < 16 {
            guest.send(&[(&frame(sent)[..], layout::VBUS_ETHERNET_CSUM)]);
            sent += 1;
        }
        guest.work(1);
        let before = taken;
        while guest.tx.as_mut().unwrap().north.take().unwrap().is_some() {
            taken += 1;
        }
        if taken > before {
            continue;
        }
        waited += usize::from(sent > taken);
        while let Received::Frame(found) = other.receive().unwrap() {
            assert_eq!(found, frame(seen), "{seen}");
            seen += 1;
        }
        let left = guest.bridge.serve(true, 0);
        guest.work(left);
    }
    assert!(waited > 0, "the link was never full, so nothing is shown");
    // Nothing can have damaged what comes.
    guest.post(4, 4096);
    other.send(&frame(7)).unwrap();
    other.flush().unwrap();
    let left = guest.bridge.serve(true, 0);
    guest.work(left);
    let valid = u32::try_from(layout::VBUS_ETHERNET_VALID).unwrap();
    assert_eq!(guest.received(), [(frame(7), valid)]);
}

/// A guest that polls is not interrupted. A guest that has not handled all frames since its last
/// interrupt is not interrupted again.
#[test]
fn a_stream_to_a_guest_that_is_never_done_interrupts_it_once() {
    const FRAMES: u32 = 2000;
    let (mut guest, host) = guest(cap::CHAIN);
    guest.post(8, 2048);
    let here = guest.rx.as_ref().unwrap().here;
    guest.interrupts();
    arrives(&mut guest, &host, [0; HEADER], &[7; 60]);
    for (asks, expected) in [(false, 0), (true, 1)] {
        // One frame stays there all the time.
        assert!(!asks || here.rest() == Left::More);
        for _ in 0..FRAMES {
            arrives(&mut guest, &host, [0; HEADER], &[7; 60]);
            let rx = guest.rx.as_mut().unwrap();
            assert!(rx.north.take().unwrap().is_some());
            rx.post(1, 2048);
            assert!(rx.north.ready(), "its ring is empty");
        }
        assert_eq!(guest.interrupts().0, expected, "asks: {asks}");
    }
    // Once it is done, the next frame is news.
    assert_eq!(guest.received().len(), 1);
    here.look();
    assert_eq!(here.rest(), Left::Nothing);
    arrives(&mut guest, &host, [0; HEADER], &[7; 60]);
    assert_eq!(guest.interrupts().0, 1);
}

/// A vCPU moves one frame or a few, and leaves a stream to the bridge's thread.
#[test]
fn a_vcpu_does_a_little_at_once() {
    let (mut guest, host) = guest(cap::CHAIN);
    assert!(guest.bridge.rare().is_some());
    let came = || {
        let read = || rustix::io::read(&host, &mut [0; 4096][..]);
        std::iter::from_fn(|| read().ok()).count()
    };
    guest.send(&[(&[7; 60][..], 0)]);
    let kicked = guest.bridge.kicked(1);
    assert_eq!((came(), kicked.stream), (1, false));
    guest.work(kicked.left);
    for _ in 0..10 {
        guest.send(&[(&[7; 60][..], 0)]);
    }
    let kicked = guest.bridge.kicked(1);
    assert_eq!((came(), kicked.stream), (4, true));
    assert!(kicked.left != 0, "six wait");
    guest.work(kicked.left);
    assert_eq!(came(), 6);
    // A long segment is many frames.
    while guest.tx.as_mut().unwrap().north.take().unwrap().is_some() {}
    guest.send(&[(&[7; 60][..], 0)]);
    assert!(!guest.bridge.kicked(1).stream);
    guest.send(&[
        (&[7; 4096][..], layout::VBUS_ETHERNET_MORE),
        (&[7; 4000], 0),
    ]);
    assert!(guest.bridge.kicked(1).stream);
    assert_eq!(came(), 2);
}

#[test]
fn its_thread_does_all_the_work_if_no_vcpu_may() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let link = Link::stream(ours.into(), 1500).unwrap();
    let bridge = Bridge::wire(Wire::new(link, MAC)).unwrap();
    let bridge = bridge.without_kicker_work();
    assert!(bridge.rare().is_none() && bridge.attributes().len() == 1);
}

/// A card with a polling time of 0 sleeps at once. A card without this setting polls for an answer.
#[test]
fn a_card_looks_as_long_as_it_is_told() {
    for (poll, looks) in [(None, true), (Some(0), false), (Some(10_000), true)] {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let link = Link::stream(ours.into(), 1500).unwrap();
        let bridge = Bridge::wire(Wire::new(link, MAC)).unwrap();
        let attributes = bridge.attributes();
        let shown: Vec<_> = attributes.iter().map(|a| (a.name(), a.get())).collect();
        assert_eq!(shown, [("poll-us", 60), ("kick-us", 20)]);
        let mut guest = Guest::new(bridge);
        guest.up(cap::CHAIN.into());
        // While it works.
        if let Some(poll) = poll {
            attributes[0].set(poll);
        }
        guest.send(&[(&[7; 60][..], 0)]);
        assert_eq!(guest.bridge.serve(false, 1) != 0, looks, "{poll:?}");
    }
}
