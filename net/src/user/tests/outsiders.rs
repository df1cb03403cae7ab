// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The peers outside whose datagrams reach the guest: those that it asked, and those that send to a
//! published port. Each gets its own answers.

use super::super::events::{Events, Source};
use super::super::udp::Datagrams;
use super::bounds::{arp, sent};
use super::limits::many_descriptors;
use super::*;
use skip::skip;

#[path = "../../../../tests/src/skip.rs"]
mod skip;

/// No frame comes within this time.
const QUIET: Duration = Duration::from_millis(300);

fn bound(at: &str) -> Option<UdpSocket> {
    let socket = UdpSocket::bind(at)
        .map_err(|error| println!("no {at} here: {error}"))
        .ok()?;
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    Some(socket)
}

/// An address of this host that is not of the loopback.
pub fn own_address() -> Option<Ipv4Addr> {
    let probe = UdpSocket::bind("0.0.0.0:0").unwrap();
    // This sends nothing: the host reports from which address it would send.
    let own = probe
        .connect("192.0.2.1:9")
        .and_then(|()| probe.local_addr());
    match own.map(|own| own.ip()) {
        Ok(IpAddr::V4(own)) if !own.is_loopback() => Some(own),
        _ => {
            println!("no address but the loopback's here");
            None
        }
    }
}

/// A guest that the network has heard of.
fn guest(config: Config) -> Guest {
    let mut guest = Guest::new(config);
    guest
        .wire
        .send(&arp(Config::default().guest, Config::default().gateway));
    guest.wire.card.frames.clear();
    guest
}

fn publishing(ports: &[&str]) -> Guest {
    guest(Config {
        publish: ports.iter().map(|port| port.parse().unwrap()).collect(),
        ..Config::default()
    })
}

impl Guest {
    /// The next datagram: its sender as the guest sees it, the guest's port and the data.
    fn datagram(&mut self, patience: Duration) -> Option<(SocketAddrV4, u16, Vec<u8>)> {
        let frame = self.wire.wait(patience)?;
        match frame::kind(&frame) {
            frame::Kind::Datagram { from, to, data } => Some((from, to.port(), data.to_vec())),
            other => panic!("no datagram: {other:?}"),
        }
    }
}

/// A socket's answer, and who gave it.
fn answer(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 100];
    let (length, from) = socket.recv_from(&mut buffer).unwrap();
    (buffer[..length].to_vec(), from)
}

#[test]
fn only_those_that_the_guest_asked_reach_it() {
    let mut guest = Guest::new(loopback());
    let (asked, stranger) = (bound("127.0.0.1:0").unwrap(), bound("127.0.0.1:0").unwrap());
    let to = gateway(asked.local_addr().unwrap().port());
    guest.send(5000, to, b"question");
    let (_, port) = answer(&asked);
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port.port()));
    for stranger in [Some(stranger), bound("127.0.0.2:0")].iter().flatten() {
        stranger.send_to(b"attack", at).unwrap();
    }
    let own = own_address().and_then(|own| bound(&format!("{own}:0")).map(|socket| (own, socket)));
    if let Some((own, socket)) = own {
        socket.send_to(b"attack", (own, port.port())).unwrap();
    }
    assert_eq!(guest.datagram(QUIET), None);
    for data in [b"first", b"again"] {
        asked.send_to(data, at).unwrap();
        assert_eq!(guest.datagram(PATIENCE), Some((to, 5000, data.to_vec())));
    }
}

/// This holds also where both use one port, at two addresses that the guest sees as the router.
#[test]
fn each_of_two_clients_gets_its_own_answer() {
    let one = bound("127.0.0.1:0").unwrap();
    let port = one.local_addr().unwrap().port();
    let Some(two) = bound(&format!("127.0.0.2:{port}")) else {
        skip("no port of 127.0.0.2 here");
        return;
    };
    let mut guest = publishing(&["0:53/udp"]);
    let host = guest.wire.network.published()[0].host;
    let mut seen = Vec::new();
    for (client, name) in [(&one, b"one"), (&two, b"two")] {
        client.send_to(name, host).unwrap();
        let (from, to, data) = guest.datagram(PATIENCE).unwrap();
        assert_eq!((to, data), (53, name.to_vec()));
        seen.push(from);
    }
    guest.send(53, seen[0], b"to one");
    guest.send(53, seen[1], b"to two");
    assert_eq!(answer(&one), (b"to one".to_vec(), host));
    assert_eq!(answer(&two), (b"to two".to_vec(), host));
}

