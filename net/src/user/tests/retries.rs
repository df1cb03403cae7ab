// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rare actions of a correct guest: it drops data for which it has room, and remembers or forgets
//! connections differently from the network.

use super::raw::{ACK, FIN, RST, Raw, SYN, Segment};
use super::*;
use std::io::ErrorKind;

const SIZE: u32 = 536;

/// Linux drops data inside its window where memory is scarce, and announces a window of 0 then.
#[test]
fn data_that_a_guest_dropped_comes_again() {
    for data in [&b""[..], b"x"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut raw = Raw::new(loopback());
        let mut service = raw.connect(&listener);
        let all = pattern(3 * usize::try_from(SIZE).unwrap());
        service.write_all(&all).unwrap();
        let seen: Vec<_> = (0..3).map(|_| raw.next()).collect();
        assert_eq!(seen.iter().map(|s| s.data.len()).sum::<usize>(), all.len());
        let next = seen[0].seq.wrapping_add(SIZE);
        for window in [0, 60_000] {
            raw.take(&Segment {
                seq: raw.seq,
                ack: next,
                flags: ACK,
                window,
                data: if window == 0 {
                    Vec::new()
                } else {
                    data.to_vec()
                },
                ..Segment::default()
            });
            raw.wire.serve();
        }
        let mut again = Vec::new();
        for _ in 0..30 {
            again.extend(raw.all(Duration::from_millis(5)));
            raw.wire.network.0.pass(Duration::from_millis(100));
        }
        let dropped = again.iter().find(|s| s.seq == next && !s.data.is_empty());
        assert!(dropped.is_some(), "{again:?}");
        let end = next.wrapping_add(2 * SIZE);
        let last = |s: &Segment| s.seq.wrapping_add(u32::try_from(s.data.len()).unwrap()) == end;
        assert!(again.iter().any(last), "{again:?}");
    }
}

/// A guest in TIME-WAIT answers a SYN by what it acknowledged last, and forgets at the reset.
#[test]
fn a_published_port_asks_again_at_once() {
    let mut raw = Raw::new(Config {
        publish: vec!["127.0.0.1:0:80".parse().unwrap()],
        ..Config::default()
    });
    let host = raw.wire.network.published()[0].host;
    let mut client = TcpStream::connect(host).unwrap();
    let question = raw.next();
    assert_eq!(question.flags, SYN);
    raw.take(&Segment {
        seq: 5,
        ack: question.seq.wrapping_sub(1000),
        flags: ACK,
        window: 1000,
        ..Segment::default()
    });
    let seen = raw.all(Duration::from_millis(90));
    let flags: Vec<u8> = seen.iter().map(|seen| seen.flags).collect();
    assert_eq!(flags, [RST, SYN]);
    assert_eq!(seen[0].seq, question.seq.wrapping_sub(1000));
    assert_eq!(seen[1].from, question.from);
    raw.send(SYN | ACK, b"");
    assert_eq!(raw.next().flags, ACK);
    raw.send(ACK, b"hello");
    raw.wire.serve();
    let mut data = [0; 5];
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.read_exact(&mut data).unwrap();
    assert_eq!(&data, b"hello");
}

/// A guest that always answers so gets no SYN for each of its answers.
#[test]
fn a_published_port_does_not_ask_for_ever() {
    let mut raw = Raw::new(Config {
        publish: vec!["127.0.0.1:0:80".parse().unwrap()],
        ..Config::default()
    });
    let _client = TcpStream::connect(raw.wire.network.published()[0].host).unwrap();
    let question = raw.next();
    let mut seen = Vec::new();
    for _ in 0..20 {
        raw.take(&Segment {
            ack: question.seq.wrapping_sub(1000),
            flags: ACK,
            ..Segment::default()
        });
        seen.extend(raw.all(Duration::from_millis(2)));
    }
    let again = seen.iter().filter(|seen| seen.flags == SYN).count();
    assert_eq!(again, 3);
}

/// A program with a port of its own connects again, while the network has its last connection.
#[test]
fn a_connection_that_the_guest_has_forgotten_makes_way() {
    for closed in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut raw = Raw::new(loopback());
        let mut service = raw.connect(&listener);
        if closed {
            raw.send(ACK | FIN, b"last");
        }
        raw.all(Duration::from_millis(20));
        raw.seq = raw.seq.wrapping_add(1_000_000);
        let mut second = raw.connect(&listener);
        service.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut data = Vec::new();
        let end = service.read_to_end(&mut data).map_err(|error| error.kind());
        if closed {
            assert_eq!((end, data.as_slice()), (Ok(4), b"last".as_slice()));
        } else {
            assert_eq!(end, Err(ErrorKind::ConnectionReset));
        }
        raw.send(ACK, b"second");
        raw.wire.serve();
        let mut data = [0; 6];
        second.set_read_timeout(Some(PATIENCE)).unwrap();
        second.read_exact(&mut data).unwrap();
        assert_eq!(&data, b"second");
        assert_eq!(raw.wire.network.0.connections(), 1);
    }
}

/// A SYN that comes again belongs to the same connection.
#[test]
fn a_repeated_syn_ends_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut raw = Raw::new(loopback());
    let first = raw.seq;
    let mut service = raw.connect(&listener);
    raw.take(&Segment {
        seq: first,
        flags: SYN,
        window: 1000,
        ..Segment::default()
    });
    raw.wire.serve();
    service.write_all(b"hello").unwrap();
    assert_eq!(raw.next().data, b"hello");
}

/// The guest gives up and tries again while the host connects.
#[test]
fn the_last_syn_is_answered() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut raw = Raw::new(loopback());
    raw.other = gateway(listener.local_addr().unwrap().port());
    raw.arp(raw.own.ip().octets());
    raw.send(SYN, b"");
    raw.seq = raw.seq.wrapping_add(1_000_000);
    raw.send(SYN, b"");
    let answer = raw.next();
    assert_eq!((answer.flags, answer.ack), (SYN | ACK, raw.seq));
}

/// No socket connects to a multicast address: the host has no route.
#[test]
fn a_guest_is_told_that_a_network_is_unreachable() {
    let config = Config {
        resolvers: vec!["224.0.0.1:53".parse().unwrap()],
        ..Config::default()
    };
    let dns = SocketAddrV4::new(config.dns, 53);
    let mut raw = Raw::new(config);
    raw.other = dns;
    raw.arp(raw.own.ip().octets());
    raw.send(SYN, b"");
    let frame = raw.frame([8, 0]);
    assert_eq!((frame[23], frame[34], frame[35]), (1, 3, 0));
    assert_eq!(&frame[30..34], &raw.own.ip().octets());
    // The start of the SYN: ports and number.
    let inner = &frame[42..];
    assert_eq!(&inner[12..16], &raw.own.ip().octets());
    assert_eq!(&inner[16..20], &dns.ip().octets());
    assert_eq!(&inner[20..24], &[0, 80, 0, 53]);
    assert_eq!(&inner[24..28], &raw.seq.wrapping_sub(1).to_be_bytes());
}
