// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz target: frames of a guest for the stack.
//!
//! The thread has a filter of its own that fails every attempt to use the host's network.
//! Connections come in through a published port, so that the guest's segments meet open
//! connections.

use super::stack::Stack;
use super::{Config, MAX_TCP, Port, ROUTER};
use crate::link::HEADER;
use paravane_fuzz::{Input, fuzz};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

/// An input has made a connection.
static CONNECTED: AtomicBool = AtomicBool::new(false);

/// This thread makes no connection and sends no datagram to an address.
fn stay_inside() {
    let to_somebody =
        SeccompCondition::new(4, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0).unwrap();
    let rules = BTreeMap::from([
        (libc::SYS_connect, vec![]),
        (libc::SYS_sendmsg, vec![]),
        (
            libc::SYS_sendto,
            vec![SeccompRule::new(vec![to_somebody]).unwrap()],
        ),
    ]);
    let refused = SeccompAction::Errno(libc::ECONNREFUSED.unsigned_abs());
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, refused, TargetArch::x86_64).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

/// The guest's card, which takes frames or does not.
struct Card {
    mtu: u16,
    partial: bool,
    open: bool,
    last: Vec<u8>,
}

impl Port for Card {
    fn give(&mut self, frame: &mut [u8]) -> bool {
        let (header, frame) = frame.split_at(HEADER);
        assert!(
            frame.len() <= usize::from(self.mtu) + 14,
            "a frame of {} bytes",
            frame.len()
        );
        let word = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        if header[0] == 1 {
            assert!(self.partial && word(6) + word(8) + 2 <= frame.len());
        }
        if self.open {
            self.last = frame.to_vec();
        }
        self.open
    }
}

/// An Ethernet frame of the guest with an IPv4 packet. The stack does not verify checksums.
fn packet(config: &Config, input: &mut Input<'_>, protocol: u8, content: &[u8]) -> Vec<u8> {
    let mut frame = Vec::from(ROUTER);
    frame.extend([2, 0, 0, 0, 0, 7, 8, 0]);
    let options = usize::from(input.pick(&[0u8, 0, 0, 0, 4, 40]));
    let version = if input.u8() == 0xff {
        input.u8()
    } else {
        0x45 + u8::try_from(options / 4).unwrap()
    };
    let length = 20 + options + content.len();
    let length = if input.u8() == 0xff {
        input.u16()
    } else {
        u16::try_from(length).unwrap_or(u16::MAX)
    };
    let fragment = if input.u8() == 0xff {
        input.u16()
    } else {
        0x4000
    };
    let source = if input.u8() == 0xff {
        input.u32().to_be_bytes()
    } else {
        config.guest.octets()
    };
    let target = input.pick(&[
        config.gateway.octets(),
        config.dns.octets(),
        [1, 2, 3, 4],
        [127, 0, 0, 1],
        [255; 4],
    ]);
    frame.extend([version, 0]);
    frame.extend(length.to_be_bytes());
    frame.extend([0, 1]);
    frame.extend(fragment.to_be_bytes());
    frame.extend([64, protocol, 0, 0]);
    frame.extend(source);
    frame.extend(target);
    frame.extend(input.bytes(options));
    frame.resize(34 + options, 1);
    frame.extend(content);
    frame
}

fn segment(input: &mut Input<'_>, ports: (u16, u16), numbers: (u32, u32), flags: u8) -> Vec<u8> {
    let mut segment = ports.0.to_be_bytes().to_vec();
    segment.extend(ports.1.to_be_bytes());
    segment.extend(numbers.0.to_be_bytes());
    segment.extend(numbers.1.to_be_bytes());
    let options = usize::from(input.pick(&[0u8, 0, 4, 20, 40]));
    let offset = if input.u8() == 0xff {
        input.u8()
    } else {
        u8::try_from(5 + options / 4).unwrap() << 4
    };
    segment.extend([offset, flags]);
    segment.extend(input.pick(&[0u16, 1, 1000, u16::MAX]).to_be_bytes());
    segment.extend([0, 0, 0, 0]);
    segment.extend(input.bytes(options));
    segment.resize(20 + options, 0);
    let data = usize::from(input.u8());
    segment.extend(input.bytes(data));
    if data % 8 == 7 {
        // Much, of no interest.
        let more = input.pick(&[500usize, 9000, 40_000, 60_000]);
        segment.resize(segment.len() + more, 0x42);
    }
    segment
}

/// A plausible or nearly plausible answer to a segment of the stack.
fn answer(config: &Config, input: &mut Input<'_>, frame: &[u8]) -> Option<Vec<u8>> {
    let at = 14 + usize::from(frame.get(14)? & 15) * 4;
    let word = |at: usize| Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?));
    let long = |at: usize| Some(u32::from_be_bytes(frame.get(at..at + 4)?.try_into().ok()?));
    if frame.get(12..14)? == [8, 6] {
        return Some(arp(config, input));
    }
    if frame.get(12..14)? != [8, 0] || *frame.get(23)? != 6 {
        return None;
    }
    let flags = frame.get(at + 13)?;
    let header = usize::from(frame.get(at + 12)? >> 4) * 4;
    let length = u32::try_from(frame.len().saturating_sub(at + header)).ok()?;
    let next = long(at + 4)?
        .wrapping_add(u32::from(flags & 3 != 0))
        .wrapping_add(length);
    let (odd, by) = (input.u8() & 3, u32::from(input.u16()));
    let next = if odd == 1 {
        next.wrapping_add(by)
    } else {
        next
    };
    let own = if odd == 2 { by } else { long(at + 8)? };
    // SYN and ACK; ACK; ACK and PSH; FIN and ACK; RST; anything.
    let flags = if *flags == 2 {
        input.pick(&[0x12, 0x12, 0x12, 0x12, 0x02, 0x04, 0xff])
    } else {
        input.pick(&[0x12, 0x10, 0x18, 0x11, 0x04, 0xff])
    };
    let flags = if flags == 0xff { input.u8() } else { flags };
    let content = segment(input, (word(at + 2)?, word(at)?), (own, next), flags);
    let mut reply = packet(config, input, 6, &content);
    // To the sender of the segment.
    let from: [u8; 4] = frame.get(26..30)?.try_into().ok()?;
    reply.get_mut(30..34)?.copy_from_slice(&from);
    Some(reply)
}

