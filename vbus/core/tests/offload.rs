// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames of a switch whose ports have agreed on different capabilities: whatever a sender leaves
//! unfinished, each receiver gets correct packets of a form that it takes.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/ports.rs"]
mod ports;

use common::{COUNT, Client, attribute, buffer, large, name, system};
use paravane_vbus::ethernet::{Ip, cap, flag};
use paravane_vbus::{MemoryContext, Vbus};
use ports::{Got, Mac, Port};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;
const ACK: u8 = 0x10;

/// The sum of the Internet checksum, one word after the other.
fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for word in bytes.chunks(2) {
        sum += u32::from(word[0]) << 8 | word.get(1).map_or(0, |&low| u32::from(low));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap()
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The sum of the pseudo header of a packet of IPv4 or IPv6.
fn pseudo(ip: &[u8], length: usize) -> u16 {
    let length = u16::try_from(length).unwrap().to_be_bytes();
    let (addresses, protocol) = match ip[0] >> 4 {
        4 => (&ip[12..20], ip[9]),
        _ => (&ip[8..40], ip[6]),
    };
    sum(&[addresses, &[0, protocol], &length].concat())
}

/// What a sender says of the checksum.
fn place(start: usize, offset: usize) -> u32 {
    flag::CSUM | u32::try_from(start << 8 | offset / 2 << 4).unwrap()
}

#[derive(Clone, Debug)]
struct Stream {
    six: bool,
    vlan: bool,
    ip_options: usize,
    tcp_options: usize,
    payload: Vec<u8>,
    flags: u8,
    seq: u32,
    id: u16,
    mss: usize,
}

impl Stream {
    fn ip(&self) -> usize {
        if self.vlan { 18 } else { 14 }
    }

    fn tcp(&self) -> usize {
        self.ip() + if self.six { 40 } else { 20 + self.ip_options }
    }

    fn tso(&self) -> u32 {
        if self.six { flag::TSO6 } else { flag::TSO4 }
    }

    /// Whether a receiver has agreed on it as it is.
    fn is_taken(&self, to: &Port) -> bool {
        let long = if self.six { cap::RX_TSO6 } else { cap::RX_TSO4 };
        to.has(cap::CHAIN | cap::CSUM | long)
    }

    /// A header of IP.
    fn ip_header(&self) -> Vec<u8> {
        let length = 20 + self.tcp_options + self.payload.len();
        let total = self.tcp() - self.ip() + length;
        let half = |value: usize| u16::try_from(value).unwrap().to_be_bytes();
        if self.six {
            let addresses = (0..32).map(|n| n * 7);
            let [high, low] = half(length);
            return [0x60, 0, 0, 9, high, low, 6, 64]
                .into_iter()
                .chain(addresses)
                .collect();
        }
        let mut ip = vec![0x45 + u8::try_from(self.ip_options / 4).unwrap(), 0];
        ip.extend(half(total));
        ip.extend(self.id.to_be_bytes());
        ip.extend([0x40, 0, 64, 6, 0, 0, 10, 8, 0, 1, 10, 8, 0, 2]);
        ip.extend(vec![1; self.ip_options]);
        let checksum = !sum(&ip);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        ip
    }

    fn headers(&self) -> usize {
        self.tcp() + 20 + self.tcp_options
    }

    /// The frame as one long segment, with the sum of the pseudo header, and its flags.
    fn frame(&self, to: Mac, from: Mac) -> (Vec<u8>, u32) {
        let mut frame = [to, from].concat();
        if self.vlan {
            frame.extend([0x81, 0, 0, 5]);
        }
        frame.extend(if self.six { [0x86, 0xdd] } else { [8, 0] });
        let ip = self.ip_header();
        let mut tcp = vec![0x12, 0x34, 0, 80];
        tcp.extend(self.seq.to_be_bytes());
        tcp.extend([1, 2, 3, 4]);
        tcp.push(u8::try_from((20 + self.tcp_options) / 4).unwrap() << 4);
        tcp.extend([self.flags, 1, 0, 0, 0, 0, 0]);
        tcp.extend(vec![1; self.tcp_options]);
        let sum = pseudo(&ip, tcp.len() + self.payload.len());
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        frame.extend([ip, tcp, self.payload.clone()].concat());
        let size = u32::try_from(self.mss).unwrap() << 16;
        (frame, place(self.tcp(), 16) | self.tso() | size)
    }

    /// Checks what a receiver got of it.
    fn check(&self, all: &[Got], to: &Port, from: Mac) {
        let mut seen: Vec<u8> = Vec::new();
        for (number, Got { frame, flags }) in all.iter().enumerate() {
            assert_eq!(frame[..12], [to.mac, from].concat());
            let (ip, tcp) = (&frame[self.ip()..], &frame[self.tcp()..]);
            let payload = &frame[self.headers()..];
            if self.six {
                assert_eq!(usize::from(word(ip, 4)), tcp.len(), "length of IP");
            } else {
                assert_eq!(usize::from(word(ip, 2)), ip.len(), "length of IP");
                let header = &ip[..20 + self.ip_options];
                assert_eq!(sum(header), 0xffff, "checksum of IP");
                let id = self.id.wrapping_add(u16::try_from(number).unwrap());
                assert_eq!(word(ip, 4), id);
            }
            // The form is one that the receiver takes.
            if flags & flag::TSO4 == 0 {
                assert!(payload.len() <= self.mss, "{} bytes", payload.len());
                assert_eq!(flags >> 16, 0);
            } else {
                assert!(self.is_taken(to));
                assert_eq!(flags & flag::TSO6, self.tso());
                assert_eq!(flags >> 16, u32::try_from(self.mss).unwrap());
            }
            let pseudo = pseudo(ip, tcp.len());
            if flags & flag::CSUM == 0 {
                let whole = u32::from(sum(tcp)) + u32::from(pseudo);
                assert_eq!((whole & 0xffff) + (whole >> 16), 0xffff, "checksum of TCP");
                assert_eq!(*flags, 0);
            } else {
                assert!(to.has(cap::CSUM));
                assert_eq!(flags & 0xfff0, place(self.tcp(), 16) & 0xfff0);
                assert_eq!(word(tcp, 16), pseudo, "checksum of the pseudo header");
            }
            let seq = u32::from_be_bytes(tcp[4..8].try_into().unwrap());
            assert_eq!(
                seq,
                self.seq.wrapping_add(u32::try_from(seen.len()).unwrap())
            );
            let (first, last) = (number == 0, number + 1 == all.len());
            let mut expected = self.flags;
            expected &= if last { 0xff } else { !FIN_PSH };
            expected &= if first { 0xff } else { !CWR };
            assert_eq!(tcp[13], expected, "flags of segment {number}");
            seen.extend(payload);
        }
        assert_eq!(seen, self.payload);
    }
}

/// `count` bytes of a pattern.
fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|n| u8::try_from(n % 251).unwrap()).collect()
}

