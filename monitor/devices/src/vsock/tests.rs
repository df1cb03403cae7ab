// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The connections, with a guest that the test plays.

use super::CONNECTIONS;
use super::connection::BUFFER;
use super::hub::{Hub, Listener};
use super::mux::Mux;
use super::packet::{HOST_CID, Header, SHUTDOWN_BOTH, SHUTDOWN_SEND, STREAM, op};
use proptest::prelude::*;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const CID: u64 = 3;

fn packet(op: u16, host: u32, guest: u32) -> Header {
    Header {
        source_cid: CID,
        target_cid: HOST_CID,
        source_port: guest,
        target_port: host,
        kind: STREAM,
        op,
        buffer_size: 1000,
        ..Header::default()
    }
}

/// What the guest gets: operation and data.
fn sent(mux: &mut Mux) -> Vec<(u16, Vec<u8>)> {
    let mut all = Vec::new();
    let mut buffer = [0; 300];
    mux.poll();
    while let Some(header) = mux.send(&mut buffer) {
        assert_eq!((header.source_cid, header.target_cid), (HOST_CID, CID));
        let length = usize::try_from(header.length).unwrap();
        all.push((header.op, buffer[..length].to_vec()));
    }
    all
}

#[test]
fn the_guest_connects_talks_and_closes() {
    let hub = Hub::default();
    let mut mux = Mux::new(hub.clone(), CID, CONNECTIONS).unwrap();
    mux.receive(&packet(op::REQUEST, 9, 50), &[]);
    assert_eq!(sent(&mut mux), [(op::RST, vec![])]);
    let listener = hub.listen(9).unwrap();
    mux.receive(&packet(op::REQUEST, 9, 50), &[]);
    assert_eq!(sent(&mut mux), [(op::RESPONSE, vec![])]);
    let mut stream = listener.accept(Some(Instant::now())).unwrap();
    mux.receive(&packet(op::RW, 9, 50), b"to the host");
    let mut bytes = [0; 11];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"to the host");
    stream.write_all(&[7; 400]).unwrap();
    assert_eq!(
        sent(&mut mux),
        [(op::RW, vec![7; 300]), (op::RW, vec![7; 100])]
    );
    // The guest's buffer of 1000 has room for 600 more.
    stream.write_all(&[8; 700]).unwrap();
    let lengths: Vec<_> = sent(&mut mux).iter().map(|(_, data)| data.len()).collect();
    assert_eq!(lengths, [300, 300]);
    let mut update = packet(op::CREDIT_UPDATE, 9, 50);
    update.forwarded = 1000;
    mux.receive(&update, &[]);
    assert_eq!(sent(&mut mux), [(op::RW, vec![8; 100])]);
    let mut shutdown = packet(op::SHUTDOWN, 9, 50);
    shutdown.flags = SHUTDOWN_BOTH;
    mux.receive(&shutdown, &[]);
    assert_eq!(sent(&mut mux), [(op::RST, vec![])]);
    assert_eq!(stream.read(&mut bytes).unwrap(), 0);
}

#[test]
fn the_host_connects_and_closes() {
    let hub = Hub::default();
    let mut mux = Mux::new(hub.clone(), CID, CONNECTIONS).unwrap();
    let connect = std::thread::spawn(move || hub.connect(80, Duration::from_secs(20)));
    let mut buffer = [0; 300];
    let request = loop {
        mux.connect();
        if let Some(header) = mux.send(&mut buffer) {
            break header;
        }
        std::thread::yield_now();
    };
    assert_eq!(
        (request.op, request.target_port, request.buffer_size),
        (op::REQUEST, 80, BUFFER)
    );
    mux.receive(&packet(op::RESPONSE, request.source_port, 80), &[]);
    let mut stream = connect.join().unwrap().unwrap();
    stream.write_all(b"x").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let header = |mux: &mut Mux| {
        mux.poll();
        mux.send(&mut [0; 300]).unwrap()
    };
    assert_eq!(header(&mut mux).op, op::RW);
    let end = header(&mut mux);
    assert_eq!((end.op, end.flags), (op::SHUTDOWN, SHUTDOWN_SEND));
    // The guest still sends.
    mux.receive(&packet(op::RW, request.source_port, 80), b"yz");
    let mut bytes = [0; 2];
    stream.read_exact(&mut bytes).unwrap();
    drop(stream);
    mux.receive(&packet(op::RW, request.source_port, 80), b"lost");
    assert_eq!(sent(&mut mux), [(op::RST, vec![])]);
}

