// SPDX-License-Identifier: Apache-2.0 OR MIT
//! No end of a connection loses data, or passes for another end.

use super::bounds::connected;
use super::raw::{ACK, FIN, RST, Raw};
use super::*;
use rustix::net::{SendFlags, sockopt};
use std::io::ErrorKind;
use std::net::Shutdown;

/// Lets time pass for both sides.
pub fn pass(guest: &mut Guest, time: Duration) {
    guest.wire.network.0.pass(time);
    guest.started -= time;
    guest.poll();
}

/// All that the guest can read now.
pub fn received(guest: &mut Guest, handle: SocketHandle) -> Vec<u8> {
    let mut all = Vec::new();
    while guest.socket(handle).can_recv() {
        let socket = guest.socket(handle);
        socket
            .recv(|bytes| (bytes.len(), all.extend_from_slice(bytes)))
            .unwrap();
    }
    all
}

#[test]
fn data_after_urgent_data_is_read() {
    let mut guest = Guest::new(loopback());
    let (handle, service) = connected(&mut guest);
    for (data, flags) in [
        (&b"ab"[..], SendFlags::empty()),
        (b"c", SendFlags::OOB),
        (b"defg", SendFlags::empty()),
    ] {
        rustix::net::send(&service, data, flags).unwrap();
    }
    let mut all = Vec::new();
    guest.until("all of it", |guest| {
        all.extend(received(guest, handle));
        all.len() == 7
    });
    assert_eq!(all, b"abcdefg");
}

/// A client that sends its request and closes, and is slow with the answer.
#[test]
fn an_answer_waits_for_a_client_that_has_closed() {
    let mut guest = Guest::new(Config {
        publish: vec!["0:80".parse().unwrap()],
        ..Config::default()
    });
    let handle = guest.tcp();
    guest.socket(handle).listen(80).unwrap();
    let mut client = TcpStream::connect(guest.wire.network.published()[0].host).unwrap();
    sockopt::set_socket_recv_buffer_size(&client, 32 << 10).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    client.set_nonblocking(true).unwrap();
    guest.until("a request", |g| {
        g.socket(handle).state() == tcp::State::CloseWait
    });
    // As much as fits on the way.
    let (mut sent, mut still) = (0, 0);
    while still < 100 {
        let data = pattern(100_000);
        let more = guest.socket(handle).send_slice(&data).unwrap();
        sent += more;
        still = if more == 0 { still + 1 } else { 0 };
        guest.poll();
    }
    guest.socket(handle).close();
    let (mut got, mut space) = (0, vec![0; 100_000]);
    let (mut begun, mut ended) = (Instant::now(), false);
    while !ended {
        for _ in 0..4 {
            match client.read(&mut space) {
                Ok(0) => ended = true,
                Ok(length) => {
                    got += length;
                    begun = Instant::now();
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            guest.poll();
        }
        pass(&mut guest, Duration::from_secs(15));
        assert!(begun.elapsed() < PATIENCE, "{got} of {sent}");
    }
    assert_eq!(got, sent);
}

#[test]
fn a_reset_of_the_guest_is_one_for_the_service() {
    let mut guest = Guest::new(loopback());
    let (handle, mut service) = connected(&mut guest);
    guest.socket(handle).send_slice(b"some").unwrap();
    let mut data = [0; 4];
    service.set_nonblocking(true).unwrap();
    guest.until("data", |_| service.read_exact(&mut data).is_ok());
    guest.socket(handle).abort();
    guest.until("its end", |g| g.wire.network.0.connections() == 0);
    service.set_nonblocking(false).unwrap();
    service.set_read_timeout(Some(PATIENCE)).unwrap();
    let end = service.read(&mut data).unwrap_err();
    assert_eq!(end.kind(), ErrorKind::ConnectionReset);
}

/// A service that sends this much, and then closes.
fn sender(guest: &mut Guest, length: usize) -> (SocketHandle, std::thread::JoinHandle<()>) {
    let (handle, mut service) = connected(guest);
    let thread = std::thread::spawn(move || service.write_all(&pattern(length)).unwrap());
    (handle, thread)
}

#[test]
fn a_program_that_reads_nothing_for_minutes_gets_all() {
    let mut guest = Guest::new(loopback());
    let (handle, thread) = sender(&mut guest, 1_000_000);
    for _ in 0..200 {
        guest.poll();
    }
    for _ in 0..10 {
        pass(&mut guest, Duration::from_secs(30));
        for _ in 0..20 {
            guest.poll();
        }
    }
    let mut all = Vec::new();
    guest.until("all of it", |guest| {
        all.extend(received(guest, handle));
        !guest.socket(handle).may_recv()
    });
    thread.join().unwrap();
    assert!(all == pattern(1_000_000), "{}", all.len());
}

#[test]
fn a_slow_reader_gets_all_of_a_service_that_has_closed() {
    let mut guest = Guest::new(loopback());
    let (handle, thread) = sender(&mut guest, 600_000);
    let (mut all, mut space) = (Vec::new(), [0; 3000]);
    let mut begun = Instant::now();
    while guest.socket(handle).may_recv() {
        let length = guest.socket(handle).recv_slice(&mut space).unwrap();
        if length > 0 {
            begun = Instant::now();
        }
        all.extend_from_slice(&space[..length]);
        pass(&mut guest, Duration::from_secs(5));
        assert!(begun.elapsed() < PATIENCE);
    }
    thread.join().unwrap();
    assert!(all == pattern(600_000), "{}", all.len());
}

/// The guest's last data and its end in one segment, when the service has closed already.
#[test]
fn the_last_segment_is_acknowledged() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut raw = Raw::new(loopback());
    let mut service = raw.connect(&listener);
    service.shutdown(Shutdown::Write).unwrap();
    assert_eq!(raw.next().flags & FIN, FIN);
    raw.send(ACK, b"");
    raw.wire.serve();
    raw.send(ACK | FIN, b"the last");
    let answer = raw.next();
    assert_eq!((answer.flags, answer.ack), (ACK, raw.seq));
    let mut text = String::new();
    service.read_to_string(&mut text).unwrap();
    assert_eq!(text, "the last");
    let later = raw.all(Duration::from_millis(30));
    assert!(later.iter().all(|seen| seen.flags & RST == 0), "{later:?}");
}

/// The guest was restarted, and did not close its connections.
#[test]
fn another_driver_ends_what_it_does_not_know() {
    let mut guest = Guest::new(loopback());
    let (handle, mut service) = connected(&mut guest);
    let (known, _service) = connected_again(&mut guest);
    guest.wire.network.detach();
    guest.wire.network.attach(false);
    // smoltcp's reset of one that it does not know.
    guest.sockets.remove(handle);
    service.set_nonblocking(true).unwrap();
    let mut end = None;
    guest.until("a reset", |_| {
        end = service.read(&mut [0]).err().map(|error| error.kind());
        end.is_some_and(|kind| kind != ErrorKind::WouldBlock)
    });
    assert_eq!(end, Some(ErrorKind::ConnectionReset));
    for _ in 0..10 {
        pass(&mut guest, Duration::from_secs(60));
    }
    assert!(guest.socket(known).may_send());
    assert_eq!(guest.wire.network.0.connections(), 1);
}

fn connected_again(guest: &mut Guest) -> (SocketHandle, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let handle = guest.connect(gateway(port), 40_011);
    guest.until("a connection", |g| g.socket(handle).may_send());
    (handle, listener.accept().unwrap().0)
}