fn stream() -> impl Strategy<Value = Stream> {
    (
        any::<[bool; 2]>(),
        0usize..=10,
        0usize..=10,
        0usize..12_000,
        any::<u8>(),
        any::<u32>(),
        any::<u16>(),
        100usize..1900,
    )
        .prop_map(
            |([six, vlan], ip_options, tcp_options, payload, flags, seq, id, mss)| Stream {
                six,
                vlan,
                ip_options: 4 * ip_options,
                tcp_options: 4 * tcp_options,
                payload: bytes(payload),
                flags: flags | ACK,
                seq,
                id,
                mss,
            },
        )
}

fn lossless() -> Vbus {
    let mut vbus = system("venet-switch");
    vbus.set_attribute(&name("dev"), "lossless", "1").unwrap();
    vbus
}

/// Runs a test with many inputs.
fn check<S: Strategy>(
    cases: u32,
    inputs: &S,
    test: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let result = TestRunner::new(Config::with_cases(cases)).run(inputs, test);
    assert!(result.is_ok(), "{}", result.unwrap_err());
}

/// Every set of capabilities of the receiver, and every one of a sender that may send it.
#[test]
fn a_long_segment_reaches_each_receiver_in_a_form_that_it_takes() {
    let inputs = (
        stream(),
        0..=cap::ALL,
        prop::collection::vec(any::<usize>(), 0..6),
    );
    let run = |(stream, caps, cuts): (Stream, u32, Vec<usize>)| {
        let mut vbus = lossless();
        let mut from = Port::open(&mut vbus, 1, cap::ALL);
        let mut to = Port::open(&mut vbus, 2, caps);
        let mut other = Port::open(&mut vbus, 3, cap::ALL);
        let (frame, flags) = stream.frame(to.mac, from.mac);
        from.send(&mut vbus, &frame, flags, &cuts);
        let all = to.receive_all(&mut vbus);
        stream.check(&all, &to, from.mac);
        let segments = stream.payload.len().div_ceil(stream.mss).max(1);
        let takes = stream.is_taken(&to);
        prop_assert_eq!(all.len(), if takes { 1 } else { segments });
        prop_assert!(other.receive(&mut vbus).is_none());
        // All descriptors of the sender are back.
        from.client.reclaim();
        prop_assert_eq!(from.client.tx.outstanding(), 0);
        prop_assert_eq!(attribute(&vbus, "tx-packets"), 1);
        Ok(())
    };
    check(400, &inputs, run);
}

