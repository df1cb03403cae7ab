// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds on waiting data: how much waits, and for how long.

use super::super::datagram::{Incoming, Sent};
use super::super::events::{Events, Source};
use super::super::udp::Datagrams;
use super::*;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetFrame, EthernetProtocol, EthernetRepr,
};

/// A query to the router, which answers each.
fn question(config: &Config) -> Vec<u8> {
    arp(config.guest, config.gateway)
}

/// The query of a guest with the first address for the second one.
pub fn arp(from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let arp = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr: MAC,
        source_protocol_addr: from,
        target_hardware_addr: EthernetAddress([0; 6]),
        target_protocol_addr: to,
    };
    let ethernet = EthernetRepr {
        src_addr: MAC,
        dst_addr: EthernetAddress::BROADCAST,
        ethertype: EthernetProtocol::Arp,
    };
    let mut bytes = vec![0; ethernet.buffer_len() + arp.buffer_len()];
    let mut frame = EthernetFrame::new_unchecked(bytes.as_mut_slice());
    ethernet.emit(&mut frame);
    arp.emit(&mut ArpPacket::new_unchecked(frame.payload_mut()));
    bytes
}

/// A guest that only sends cannot make the monitor use more memory than the bound.
#[test]
fn a_guest_that_takes_nothing_fills_no_memory() {
    // As long as an IPv4 packet can be, and answered by one of the same length.
    let mut ping = vec![0; 65_000];
    ping[..6].copy_from_slice(frame::ROUTER.as_bytes());
    ping[6..12].copy_from_slice(MAC.as_bytes());
    ping[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0xfd, 0xda, 0, 1, 0x40, 0, 64, 1]);
    ping[26..34].copy_from_slice(&[10, 0, 2, 15, 10, 0, 2, 2]);
    ping[34] = 8;
    for (frame, most) in [(question(&Config::default()), 256), (ping, 18)] {
        let mut network = Network::new(Config::default()).unwrap();
        let mut card = Card::default();
        // The stack must know where the answers go.
        network.take(&question(&Config::default()), &mut card);
        card.closed = true;
        let mut taken = 0;
        while network.takes() {
            network.take(&frame, &mut card);
            network.serve(&mut card);
            taken += 1;
            assert!(taken <= most, "{taken} answers wait");
        }
        assert!(taken > most / 2, "{taken}");
        // They are all there when the guest takes them.
        card.closed = false;
        card.frames.clear();
        network.serve(&mut card);
        assert_eq!(card.frames.len(), taken);
        assert!(network.takes());
    }
}

/// A connection to a service of the test.
pub fn connected(guest: &mut Guest) -> (SocketHandle, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let handle = guest.connect(gateway(port), 40_010);
    guest.until("a connection", |g| g.socket(handle).may_send());
    (handle, listener.accept().unwrap().0)
}

#[test]
fn an_idle_connection_stays() {
    let mut guest = Guest::new(loopback());
    let (handle, mut service) = connected(&mut guest);
    for round in 0..3 {
        guest.wire.network.0.pass(Duration::from_secs(1000));
        guest.poll();
        service.write_all(b"x").unwrap();
        guest.until("a byte", |g| g.socket(handle).can_recv());
        let mut byte = [0];
        assert_eq!(guest.socket(handle).recv_slice(&mut byte), Ok(1), "{round}");
        // Until the guest has acknowledged it, which it does after 10 ms.
        let begun = Instant::now();
        let mut polls = 0;
        while polls < 50 || begun.elapsed() < Duration::from_millis(50) {
            guest.poll();
            polls += 1;
        }
    }
    // Its end is an end, too, and no failure.
    guest.wire.network.0.pass(Duration::from_secs(1000));
    drop(service);
    guest.until("the end", |g| {
        g.socket(handle).state() == tcp::State::CloseWait
    });
}

/// A guest that does not answer any more keeps nothing for ever.
#[test]
fn a_guest_that_is_silent_loses_its_connections() {
    for (closed, stuck) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut guest = Guest::new(loopback());
        let (_, mut service) = connected(&mut guest);
        if closed {
            drop(service);
        } else {
            service.write_all(b"x").unwrap();
        }
        // The guest does not read its data, or has no buffer for it.
        guest.wire.card.closed = stuck;
        let begun = Instant::now();
        while guest.wire.network.0.connections() > 0 {
            assert!(begun.elapsed() < PATIENCE);
            guest.wire.serve();
            guest.wire.card.frames.clear();
            guest.wire.network.0.pass(Duration::from_secs(30));
        }
    }
}