/// ARP with any operation, of the guest.
fn arp(config: &Config, input: &mut Input<'_>) -> Vec<u8> {
    let mut frame = vec![
        255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 7, 8, 6, 0, 1, 8, 0, 6, 4, 0,
    ];
    frame.push(input.pick(&[2, 2, 2, 1, 0, 3]));
    frame.extend([2, 0, 0, 0, 0, 7]);
    frame.extend(config.guest.octets());
    frame.extend([0; 6]);
    frame.extend(input.pick(&[config.gateway.octets(), [9, 9, 9, 9]]));
    frame
}

fn next(config: &Config, input: &mut Input<'_>, last: &[u8]) -> Vec<u8> {
    match input.u8() % 8 {
        0 => {
            let length = usize::from(input.u8());
            input.bytes(length).to_vec()
        }
        1 => {
            // Many fill smoltcp's table.
            let mut frame = arp(config, input);
            let other = input.u8();
            frame[31] = input.pick(&[15, 15, other]);
            frame
        }
        2 => {
            let ports = (input.u16(), input.pick(&[67u16, 53, 68, 80]));
            let length = usize::from(input.u8());
            let data = input.bytes(length);
            let mut content = ports.0.to_be_bytes().to_vec();
            content.extend(ports.1.to_be_bytes());
            let said = if input.u8() == 0xff {
                input.u16()
            } else {
                u16::try_from(8 + data.len()).unwrap()
            };
            content.extend(said.to_be_bytes());
            content.extend([0, 0]);
            if ports.1 == 67 {
                // The start of a DNS query for an address.
                content.extend([1, 1, 6, 0]);
                content.extend([0; 232]);
                content.extend([0x63, 0x82, 0x53, 0x63, 53, 1]);
            }
            content.extend(data);
            packet(config, input, 17, &content)
        }
        3 => {
            let length = usize::from(input.u8());
            let content = input.bytes(length);
            packet(config, input, 1, content)
        }
        4 => {
            let (ports, numbers) = (
                (input.u8().into(), input.u8().into()),
                (input.u32(), input.u32()),
            );
            let flags = input.pick(&[2, 2, 2, 0x10, 0x11, 4, 0x3f]);
            let content = segment(input, ports, numbers, flags);
            packet(config, input, 6, &content)
        }
        _ => answer(config, input, last).unwrap_or_default(),
    }
}

#[test]
fn frames() {
    fuzz("frames", || {
        // Connections from outside are made by a thread without the filter.
        let (ask, asked) = channel::<SocketAddr>();
        let (done, connected) = channel();
        std::thread::spawn(move || {
            for address in asked {
                let stream = TcpStream::connect(address).and_then(|mut stream| {
                    stream.write_all(b"hello")?;
                    Ok(stream)
                });
                let _ = done.send(stream.ok());
            }
        });
        stay_inside();
        move |bytes| {
            let mut input = Input::new(bytes);
            let config = Config {
                resolvers: vec![([127, 0, 0, 1], 9).into()],
                host_loopback: input.u8().is_multiple_of(2),
                publish: vec!["127.0.0.1:0:80".parse().unwrap()],
                mtu: input.pick(&[1500, 576, 65_520]),
                large_buffers: 1,
                ..Config::default()
            };
            let mut card = Card {
                mtu: config.mtu,
                partial: input.u8().is_multiple_of(2),
                open: true,
                last: Vec::new(),
            };
            let mut stack = Stack::new(config.clone()).unwrap();
            stack.attach(card.partial);
            let address = stack.published()[0].host;
            let mut held = Vec::new();
            for _ in 0..100 {
                if input.is_empty() {
                    break;
                }
                match input.u8() % 32 {
                    0 | 1 if held.len() < 4 => {
                        ask.send(address).unwrap();
                        held.push(connected.recv().unwrap());
                    }
                    2 => card.open = !card.open,
                    3 => {
                        let millis = input.pick(&[1u64, 10, 1000, 30_000, 130_000]);
                        stack.pass(Duration::from_millis(millis));
                    }
                    kind => {
                        // Several, too, before the stack does anything.
                        for _ in 0..[1, 1, 1, 2, 12][usize::from(kind % 5)] {
                            let last = std::mem::take(&mut card.last);
                            let frame = next(&config, &mut input, &last);
                            card.last = last;
                            if stack.takes() {
                                stack.take(&frame, &mut card);
                            }
                        }
                    }
                }
                stack.look_at_clock();
                stack.look();
                stack.serve(&mut card);
                if stack.established() {
                    CONNECTED.store(true, Ordering::Relaxed);
                }
            }
            assert!(stack.connections() <= MAX_TCP);
        }
    });
    assert!(
        CONNECTED.load(Ordering::Relaxed),
        "no input makes a connection"
    );
}