/// Which ports take them is decided for each: some complete the checksum themselves.
#[test]
fn a_checksum_is_complete_for_those_who_do_not_complete_it() {
    let inputs = (
        1usize..1900,
        [0..=cap::ALL, 0..=cap::ALL, 0..=cap::ALL],
        any::<bool>(),
        prop::collection::vec(any::<usize>(), 0..6),
    );
    let run = |(payload, caps, to_all, cuts): (usize, [u32; 3], bool, Vec<usize>)| {
        let payload = bytes(payload);
        let mut vbus = lossless();
        let mut from = Port::open(&mut vbus, 1, caps[0] | cap::CSUM);
        let mut to =
            [2, 3].map(|n| Port::open(&mut vbus, n, caps[usize::try_from(n).unwrap() - 1]));
        let target = if to_all { [0xff; 6] } else { to[0].mac };
        let mut ip = vec![
            0x45, 0, 0, 0, 0, 7, 0, 0, 64, 17, 0, 0, 10, 8, 0, 1, 10, 8, 0, 2,
        ];
        ip[2..4].copy_from_slice(&u16::try_from(28 + payload.len()).unwrap().to_be_bytes());
        let length = u16::try_from(8 + payload.len()).unwrap().to_be_bytes();
        let udp = [
            &[0, 7, 0, 9],
            &length[..],
            &pseudo(&ip, 8 + payload.len()).to_be_bytes(),
        ]
        .concat();
        let frame = [&target[..], &from.mac, &[8, 0], &ip, &udp, &payload].concat();
        from.send(&mut vbus, &frame, place(34, 6), &cuts);
        for (number, port) in to.iter_mut().enumerate() {
            let all = port.receive_all(&mut vbus);
            prop_assert_eq!(all.len(), usize::from(to_all || number == 0));
            for Got { frame: got, flags } in all {
                prop_assert_eq!((&got[..40], &got[42..]), (&frame[..40], &frame[42..]));
                if port.has(cap::CSUM) {
                    prop_assert_eq!((flags, &got), (place(34, 6), &frame));
                } else {
                    let whole = u32::from(sum(&got[34..])) + u32::from(pseudo(&ip, got.len() - 34));
                    prop_assert_eq!((flags, (whole & 0xffff) + (whole >> 16)), (0, 0xffff));
                }
            }
        }
        Ok(())
    };
    check(400, &inputs, run);
}

/// A frame, bytes that are other ones, flags, capabilities of both sides, and where it ends.
type Nonsense = (
    Stream,
    Vec<(prop::sample::Index, u8)>,
    Option<u32>,
    [u32; 2],
    prop::sample::Index,
);