/// Connections that clients close first, one after the other, do not fill the table.
#[test]
fn a_connection_that_has_ended_is_forgotten() {
    let mut guest = Guest::new(loopback());
    let begun = Instant::now();
    for _ in 0..2 {
        let (handle, service) = connected(&mut guest);
        drop(service);
        guest.until("the other end's close", |g| !g.socket(handle).may_recv());
        guest.socket(handle).close();
        guest.until("the end", |g| g.wire.network.0.connections() == 0);
        guest.until("its end", |g| !g.socket(handle).is_open());
        guest.sockets.remove(handle);
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{begun:?}");
}

/// A program that waits for an acknowledgement before it sends the rest: the worst case for one
/// that is delayed. The acknowledgement is delayed a few times, and then no longer.
#[test]
fn a_program_that_waits_for_acknowledgements_soon_gets_them() {
    let late = late_acknowledgements(loopback());
    assert!((1..=8).contains(&late), "{late}");
    let at_once = Config {
        ack_delay: false,
        ..loopback()
    };
    assert_eq!(late_acknowledgements(at_once), 0);
}

/// The acknowledgements that came late, for a program that waits for 200.
fn late_acknowledgements(config: Config) -> u32 {
    let mut guest = Guest::new(config);
    let (handle, mut service) = connected(&mut guest);
    let server = std::thread::spawn(move || {
        let mut pair = [0; 2];
        while service.read_exact(&mut pair).is_ok() {
            service.write_all(b"!").unwrap();
        }
    });
    guest.socket(handle).set_nagle_enabled(true);
    const TIMES: u32 = 200;
    for _ in 0..TIMES {
        guest.socket(handle).send_slice(b"a").unwrap();
        guest.poll();
        // Waits for the acknowledgement of the first byte.
        guest.socket(handle).send_slice(b"b").unwrap();
        guest.until("an answer", |g| g.socket(handle).can_recv());
        guest.socket(handle).recv_slice(&mut [0; 9]).unwrap();
    }
    let late = guest.wire.network.0.late_acknowledgements();
    println!("{late} of {TIMES} acknowledgements came late");
    guest.socket(handle).close();
    guest.until("the end", |_| server.is_finished());
    late
}

/// A program that is asked and answers needs no frame that only acknowledges.
#[test]
fn answers_take_acknowledgements_along() {
    let mut guest = Guest::new(Config {
        publish: vec!["0:80".parse().unwrap()],
        ..Config::default()
    });
    let host = guest.wire.network.published()[0].host;
    let handle = guest.tcp();
    guest.socket(handle).listen(80).unwrap();
    const TIMES: usize = 50;
    let client = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(host).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut answer = [0; 6];
        for _ in 0..TIMES {
            stream.write_all(b"request").unwrap();
            stream.read_exact(&mut answer).unwrap();
        }
    });
    guest.until("the end", |guest| {
        let socket = guest.socket(handle);
        if socket.can_recv() {
            socket.recv(|bytes| (bytes.len(), ())).unwrap();
            socket.send_slice(b"answer").unwrap();
        }
        client.is_finished()
    });
    client.join().unwrap();
    let late = guest.wire.network.0.late_acknowledgements();
    // On a busy host the next request may come late.
    println!("{late} of {TIMES} acknowledgements came alone");
    assert!(late < 5, "{late}");
}

/// A datagram of the guest's own card.
pub fn sent(from: SocketAddrV4, to: SocketAddrV4) -> Sent<'static> {
    Sent {
        hardware: MAC,
        from,
        to,
        data: b"x",
    }
}

/// Answers that wait while the guest takes nothing. Its new sockets close old ones, and data that
/// waited for those is dropped with them.
#[test]
fn sockets_that_are_closed_wait_for_nothing() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut config = loopback();
    let mut events = Events::new().unwrap();
    let mut datagrams = Datagrams::new(&config, &events).unwrap();
    let to = gateway(server.local_addr().unwrap().port());
    let mut buffer = [0; 10];
    for round in 0..2000u16 {
        let from = SocketAddrV4::new(config.guest, 1000 + round % 300);
        datagrams.outgoing(&mut config, &events, &sent(from, to));
        let (_, peer) = server.recv_from(&mut buffer).unwrap();
        server.send_to(b"y", peer).unwrap();
        while events.take(|source, _| match source {
            Source::Datagrams(id) => datagrams.reports(id),
            other => panic!("{other:?}"),
        }) {}
        assert!(datagrams.waiting() <= MAX_UDP, "round {round}");
    }
    assert!(datagrams.waiting() > MAX_UDP / 2);
    // All that wait are there, and then none.
    let mut got = 0;
    while datagrams.incoming(&mut config, |incoming| {
        assert!(matches!(incoming, Incoming::Datagram { data: b"y", .. }));
        got += 1;
        true
    }) {}
    assert!(got > MAX_UDP / 2, "{got}");
    assert_eq!(datagrams.waiting(), 0);
}