#[test]
fn one_that_is_refused_is_refused() {
    let hub = Hub::default();
    let mut mux = Mux::new(hub.clone(), CID, CONNECTIONS).unwrap();
    let connect = std::thread::spawn(move || hub.connect(80, Duration::from_secs(20)));
    let request = loop {
        mux.connect();
        if let Some(header) = mux.send(&mut []) {
            break header;
        }
        std::thread::yield_now();
    };
    mux.receive(&packet(op::RST, request.source_port, 80), &[]);
    assert_eq!(
        connect.join().unwrap().unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
    assert_eq!(sent(&mut mux), []);
}

#[test]
fn a_guest_waits_for_a_slow_host_and_must() {
    let hub = Hub::default();
    let listener = hub.listen(1).unwrap();
    let mut mux = Mux::new(hub, CID, CONNECTIONS).unwrap();
    mux.receive(&packet(op::REQUEST, 1, 2), &[]);
    let mut stream = listener.accept(None).unwrap();
    let mut allowed = i64::from(BUFFER);
    let mut total = 0usize;
    // Until the socket's own buffer is full too, as nothing reads it.
    while allowed >= 4096 {
        mux.receive(&packet(op::RW, 1, 2), &[5; 4096]);
        allowed -= 4096;
        total += 4096;
        mux.poll();
        while let Some(header) = mux.send(&mut [0; 16]) {
            let forwarded = i64::from(header.forwarded);
            allowed = i64::from(BUFFER) - (i64::try_from(total).unwrap() - forwarded);
        }
    }
    let mut bytes = vec![0; total];
    let reader =
        std::thread::spawn(move || stream.read_exact(&mut bytes).map(|()| (bytes, stream)));
    while !reader.is_finished() {
        mux.poll();
        let _ = mux.send(&mut [0; 16]);
    }
    let (bytes, _stream) = reader.join().unwrap().unwrap();
    assert!(bytes.iter().all(|&b| b == 5));
    // More than it was allowed.
    for _ in 0..=BUFFER / 4096 * 2 + 100 {
        mux.receive(&packet(op::RW, 1, 2), &[5; 4096]);
    }
    assert!(sent(&mut mux).iter().any(|(op, _)| *op == op::RST));
}

/// A connection to port 1 whose stream is full, so that the device keeps what the guest sent last.
/// Returns it with its number of bytes.
fn full(mux: &mut Mux, listener: &Listener) -> (UnixStream, usize) {
    mux.receive(&packet(op::REQUEST, 1, 2), &[]);
    let stream = listener.accept(None).unwrap();
    let mut total = 0u32;
    loop {
        mux.receive(&packet(op::RW, 1, 2), &[5; 4096]);
        total += 4096;
        let mut told = packet(op::CREDIT_REQUEST, 1, 2);
        told.buffer_size = 1000;
        mux.receive(&told, &[]);
        let mut forwarded = 0;
        while let Some(header) = mux.send(&mut [0; 16]) {
            forwarded = header.forwarded;
        }
        if total - forwarded > BUFFER / 2 {
            return (stream, usize::try_from(total).unwrap());
        }
    }
}

/// Linux sends a reset 8 s after a program has closed a socket.
#[test]
fn a_slow_host_gets_what_was_sent_before_a_reset() {
    let hub = Hub::default();
    let listener = hub.listen(1).unwrap();
    let mut mux = Mux::new(hub, CID, CONNECTIONS).unwrap();
    let (mut stream, total) = full(&mut mux, &listener);
    let mut shutdown = packet(op::SHUTDOWN, 1, 2);
    shutdown.flags = SHUTDOWN_BOTH;
    mux.receive(&shutdown, &[]);
    mux.receive(&packet(op::RST, 1, 2), &[]);
    // For the guest the connection is over.
    mux.receive(&packet(op::RW, 1, 2), b"more");
    mux.receive(&packet(op::REQUEST, 1, 2), &[]);
    assert_eq!(sent(&mut mux), [(op::RST, vec![]), (op::RST, vec![])]);
    stream.write_all(b"not for this guest").unwrap();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).map(|_| bytes)
    });
    while !reader.is_finished() {
        assert_eq!(sent(&mut mux), []);
    }
    let bytes = reader.join().unwrap().unwrap();
    assert_eq!(bytes.len(), total);
    // Its ports are free again.
    sent(&mut mux);
    mux.receive(&packet(op::REQUEST, 1, 2), &[]);
    assert_eq!(sent(&mut mux), [(op::RESPONSE, vec![])]);
}