/// Frames of any content with any flags: only a client that broke a rule of the ring is reset.
/// No port gets a form that it has not agreed on.
#[test]
fn nonsense_reaches_nobody_in_a_form_that_was_not_agreed_on() {
    let change = (any::<prop::sample::Index>(), any::<u8>());
    let inputs = (
        stream(),
        prop::collection::vec(change, 0..4),
        prop_oneof![Just(None), any::<u32>().prop_map(Some)],
        [0..=cap::ALL, 0..=cap::ALL],
        any::<prop::sample::Index>(),
    );
    let run = |(stream, changes, other_flags, caps, cut): Nonsense| {
        let mut vbus = lossless();
        let mut from = Port::open(&mut vbus, 1, caps[0]);
        let mut to = Port::open(&mut vbus, 2, caps[1]);
        let (mut frame, flags) = stream.frame(to.mac, from.mac);
        for (place, value) in changes {
            // The addresses stay, so that it is delivered.
            let end = stream.headers() - 12;
            frame[12 + place.index(end)] = value;
        }
        frame.truncate(12 + cut.index(frame.len() - 11));
        from.send(&mut vbus, &frame, other_flags.unwrap_or(flags), &[]);
        for Got { frame, flags } in to.receive_all(&mut vbus) {
            let long = flags & flag::TSO4 != 0;
            let (sent, takes) = match flag::long_over(flags) {
                None => (0, 0),
                Some(Ip::V4) => (cap::TSO4, cap::RX_TSO4),
                Some(Ip::V6) => (cap::TSO6, cap::RX_TSO6),
            };
            let takes = if long {
                takes | cap::CHAIN | cap::CSUM
            } else {
                takes
            };
            prop_assert!(from.has(sent) && to.has(takes));
            prop_assert!(flags & flag::CSUM == 0 || (to.has(cap::CSUM) && from.has(cap::CSUM)));
            prop_assert!(!long || flags & flag::CSUM != 0);
            // No one has verified it.
            prop_assert!(flags & 4 == 0 || long);
            if flags & flag::CSUM != 0 {
                let start = (flags >> 8 & 0xff) as usize;
                let end = start + (flags >> 4 & 0xf) as usize * 2 + 2;
                prop_assert!(start >= 14 && end <= frame.len());
            }
        }
        prop_assert_eq!(from.client.reclaim(), 1);
        Ok(())
    };
    check(2000, &inputs, run);
}

fn stream_of(payload: usize, mss: usize) -> Stream {
    Stream {
        six: false,
        vlan: false,
        ip_options: 0,
        tcp_options: 0,
        payload: bytes(payload),
        flags: ACK,
        seq: 7,
        id: 9,
        mss,
    }
}

/// A segment counts as a packet: a frame of very small segments does not make others wait, and is
/// not sent to all ports.
#[test]
fn a_frame_of_many_segments_takes_many_turns() {
    let mut vbus = lossless();
    let mut from = Port::open(&mut vbus, 1, cap::ALL);
    let mut to = Port::open(&mut vbus, 2, 0);
    let stream = stream_of(500, 1);
    let (frame, flags) = stream.frame(to.mac, from.mac);
    from.send(&mut vbus, &frame, flags, &[]);
    let mut all = Vec::new();
    for _ in 0..2000 {
        assert_eq!(vbus.work(4), []);
        let before = all.len();
        while let Some(got) = to.receive(&mut vbus) {
            all.push(got);
        }
        // The receiver's own turn lets the sender work, too.
        assert!(all.len() <= before + 4, "{} in a turn", all.len() - before);
    }
    stream.check(&all, &to, from.mac);
    assert_eq!(attribute(&vbus, "made-segments"), 500);
    let (frame, flags) = stream.frame([0xff; 6], from.mac);
    from.send(&mut vbus, &frame, flags, &[]);
    assert!(to.receive_all(&mut vbus).is_empty());
    assert_eq!(attribute(&vbus, "dropped-malformed"), 1);
}

