// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames for an address that this network does not have, or for another one.

use super::bounds::arp;
use super::*;

/// Gives a frame to the network. Returns the frames that answer it.
fn answers(guest: &mut Guest, frame: &[u8]) -> usize {
    guest.wire.card.frames.clear();
    guest.wire.send(frame);
    guest.wire.serve();
    guest.wire.card.frames.len()
}

/// A query for an address that the guest itself has, or wants to have, is a search for others that
/// have it: an answer would mean that there is one.
#[test]
fn the_router_has_no_address_of_the_guest() {
    let config = Config::default();
    let mut guest = Guest::new(config.clone());
    let other = Ipv4Addr::new(10, 0, 2, 77);
    for (from, to, expected) in [
        (config.guest, config.gateway, 1),
        (config.guest, config.dns, 1),
        (config.guest, config.guest, 0),
        (Ipv4Addr::UNSPECIFIED, config.guest, 0),
        (Ipv4Addr::UNSPECIFIED, config.gateway, 0),
        (other, config.guest, 0),
        (config.guest, other, 0),
        (other, config.gateway, 1),
        (other, other, 0),
    ] {
        let got = answers(&mut guest, &arp(from, to));
        assert_eq!(got, expected, "{from} asks for {to}");
    }
}

/// A datagram of the guest to this socket of the host's loopback.
fn question(to: &UdpSocket) -> Vec<u8> {
    let own = SocketAddrV4::new(Config::default().guest, 5003);
    let to = gateway(to.local_addr().unwrap().port());
    let mut frame = frame::datagram(frame::ROUTER, own, to, b"question", 1500).unwrap();
    frame[6..12].copy_from_slice(MAC.as_bytes());
    frame
}

#[test]
fn frames_for_others_go_nowhere() {
    let service = UdpSocket::bind("127.0.0.1:0").unwrap();
    service
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut guest = Guest::new(loopback());
    for (to, arrives) in [
        ([2, 0, 0, 0, 0, 0x99], false),
        ([0xff; 6], false),
        ([1, 0, 0x5e, 0, 0, 1], false),
        (frame::ROUTER.0, true),
    ] {
        let mut frame = question(&service);
        frame[..6].copy_from_slice(&to);
        guest.wire.send(&frame);
        let got = service.recv_from(&mut [0; 100]).is_ok();
        assert_eq!(got, arrives, "{to:x?}");
        // Then the frame that opens a connection, with the same addresses.
        let mut syn = frame[..34].to_vec();
        syn[17] = 40;
        syn[23] = 6;
        syn.extend(40_020u16.to_be_bytes());
        syn.extend(listener.local_addr().unwrap().port().to_be_bytes());
        syn.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 255, 255, 0, 0, 0, 0]);
        guest.wire.send(&syn);
        let begun = Instant::now();
        let mut accepted = listener.accept().is_ok();
        while arrives && !accepted {
            assert!(begun.elapsed() < PATIENCE);
            accepted = listener.accept().is_ok();
        }
        assert_eq!(accepted, arrives, "{to:x?}");
    }
    // Broadcasts are still answered.
    let config = Config::default();
    let mut guest = Guest::new(config.clone());
    assert_eq!(answers(&mut guest, &arp(config.guest, config.gateway)), 1);
}

/// Only the server's own port is the server of leases. The same port at another address is not.
#[test]
fn leases_come_from_the_router_alone() {
    let mut message = vec![0; 240];
    message[..4].copy_from_slice(&[1, 1, 6, 0]);
    message[236..].copy_from_slice(&[0x63, 0x82, 0x53, 0x63]);
    message.extend([53, 1, 1, 255]);
    let mut guest = Guest::new(Config::default());
    let config = Config::default();
    for (to, expected) in [
        (Ipv4Addr::BROADCAST, 1),
        (config.gateway, 1),
        (config.dns, 0),
        (Ipv4Addr::LOCALHOST, 0),
        (Ipv4Addr::new(10, 0, 2, 99), 0),
    ] {
        let from = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68);
        let to_port = SocketAddrV4::new(to, 67);
        let mut frame = frame::datagram(frame::ROUTER, from, to_port, &message, 1500).unwrap();
        frame[6..12].copy_from_slice(MAC.as_bytes());
        if to.is_broadcast() {
            frame[..6].copy_from_slice(&[0xff; 6]);
        }
        assert_eq!(answers(&mut guest, &frame), expected, "{to}");
    }
}

#[test]
fn the_router_answers_pings_for_itself_alone() {
    let config = Config::default();
    let mut guest = Guest::new(config.clone());
    answers(&mut guest, &arp(config.guest, config.gateway));
    for (to, expected) in [
        (config.gateway, 1),
        (config.dns, 1),
        (Ipv4Addr::new(1, 2, 3, 4), 0),
        (Ipv4Addr::new(10, 0, 2, 99), 0),
        (Ipv4Addr::LOCALHOST, 0),
    ] {
        let mut ping = frame::ROUTER.0.to_vec();
        ping.extend(MAC.0);
        ping.extend([8, 0, 0x45, 0, 0, 28, 0, 1, 0x40, 0, 64, 1, 0, 0]);
        ping.extend(config.guest.octets());
        ping.extend(to.octets());
        ping.extend([8, 0, 0, 0, 0, 1, 0, 1]);
        assert_eq!(answers(&mut guest, &ping), expected, "{to}");
    }
}
