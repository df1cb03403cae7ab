// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which sockets close when a guest sends datagrams from many ports.

use super::super::datagram::Incoming;
use super::super::events::{Events, Source};
use super::super::udp::Datagrams;
use super::bounds::sent;
use super::*;

/// The datagrams of a guest, without its wire.
struct Flows {
    config: Config,
    events: Events,
    datagrams: Datagrams,
    now: Instant,
}

impl Flows {
    fn new(config: Config) -> Self {
        let events = Events::new().unwrap();
        Flows {
            datagrams: Datagrams::new(&config, &events).unwrap(),
            events,
            config,
            now: Instant::now(),
        }
    }

    /// Sends from this port of the guest.
    fn send(&mut self, port: u16, to: SocketAddrV4) {
        let from = SocketAddrV4::new(self.config.guest, port);
        self.now += Duration::from_millis(1);
        self.datagrams
            .outgoing_at(&mut self.config, &self.events, &sent(from, to), self.now);
    }

    /// The guest's ports to which datagrams come, until there are `count`.
    fn heard(&mut self, count: usize, patience: Duration) -> Vec<u16> {
        let (begun, mut ports) = (Instant::now(), Vec::new());
        while ports.len() < count && begun.elapsed() < patience {
            while self.events.take(|source, _| match source {
                Source::Datagrams(id) => self.datagrams.reports(id),
                other => panic!("{other:?}"),
            }) {}
            while self.datagrams.incoming(&mut self.config, |incoming| {
                if let Incoming::Datagram { to, .. } = incoming {
                    ports.push(to.port());
                }
                true
            }) {}
        }
        ports
    }
}

fn server() -> (UdpSocket, u16) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

/// Takes a datagram. Returns the sender.
fn asked(server: &UdpSocket) -> SocketAddr {
    server.recv_from(&mut [0; 10]).unwrap().1
}

#[test]
fn many_questions_do_not_end_a_flow_nor_what_was_asked_last() {
    const MANY: u16 = 1000;
    let (peer, peer_port) = server();
    let (names, _) = server();
    let (others, others_port) = server();
    let mut flows = Flows::new(Config {
        resolvers: vec![names.local_addr().unwrap()],
        ..loopback()
    });
    let dns = SocketAddrV4::new(flows.config.dns, 53);
    // A flow that was answered, and sends again later.
    flows.send(1, gateway(peer_port));
    let at = asked(&peer);
    peer.send_to(b"y", at).unwrap();
    assert_eq!(flows.heard(1, PATIENCE), [1]);
    flows.now += Duration::from_secs(3);
    flows.send(1, gateway(peer_port));
    assert_eq!(asked(&peer), at);
    let mut queries = Vec::new();
    for n in 0..MANY {
        flows.send(1000 + n, dns);
        queries.push(asked(&names));
        flows.send(3000 + n, gateway(others_port));
        asked(&others);
    }
    peer.send_to(b"y", at).unwrap();
    assert_eq!(flows.heard(1, PATIENCE), [1]);
    // The queries that wait longest have ended.
    for at in &queries[queries.len() - 64..] {
        names.send_to(b"y", at).unwrap();
    }
    let heard = flows.heard(64, PATIENCE);
    assert_eq!(heard, Vec::from_iter(1000 + MANY - 64..1000 + MANY));
}

/// A query that was answered closes before one that waits, whatever their age.
#[test]
fn queries_that_were_answered_close_first() {
    let (names, _) = server();
    let mut flows = Flows::new(Config {
        resolvers: vec![names.local_addr().unwrap()],
        ..Config::default()
    });
    let dns = SocketAddrV4::new(flows.config.dns, 53);
    flows.send(1, dns);
    let first = asked(&names);
    for n in 0..200 {
        flows.send(1000 + n, dns);
        names.send_to(b"y", asked(&names)).unwrap();
        assert_eq!(flows.heard(1, PATIENCE), [1000 + n]);
    }
    names.send_to(b"y", first).unwrap();
    assert_eq!(flows.heard(1, PATIENCE), [1]);
}

/// The next one is asked, whichever port the guest repeats its query from.
#[test]
fn a_name_server_that_is_silent_is_given_up() {
    let (first, _) = server();
    let (second, _) = server();
    let mut flows = Flows::new(Config {
        resolvers: [&first, &second].map(|s| s.local_addr().unwrap()).to_vec(),
        ..Config::default()
    });
    let dns = SocketAddrV4::new(flows.config.dns, 53);
    for port in [1, 2] {
        flows.send(port, dns);
        asked(&first);
    }
    flows.now += Duration::from_secs(2);
    for port in [1, 3] {
        flows.send(port, dns);
        second.send_to(b"y", asked(&second)).unwrap();
        assert_eq!(flows.heard(1, PATIENCE), [port]);
    }
    // One that answers stays, also where others are slow.
    for _ in 0..5 {
        flows.now += Duration::from_secs(1);
        flows.send(4, dns);
        let slow = asked(&second);
        flows.send(5, dns);
        second.send_to(b"y", asked(&second)).unwrap();
        assert_eq!(flows.heard(1, PATIENCE), [5]);
        second.send_to(b"y", slow).unwrap();
        assert_eq!(flows.heard(1, PATIENCE), [4]);
    }
    // A query that was lost long ago says nothing.
    flows.send(6, dns);
    asked(&second);
    flows.now += Duration::from_secs(30);
    flows.send(7, dns);
    asked(&second);
    // The host's first choice is asked again after a while.
    flows.now += Duration::from_secs(60);
    flows.send(8, dns);
    asked(&first);
}

/// A process with few descriptors has few sockets, but some of each kind.
#[test]
fn a_network_with_few_sockets_works() {
    let (names, _) = server();
    let (peer, port) = server();
    for datagrams in [0, 4] {
        let mut flows = Flows::new(Config {
            resolvers: vec![names.local_addr().unwrap()],
            datagrams,
            ..loopback()
        });
        let dns = SocketAddrV4::new(flows.config.dns, 53);
        let mut last = Vec::new();
        for n in 0..20 {
            flows.send(1000 + n, dns);
            flows.send(3000 + n, gateway(port));
            last = vec![(&names, asked(&names)), (&peer, asked(&peer))];
        }
        for (server, at) in last {
            server.send_to(b"y", at).unwrap();
        }
        let mut heard = flows.heard(2, PATIENCE);
        heard.sort_unstable();
        assert_eq!(heard, [1019, 3019]);
        assert_eq!(flows.datagrams.sockets(), 4);
    }
}

/// When nearly all sockets are flows, there is still room for another flow.
#[test]
fn no_number_of_flows_keeps_others_out() {
    let (peer, port) = server();
    let mut flows = Flows::new(loopback());
    for n in 0..300 {
        flows.send(1000 + n, gateway(port));
        peer.send_to(b"y", asked(&peer)).unwrap();
        assert_eq!(flows.heard(1, PATIENCE), [1000 + n]);
        flows.now += Duration::from_secs(3);
        flows.send(1000 + n, gateway(port));
        asked(&peer);
    }
    flows.send(9, gateway(port));
    peer.send_to(b"y", asked(&peer)).unwrap();
    assert_eq!(flows.heard(1, PATIENCE), [9]);
}
