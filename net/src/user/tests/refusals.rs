// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest learns when a datagram cannot arrive, at the port from which it has sent it.

use super::*;

const OTHER: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 8]);
const NET: u8 = 0;
const PORT: u8 = 3;
const PROHIBITED: u8 = 13;

/// A datagram from this card.
fn datagram(hardware: EthernetAddress, from: SocketAddrV4, to: SocketAddrV4) -> Vec<u8> {
    let mut frame = frame::datagram(frame::ROUTER, from, to, b"x", 1500).unwrap();
    frame[6..12].copy_from_slice(hardware.as_bytes());
    frame
}

/// The guest's end with this port.
fn own(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Config::default().guest, port)
}

/// The code with which a datagram from port 5000 does not reach its destination.
fn refusal(guest: &mut Guest, to: SocketAddrV4, patience: Duration) -> Option<u8> {
    guest.wire.send(&datagram(MAC, own(5000), to));
    let frame = guest.wire.wait(patience)?;
    assert_eq!(frame[..6], MAC.0);
    assert_eq!((&frame[12..14], frame[23], frame[34]), (&[8, 0][..], 1, 3));
    assert_eq!(frame[26..30], Config::default().gateway.octets());
    assert_eq!(frame[30..34], Config::default().guest.octets());
    // What it is about: addresses, the protocol and ports.
    let inner = &frame[42..];
    assert_eq!(inner[9], 17);
    assert_eq!(inner[12..16], Config::default().guest.octets());
    assert_eq!(inner[16..20], to.ip().octets());
    assert_eq!(inner[20..22], 5000u16.to_be_bytes());
    assert_eq!(inner[22..24], to.port().to_be_bytes());
    Some(frame[35])
}

#[test]
fn what_is_not_allowed_is_refused_at_once() {
    let mut guest = Guest::new(Config::default());
    let dns = Config::default().dns;
    for (to, expected) in [
        ("10.0.2.2:9", Some(PROHIBITED)),
        ("10.0.2.3:54", Some(PROHIBITED)),
        ("10.0.2.99:9", Some(PROHIBITED)),
        ("127.0.0.1:9", Some(PROHIBITED)),
        ("169.254.169.254:80", Some(PROHIBITED)),
        // There is no name server.
        ("10.0.2.3:53", Some(PORT)),
        // A datagram for many causes no error.
        ("10.0.2.255:9", None),
        ("255.255.255.255:9", None),
        ("224.0.0.251:5353", None),
    ] {
        let to: SocketAddrV4 = to.parse().unwrap();
        let patience = match expected {
            Some(_) => PATIENCE,
            None => Duration::from_millis(50),
        };
        assert_eq!(refusal(&mut guest, to, patience), expected, "{to}");
    }
    // The host has no route to a multicast address.
    let mut guest = Guest::new(Config {
        resolvers: vec!["224.0.0.1:53".parse().unwrap()],
        ..Config::default()
    });
    let to = SocketAddrV4::new(dns, 53);
    let code = refusal(&mut guest, to, Duration::from_millis(50));
    assert!([None, Some(NET)].contains(&code), "{code:?}");
}

/// A lookup then fails at once, and does not wait for an answer.
#[test]
fn a_name_server_that_is_down_is_a_refusal() {
    // No other test has this address, so no other test takes the port.
    let gone = UdpSocket::bind("127.0.0.71:0").unwrap();
    let resolver = gone.local_addr().unwrap();
    drop(gone);
    let mut guest = Guest::new(Config {
        resolvers: vec![resolver],
        ..Config::default()
    });
    let dns = SocketAddrV4::new(Config::default().dns, 53);
    for _ in 0..3 {
        assert_eq!(refusal(&mut guest, dns, PATIENCE), Some(PORT));
    }
    // It works again when there is one.
    let server = UdpSocket::bind(resolver).unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    guest.send(5000, dns, b"query");
    let (_, at) = server.recv_from(&mut [0; 10]).unwrap();
    server.send_to(b"answer", at).unwrap();
    let frame = guest.wire.wait(PATIENCE).unwrap();
    let answer = frame::Kind::Datagram {
        from: dns,
        to: own(5000),
        data: b"answer",
    };
    assert_eq!(frame::kind(&frame), answer);
}

#[test]
fn another_name_server_is_asked_instead_of_one_that_is_down() {
    let gone = UdpSocket::bind("127.0.0.72:0").unwrap();
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut guest = Guest::new(Config {
        resolvers: [&gone, &server].map(|s| s.local_addr().unwrap()).to_vec(),
        ..Config::default()
    });
    drop(gone);
    let dns = SocketAddrV4::new(Config::default().dns, 53);
    assert_eq!(refusal(&mut guest, dns, PATIENCE), Some(PORT));
    guest.send(5000, dns, b"query");
    server.recv_from(&mut [0; 10]).unwrap();
}

/// The host may report the failure at once: at the second of two queries of a C library, or because
/// it has no route to the name server.
#[test]
fn a_name_server_that_fails_at_once_is_asked_no_more() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let gone = UdpSocket::bind("127.0.0.73:0").unwrap();
    let (first, second) = (gone.local_addr().unwrap(), server.local_addr().unwrap());
    drop(gone);
    for first in [first, "255.255.255.255:53".parse().unwrap()] {
        let mut guest = Guest::new(Config {
            resolvers: vec![first, second],
            ..Config::default()
        });
        let dns = SocketAddrV4::new(Config::default().dns, 53);
        for query in [b"one", b"two"] {
            guest.send(5000, dns, query);
        }
        // As the C library does when it is refused, or has waited.
        guest.send(5000, dns, b"again");
        let mut got = [0; 10];
        loop {
            let (length, _) = server.recv_from(&mut got).unwrap();
            if got.get(..length) == Some(b"again") {
                break;
            }
        }
    }
}

/// A bridge inside the guest: another card has another address.
#[test]
fn each_card_gets_its_own_answers() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let to = gateway(server.local_addr().unwrap().port());
    let mut guest = Guest::new(Config {
        publish: vec!["127.0.0.1:0:53/udp".parse().unwrap()],
        ..loopback()
    });
    let published = guest.wire.network.published()[0].host;
    let other = SocketAddrV4::new(Ipv4Addr::new(10, 0, 2, 77), 5000);
    let mut at = Vec::new();
    for (hardware, from) in [(MAC, own(5000)), (OTHER, other)] {
        guest.wire.send(&datagram(hardware, from, to));
        at.push(server.recv_from(&mut [0; 10]).unwrap().1);
    }
    for (hardware, at) in [(MAC, at[0]), (OTHER, at[1]), (MAC, at[0])] {
        server.send_to(b"answer", at).unwrap();
        assert_eq!(guest.wire.wait(PATIENCE).unwrap()[..6], hardware.0);
    }
    // The port leads to the one that has the guest's address.
    server.send_to(b"question", published).unwrap();
    assert_eq!(guest.wire.wait(PATIENCE).unwrap()[..6], MAC.0);
}
