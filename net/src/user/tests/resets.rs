// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A service that answers and then resets the connection: the guest reads the answer first.

use super::ends::{pass, received};
use super::raw::{ACK, FIN, RST, Raw};
use super::*;
use rustix::net::sockopt;

/// A connection of a guest whose window has this many bytes.
fn connected(guest: &mut Guest, window: usize) -> (SocketHandle, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = gateway(listener.local_addr().unwrap().port());
    let buffer = |size| tcp::SocketBuffer::new(vec![0; size]);
    let socket = tcp::Socket::new(buffer(window), buffer(1 << 16));
    let handle = guest.sockets.add(socket);
    let context = guest.interface.context();
    let socket = guest.sockets.get_mut::<tcp::Socket<'_>>(handle);
    socket.connect(context, to, 40_020).unwrap();
    guest.until("a connection", |g| g.socket(handle).may_send());
    (handle, listener.accept().unwrap().0)
}

/// The service ends in the way that Linux has where a program leaves data unread.
fn reset(service: TcpStream) {
    sockopt::set_socket_linger(&service, Some(Duration::ZERO)).unwrap();
}

/// The guest gets these bytes, and then a failure and no end.
fn gets(guest: &mut Guest, handle: SocketHandle, data: &[u8]) {
    let mut all = Vec::new();
    guest.until("the failure", |guest| {
        all.extend(received(guest, handle));
        !guest.socket(handle).is_open()
    });
    all.extend(received(guest, handle));
    assert!(all == data, "{} of {} bytes", all.len(), data.len());
    let end = guest.socket(handle).recv_slice(&mut [0]);
    assert_eq!(end, Err(tcp::RecvError::InvalidState));
    guest.until("the end", |g| g.wire.network.0.connections() == 0);
}

#[test]
fn an_answer_before_a_reset_arrives() {
    let mut guest = Guest::new(loopback());
    let (handle, mut service) = connected(&mut guest, 1 << 18);
    service.write_all(b"0123456789").unwrap();
    reset(service);
    gets(&mut guest, handle, b"0123456789");
}

/// The guest still sends, so the host's socket reports the failure at a write, and only an end at a
/// read.
#[test]
fn an_answer_arrives_where_the_question_was_not_read() {
    for length in [1, 50_000] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut raw = Raw::new(loopback());
        let mut service = raw.connect(&listener);
        service.write_all(b"0123456789").unwrap();
        reset(service);
        raw.send(ACK, &pattern(length));
        let answer = loop {
            let seen = raw.next();
            if !seen.data.is_empty() {
                break seen;
            }
        };
        assert_eq!(answer.data, b"0123456789");
        assert_eq!(answer.flags & (FIN | RST), 0);
        // The reset waits for the acknowledgement.
        let seen = raw.all(Duration::from_millis(20));
        assert!(seen.iter().all(|s| s.flags & (FIN | RST) == 0), "{seen:?}");
        raw.send(ACK, b"");
        let end = raw.next();
        assert_eq!((end.flags & (FIN | RST), end.seq), (RST, raw.ack));
        assert_eq!(raw.wire.network.0.connections(), 0);
    }
}

/// A service that writes 100 KB, all of which the network has when the reset comes.
fn much(guest: &mut Guest) -> SocketHandle {
    let (handle, mut service) = connected(guest, 4096);
    let thread = std::thread::spawn(move || {
        service.write_all(&pattern(100_000)).unwrap();
        service
    });
    guest.until("data", |_| thread.is_finished());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(200) {
        guest.poll();
    }
    reset(thread.join().unwrap());
    handle
}

#[test]
fn a_long_answer_before_a_reset_arrives() {
    let mut guest = Guest::new(loopback());
    let handle = much(&mut guest);
    gets(&mut guest, handle, &pattern(100_000));
}

/// Nothing waits for ever for a program that does not read, while its system acknowledges.
#[test]
fn a_reset_does_not_wait_long_for_a_program_that_reads_nothing() {
    for question in [false, true] {
        let mut guest = Guest::new(loopback());
        let handle = much(&mut guest);
        if question {
            guest.socket(handle).send_slice(b"more").unwrap();
        }
        for seconds in [0, 40, 40] {
            pass(&mut guest, Duration::from_secs(seconds));
            for _ in 0..20 {
                guest.poll();
            }
            assert_eq!(guest.wire.network.0.connections(), 1);
        }
        for _ in 0..2 {
            pass(&mut guest, Duration::from_secs(50));
            for _ in 0..20 {
                guest.poll();
            }
        }
        assert_eq!(guest.wire.network.0.connections(), 0);
    }
}
