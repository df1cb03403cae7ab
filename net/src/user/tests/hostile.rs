// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Segments that no correct guest sends.

use super::raw::{ACK, FIN, RST, Raw, SCALE, SYN, Segment};
use super::*;
use rustix::net::sockopt;

fn published(large_buffers: usize) -> Raw {
    Raw::new(Config {
        large_buffers,
        publish: vec!["127.0.0.1:0:80".parse().unwrap()],
        ..loopback()
    })
}

fn client(raw: &Raw) -> TcpStream {
    TcpStream::connect(raw.wire.network.published()[0].host).unwrap()
}

/// The guest does not say where it is, so that no SYN can be sent to it, but answers that one.
#[test]
fn an_answer_before_the_question() {
    // The first number of a connection is the same in every network of a process.
    let number = {
        let mut raw = published(1);
        let _client = client(&raw);
        raw.next().seq
    };
    for (flags, ack) in [(SYN, 0), (SYN | ACK, number.wrapping_add(1))] {
        let mut raw = published(1);
        let _client = client(&raw);
        raw.frame([8, 6]);
        raw.ack = ack;
        raw.send(flags, b"");
        raw.send(ACK, &[1; 1000]);
        raw.wire.serve();
        // Now it says where it is.
        raw.arp(raw.own.ip().octets());
        let question = raw.next();
        assert_eq!((question.flags, question.seq), (SYN, number), "{flags}");
        raw.send(SYN | ACK, b"");
        assert_eq!(raw.next().flags, ACK);
        raw.works();
    }
}

/// Both ends open the connection at the same time, which no program does.
#[test]
fn a_question_instead_of_an_answer() {
    let mut raw = published(1);
    let _client = client(&raw);
    assert_eq!(raw.next().flags, SYN);
    raw.send(SYN, b"");
    raw.send(ACK, &[1; 60_000]);
    raw.wire.serve();
    raw.works();
}

/// The guest sends more than the window, while the router has forgotten the guest's address and
/// sends no update.
#[test]
fn data_beyond_a_window_without_scale() {
    for scale in [&[][..], &SCALE] {
        for (count, large) in (2..=6).flat_map(|count| [(count, 0), (count, 1)]) {
            let mut raw = published(large);
            let _client = client(&raw);
            assert_eq!(raw.next().flags, SYN);
            raw.take(&Segment {
                seq: raw.seq,
                ack: raw.ack,
                flags: SYN | ACK,
                window: 1000,
                options: scale.to_vec(),
                ..Segment::default()
            });
            raw.seq += 1;
            for last in 101..=108 {
                raw.arp([10, 0, 2, last]);
            }
            for _ in 0..count {
                raw.send(ACK, &[1; 60_000]);
            }
            raw.wire.serve();
            raw.wire.serve();
            raw.works();
        }
    }
}

/// The window of a SYN has no scale yet.
#[test]
fn data_beyond_the_window_of_a_handshake() {
    for scale in [&[][..], &SCALE] {
        for (step, large_buffers) in [(60_000, 0), (60_000, 1), (61_000, 0), (61_000, 1)] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut raw = Raw::new(Config {
                large_buffers,
                ..loopback()
            });
            raw.other = gateway(listener.local_addr().unwrap().port());
            raw.arp(raw.own.ip().octets());
            raw.take(&Segment {
                seq: raw.seq,
                flags: SYN,
                window: 1000,
                options: scale.to_vec(),
                ..Segment::default()
            });
            raw.seq += 1;
            assert_eq!(raw.next().flags, SYN | ACK);
            let first = raw.seq;
            for index in 0..8 {
                // In order, and with holes.
                raw.seq = first + index * step;
                raw.send(ACK, &[1; 60_000]);
            }
            raw.wire.serve();
            raw.works();
        }
    }
}

/// The window grows, but has not doubled: no update is sent. The guest sends more than it knows of.
#[test]
fn data_beyond_a_window_that_has_grown() {
    const LEAST: u16 = 40_000;
    for end in [0, FIN] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // As little as possible on the way.
        sockopt::set_socket_recv_buffer_size(&listener, 4096).unwrap();
        let mut raw = Raw::new(loopback());
        raw.other = gateway(listener.local_addr().unwrap().port());
        raw.arp(raw.own.ip().octets());
        raw.take(&Segment {
            seq: raw.seq,
            flags: SYN,
            window: 1000,
            ..Segment::default()
        });
        raw.seq += 1;
        assert_eq!(raw.next().flags, SYN | ACK);
        raw.send(ACK, b"");
        let (mut service, _) = listener.accept().unwrap();
        let mut sent = 0;
        loop {
            let room = usize::from(raw.window.saturating_sub(LEAST)).min(25_000);
            if room == 0 {
                break;
            }
            // The second one is acknowledged at once.
            raw.send(ACK, &vec![1; room / 2]);
            raw.send(ACK, &vec![1; room - room / 2]);
            sent += room;
            while raw.next().ack != raw.seq {}
        }
        assert_eq!(raw.window, LEAST);
        let mut data = vec![0; sent];
        let reader = std::thread::spawn(move || {
            service.read_exact(&mut data).unwrap();
            service
        });
        let begun = Instant::now();
        while !reader.is_finished() {
            raw.wire.serve();
            assert!(begun.elapsed() < PATIENCE);
        }
        raw.wire.card.frames.clear();
        raw.send(ACK | end, &[1; 60_000]);
        raw.wire.serve();
        raw.wire.network.0.pass(Duration::from_millis(20));
        raw.wire.serve();
        let seen = raw.all(Duration::from_millis(20));
        assert!(seen.iter().all(|seen| seen.flags & RST == 0), "{seen:?}");
        raw.works();
    }
}