#[test]
fn a_reset_without_an_end_drops_what_was_sent() {
    let hub = Hub::default();
    let listener = hub.listen(1).unwrap();
    let mut mux = Mux::new(hub, CID, CONNECTIONS).unwrap();
    let (mut stream, total) = full(&mut mux, &listener);
    mux.receive(&packet(op::RST, 1, 2), &[]);
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    assert!(bytes.len() < total);
}

/// Connections that outlive a reset count towards the bound.
#[test]
fn what_waits_for_the_host_is_bounded() {
    let hub = Hub::default();
    let listener = hub.listen(1).unwrap();
    let mut mux = Mux::new(hub, CID, 1).unwrap();
    let (stream, _) = full(&mut mux, &listener);
    let mut shutdown = packet(op::SHUTDOWN, 1, 2);
    shutdown.flags = SHUTDOWN_SEND;
    mux.receive(&shutdown, &[]);
    mux.receive(&packet(op::RST, 1, 2), &[]);
    mux.receive(&packet(op::REQUEST, 1, 3), &[]);
    assert_eq!(sent(&mut mux), [(op::RST, vec![])]);
    // The reader has ended.
    drop(stream);
    assert_eq!(sent(&mut mux), []);
    mux.receive(&packet(op::REQUEST, 1, 3), &[]);
    assert_eq!(sent(&mut mux), [(op::RESPONSE, vec![])]);
}

/// The guest resets connections that have data for it, and reads none.
#[test]
fn a_connection_that_is_gone_has_no_place_in_the_queue() {
    let hub = Hub::default();
    let listener = hub.listen(1).unwrap();
    let mut mux = Mux::new(hub, CID, 4).unwrap();
    for guest in 0..20 {
        let mut request = packet(op::REQUEST, 1, guest % 5);
        request.buffer_size = 1000;
        mux.receive(&request, &[]);
        let mut stream = listener.accept(None).unwrap();
        // The answer, so that the data is next.
        assert_eq!(mux.send(&mut [0; 3]).unwrap().op, op::RESPONSE);
        stream.write_all(b"hello").unwrap();
        mux.poll();
        assert_eq!(mux.queued(), 1);
        mux.receive(&packet(op::RST, 1, guest % 5), &[]);
        assert_eq!(mux.queued(), 0);
    }
    assert!(!mux.has_output());
}

proptest! {
    #[test]
    fn no_packet_is_too_odd(packets in prop::collection::vec(
        (0u16..10, 0u32..3, 0u32..3, any::<u32>(), any::<u32>(), 0u32..5,
         prop::collection::vec(any::<u8>(), 0..50)), 0..200)
    ) {
        let hub = Hub::default();
        let listener = hub.listen(1).unwrap();
        let mut mux = Mux::new(hub, CID, CONNECTIONS).unwrap();
        let mut streams = Vec::new();
        for (op, host, guest, buffer_size, forwarded, flags, data) in packets {
            let header = Header { op, buffer_size, forwarded, flags, ..packet(op, host, guest) };
            mux.receive(&header, &data);
            if let Ok(mut stream) = listener.accept(Some(Instant::now())) {
                stream.write_all(b"hello").unwrap();
                streams.push(stream);
            }
            mux.poll();
            let _ = mux.send(&mut [0; 3]);
        }
    }
}