#[test]
fn two_published_ports_lead_to_one_port_of_the_guest() {
    let Some(mut clients) = ["127.0.0.1:0", "127.0.0.2:0"]
        .map(bound)
        .into_iter()
        .collect::<Option<Vec<_>>>()
    else {
        skip("no port of 127.0.0.2 here");
        return;
    };
    let mut guest = publishing(&["127.0.0.1:0:53/udp", "127.0.0.2:0:53/udp"]);
    let published = guest.wire.network.published();
    assert_eq!(published.len(), 2);
    // Each client at each port, and one from an address that the guest sees as it is.
    if let Some(own) = own_address().and_then(|own| bound(&format!("{own}:0"))) {
        clients.push(own);
    }
    for client in &clients {
        for port in &published {
            client.send_to(b"question", port.host).unwrap();
            let (from, to, _) = guest.datagram(PATIENCE).unwrap();
            guest.send(to, from, b"answer");
            assert_eq!(answer(client), (b"answer".to_vec(), port.host));
        }
    }
}

#[test]
fn a_port_of_all_addresses_answers_ipv4_clients_too() {
    if bound("[::1]:0").is_none() {
        skip("no IPv6 here");
        return;
    }
    let mut guest = publishing(&["[::]:0:53/udp"]);
    let port = guest.wire.network.published()[0].host.port();
    let own = own_address().map(IpAddr::V4);
    for ip in [
        Some(Ipv4Addr::LOCALHOST.into()),
        Some(Ipv6Addr::LOCALHOST.into()),
        own,
    ] {
        let Some(ip) = ip else { continue };
        let client = bound(&SocketAddr::new(ip, 0).to_string()).unwrap();
        let host = SocketAddr::new(ip, port);
        client.send_to(b"question", host).unwrap();
        let (from, to, _) = guest.datagram(PATIENCE).unwrap();
        guest.send(to, from, b"answer");
        assert_eq!(answer(&client), (b"answer".to_vec(), host));
    }
}

/// Datagrams from outside keep no port open: only the guest's own datagrams do.
#[test]
fn a_socket_by_which_the_guest_is_silent_is_closed() {
    let asked = bound("127.0.0.1:0").unwrap();
    let mut config = loopback();
    let mut events = Events::new().unwrap();
    let mut datagrams = Datagrams::new(&config, &events).unwrap();
    let to = gateway(asked.local_addr().unwrap().port());
    let from = SocketAddrV4::new(config.guest, 5000);
    datagrams.outgoing(&mut config, &events, &sent(from, to));
    let sent = Instant::now();
    let (_, at) = answer(&asked);
    std::thread::sleep(Duration::from_millis(20));
    asked.send_to(b"y", at).unwrap();
    let mut got = 0;
    while got == 0 {
        events.take(|source, _| match source {
            Source::Datagrams(id) => datagrams.reports(id),
            other => panic!("{other:?}"),
        });
        datagrams.incoming(&mut config, |_| {
            got += 1;
            true
        });
        assert!(sent.elapsed() < PATIENCE);
    }
    datagrams.close_idle_at(sent + Duration::from_secs(119));
    assert!(datagrams.may_idle());
    datagrams.close_idle_at(sent + Duration::from_secs(120));
    assert!(!datagrams.may_idle());
}

/// A guest that queries many peers by one socket gets the answers of those that it queried last.
#[test]
fn the_last_ones_that_were_asked_are_heard() {
    many_descriptors();
    let mut guest = Guest::new(loopback());
    let asked: Vec<UdpSocket> = (0..1030).filter_map(|_| bound("127.0.0.1:0")).collect();
    let mut at = None;
    for socket in &asked {
        let to = gateway(socket.local_addr().unwrap().port());
        guest.send(5000, to, b"x");
        at = Some(answer(socket).1);
    }
    for (index, socket) in asked.iter().enumerate() {
        socket.send_to(b"y", at.unwrap()).unwrap();
        // The last 1024 of 1030.
        let heard = index >= 6;
        let patience = if heard { PATIENCE } else { QUIET / 6 };
        assert_eq!(guest.datagram(patience).is_some(), heard, "{index}");
    }
}
