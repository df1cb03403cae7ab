// SPDX-License-Identifier: Apache-2.0 OR MIT
//! No kind of connection takes all resources that others need.

use super::raw::{ACK, Raw, SYN};
use super::*;
use rustix::process::{Resource, getrlimit, setrlimit};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use std::collections::BTreeMap;

/// More descriptors than a process has by default.
pub fn many_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// Clients of a published port that say nothing, whether the guest answers them or not.
#[test]
fn clients_do_not_use_up_the_guest_s_own_connections() {
    many_descriptors();
    // So some have small buffers.
    assert!(Config::default().large_buffers < MAX_TCP / 4 * 3);
    for (answers, most) in [(false, MAX_TCP / 4), (true, MAX_TCP / 4 * 3)] {
        let mut raw = Raw::new(Config {
            publish: vec!["127.0.0.1:0:80".parse().unwrap()],
            ..loopback()
        });
        let host = raw.wire.network.published()[0].host;
        raw.arp(raw.own.ip().octets());
        let mut clients = Vec::new();
        for _ in 0..MAX_TCP + 20 {
            clients.push(TcpStream::connect(host).unwrap());
            let question = loop {
                let segment = raw.next();
                if segment.flags == SYN {
                    break segment;
                }
            };
            if answers {
                raw.other = gateway(question.from);
                raw.ack = question.seq.wrapping_add(1);
                raw.send(SYN | ACK, b"");
                raw.wire.serve();
            }
            assert!(raw.wire.network.0.connections() <= most);
        }
        assert_eq!(raw.wire.network.0.connections(), most);
        raw.wire.card.frames.clear();
        // Those that were idle longest have ended, with a failure.
        assert!(clients[0].read(&mut [0]).is_err());
        clients.last().unwrap().set_nonblocking(true).unwrap();
        let end = clients.last_mut().unwrap().read(&mut [0]).unwrap_err();
        assert_eq!(end.kind(), std::io::ErrorKind::WouldBlock);
        raw.works();
    }
}

/// A connection has small buffers when there are many connections.
#[test]
fn small_buffers_too() {
    echo_through(65_520, 1_000_000, 0);
    echo_through(1500, 300_000, 0);
}

/// The host has no descriptor for a while.
#[test]
fn a_connection_that_could_not_be_accepted_is_accepted_later() {
    let mut guest = Guest::new(Config {
        publish: vec!["0:80".parse().unwrap()],
        ..Config::default()
    });
    let _client = TcpStream::connect(guest.wire.network.published()[0].host).unwrap();
    std::thread::scope(|scope| {
        let wire = &mut guest.wire;
        scope.spawn(move || {
            let rules = BTreeMap::from([(libc::SYS_accept4, vec![])]);
            let full = SeccompAction::Errno(libc::EMFILE.unsigned_abs());
            let filter = SeccompFilter::new(rules, SeccompAction::Allow, full, TargetArch::x86_64);
            let program: BpfProgram = filter.unwrap().try_into().unwrap();
            seccompiler::apply_filter(&program).unwrap();
            wire.serve();
        });
    });
    assert_eq!(guest.wire.network.0.connections(), 0);
    // Only when the network asks for it.
    let mut wait = [rustix::event::PollFd::new(
        &guest.wire.network,
        rustix::event::PollFlags::IN,
    )];
    let timeout = rustix::event::Timespec::try_from(PATIENCE).unwrap();
    assert_eq!(rustix::event::poll(&mut wait, Some(&timeout)), Ok(1));
    guest.wire.serve();
    assert_eq!(guest.wire.network.0.connections(), 1);
}

/// A connection that fills the guest's buffers again and again leaves room for datagrams.
#[test]
fn datagrams_come_through_beside_much_data() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut raw = Raw::new(loopback());
    let mut service = raw.connect(&listener);
    std::thread::spawn(move || while service.write_all(&[0; 100_000]).is_ok() {});
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = gateway(server.local_addr().unwrap().port());
    let own = SocketAddrV4::new(Config::default().guest, 5000);
    let mut query = frame::datagram(frame::ROUTER, own, to, b"query", 1500).unwrap();
    query[6..12].copy_from_slice(MAC.as_bytes());
    let mut rounds = 0;
    for round in 0..200 {
        raw.wire.card.room = Some(2);
        raw.wire.serve();
        while let Some(frame) = raw.wire.card.frames.pop_front() {
            if let frame::Kind::Datagram { data, .. } = frame::kind(&frame) {
                assert_eq!(data, b"answer");
                assert!(rounds <= 10, "{rounds}");
                return;
            }
            raw.read(&frame);
        }
        raw.send(ACK, b"");
        if round == 100 {
            raw.wire.send(&query);
            let (_, peer) = server.recv_from(&mut [0; 10]).unwrap();
            server.send_to(b"answer", peer).unwrap();
        }
        rounds += usize::from(round >= 100);
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("no datagram in {rounds} rounds");
}

#[test]
fn names_are_asked_for_by_connections_too() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut guest = Guest::new(Config {
        resolvers: vec![server.local_addr().unwrap()],
        ..Config::default()
    });
    let dns = Config::default().dns;
    let handle = guest.connect(SocketAddrV4::new(dns, 53), 40_020);
    guest.until("the resolver", |g| g.socket(handle).may_send());
    server.set_nonblocking(true).unwrap();
    server.accept().unwrap();
    let other = guest.connect(SocketAddrV4::new(dns, 54), 40_021);
    guest.until("a refusal", |g| !g.socket(other).is_open());
}