/// The headers are copied once: a sender that writes others during the copies changes no segment.
#[test]
fn headers_that_change_amid_a_frame_are_not_read_again() {
    let mut vbus = lossless();
    let mut from = Port::open(&mut vbus, 1, cap::ALL);
    let mut to = Port::open(&mut vbus, 2, 0);
    let stream = stream_of(1000, 100);
    let (frame, flags) = stream.frame(to.mac, from.mac);
    from.send(&mut vbus, &frame, flags, &[]);
    let mut all = Vec::new();
    for _ in 0..100 {
        if all.is_empty() {
            assert_eq!(vbus.work(1), []);
            all.extend(to.receive(&mut vbus));
        }
    }
    assert_eq!(all.len(), 1);
    // Were all of them there already, the test would show nothing.
    assert!(attribute(&vbus, "made-segments") < 5);
    let others = vec![0xff; stream.headers()];
    from.client.memory.write(large(1), &others).unwrap();
    all.extend(to.receive_all(&mut vbus));
    stream.check(&all, &to, from.mac);
    assert_eq!(all.len(), 10);
}

/// A frame that cannot be delivered whole is not delivered in part: the receiver would take the
/// next frame for the rest.
#[test]
fn a_frame_outside_of_memory_leaves_nothing_behind() {
    let mut vbus = lossless();
    let mut from = Port::open(&mut vbus, 1, cap::ALL);
    let mut to = Port::open(&mut vbus, 2, cap::ALL);
    let stream = stream_of(9000, 1000);
    let (frame, flags) = stream.frame(to.mac, from.mac);
    from.client.memory.write(large(1), &frame).unwrap();
    let mut first = buffer(large(1), 5000);
    first.flags = flags | flag::MORE;
    from.client.tx.post(first).unwrap();
    from.client
        .tx
        .post(buffer(u64::MAX - 100, frame.len() - 5000))
        .unwrap();
    vbus.notified(from.client.id);
    assert_eq!(vbus.work(64), [from.client.id]);
    assert!(!to.client.rx.ready());
    // Another one is understood.
    let mut from = Port::open(&mut vbus, 1, cap::ALL);
    let (frame, flags) = stream.frame(to.mac, from.mac);
    from.send(&mut vbus, &frame, flags, &[5000]);
    stream.check(&to.receive_all(&mut vbus), &to, from.mac);
}

/// A frame that has no end is a breach, of its sender alone.
#[test]
fn a_frame_without_end_is_a_breach() {
    let mut vbus = lossless();
    let from = &mut Port::open(&mut vbus, 1, cap::ALL).client;
    let to = Port::open(&mut vbus, 2, cap::ALL).client;
    for _ in 0..COUNT {
        let mut part = buffer(large(1), 10);
        part.flags = flag::MORE;
        from.tx.post(part).unwrap();
    }
    vbus.notified(from.id);
    assert_eq!(vbus.work(64), [from.id]);
    assert!(vbus.is_open(to.id));
}

/// An administrator keeps new connections from agreeing on anything.
#[test]
fn a_switch_without_offload_agrees_on_nothing() {
    let mut vbus = system("venet-switch");
    vbus.set_attribute(&name("dev"), "offload", "0").unwrap();
    let client = Client::open(&mut vbus, 1);
    let argument = [0, cap::ALL].map(u32::to_le_bytes).concat();
    let agreed = vbus.call(client.member, client.id, 3, &argument);
    assert_eq!(agreed, Ok(vec![0; 8]));
}

/// Frames that no port gets cost time, too.
#[test]
fn frames_that_are_dropped_are_packets_of_a_turn() {
    let mut vbus = lossless();
    let client = &mut Port::open(&mut vbus, 1, cap::ALL).client;
    for _ in 0..COUNT {
        client.tx.post(buffer(large(1), 10)).unwrap();
    }
    vbus.notified(client.id);
    assert_eq!(vbus.work(2), []);
    assert_eq!(client.reclaim(), 2);
}
