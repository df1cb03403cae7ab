// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A published UDP port lets the guest reach only programs that have sent to it.

use super::outsiders::own_address;
use super::*;
use crate::{Protocol, Received, passt};

/// A port that leads into the guest does not lead from the guest to the host's own services.
#[test]
fn a_published_datagram_port_reaches_no_other_program_of_the_host() {
    let mut guest = Guest::new(Config {
        publish: vec!["0:53/udp".parse().unwrap(), "0:80".parse().unwrap()],
        ..Config::default()
    });
    let services = ["127.0.0.1:0", "[::1]:0"].map(|at| UdpSocket::bind(at).ok());
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let published = guest
        .wire
        .network
        .published()
        .into_iter()
        .find(|p| p.protocol == Protocol::Udp);
    let host = published.unwrap().host;
    let send = |guest: &mut Guest, to: u16, data: &[u8]| {
        let own = SocketAddrV4::new(Config::default().guest, 53);
        let mut frame = frame::datagram(frame::ROUTER, own, gateway(to), data, 1500).unwrap();
        frame[6..12].copy_from_slice(MAC.as_bytes());
        guest.wire.send(&frame);
    };
    let port = |socket: &UdpSocket| socket.local_addr().unwrap().port();
    for round in 0..2 {
        // Before anything came in, and when there is a program to answer.
        for service in services.iter().flatten() {
            send(&mut guest, port(service), b"attack");
        }
        client.send_to(b"ping", host).unwrap();
        // Refusals come before.
        while !matches!(
            frame::kind(&guest.wire.wait(PATIENCE).unwrap()),
            frame::Kind::Datagram { data: b"ping", .. }
        ) {}
        send(&mut guest, port(&client), b"pong");
        let mut buffer = [0; 10];
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        // An answer comes after the data sent before it.
        let (length, from) = client.recv_from(&mut buffer).unwrap();
        assert_eq!(
            (&buffer[..length], from),
            (b"pong".as_slice(), host),
            "{round}"
        );
        for service in services.iter().flatten() {
            service.set_nonblocking(true).unwrap();
            let got = service
                .recv_from(&mut buffer)
                .map(|(length, _)| buffer[..length].to_vec());
            assert!(got.is_err(), "round {round}: the guest has sent {got:?}");
        }
    }
    // Neither may the guest reach a service through the port of a published connection.
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    service.set_nonblocking(true).unwrap();
    let to = gateway(service.local_addr().unwrap().port());
    let handle = guest.connect(to, 80);
    guest.until("a refusal", |g| !g.socket(handle).is_open());
    assert!(service.accept().is_err());
}

/// Programs that listen on all addresses often trust the loopback. Packets of the guest to another
/// address of this host must not come from there.
#[test]
fn a_published_datagram_port_does_not_pass_for_a_program_of_the_host() {
    let Some(own) = own_address() else {
        return;
    };
    for publish in [
        "127.0.0.1:0:53/udp",
        "[::ffff:127.0.0.1]:0:53/udp",
        "[::1]:0:53/udp",
    ] {
        let publish: crate::Publish = publish.parse().unwrap();
        if UdpSocket::bind(publish.host).is_err() {
            println!("no {publish} here");
            continue;
        }
        let mut guest = Guest::new(Config {
            publish: vec![publish],
            ..Config::default()
        });
        assert_eq!(guest.ask(1, gateway(9), b"x"), None);
        let service = UdpSocket::bind("0.0.0.0:0").unwrap();
        service.set_read_timeout(Some(PATIENCE)).unwrap();
        let to = SocketAddrV4::new(own, service.local_addr().unwrap().port());
        guest.send(53, to, b"attack");
        let mut buffer = [0; 10];
        let (length, seen) = service.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"attack");
        assert_eq!(
            seen.ip(),
            IpAddr::V4(own),
            "{publish}: the guest passes for a program of this host"
        );
        // The answer of the program reaches the guest's port.
        service.send_to(b"answer", seen).unwrap();
        let answer = guest.wire.wait(PATIENCE).unwrap();
        let frame::Kind::Datagram {
            from: who,
            to: port,
            data,
        } = frame::kind(&answer)
        else {
            panic!("no datagram")
        };
        let guest = SocketAddrV4::new(Config::default().guest, 53);
        assert_eq!((who, port, data), (to, guest, &b"answer"[..]));
    }
}

/// The guest sees every program of this host as the router. Its answer goes to the program that
/// sent the query.
#[test]
fn answers_find_whichever_address_of_the_loopback_asked() {
    for (publish, from) in [
        ("127.0.0.1:0:53/udp", "127.0.0.2:0"),
        ("[::1]:0:53/udp", "[::1]:0"),
    ] {
        let Ok(client) = UdpSocket::bind(from) else {
            println!("no {from} here");
            continue;
        };
        let mut guest = Guest::new(Config {
            publish: vec![publish.parse().unwrap()],
            ..Config::default()
        });
        assert_eq!(guest.ask(1, gateway(9), b"x"), None);
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let host = guest.wire.network.published()[0].host;
        client.send_to(b"ping", host).unwrap();
        let frame = guest.wire.wait(PATIENCE).unwrap();
        let frame::Kind::Datagram { from, to, .. } = frame::kind(&frame) else {
            panic!("no datagram")
        };
        let mut reply = frame::datagram(frame::ROUTER, to, from, b"pong", 1500).unwrap();
        reply[6..12].copy_from_slice(MAC.as_bytes());
        guest.wire.send(&reply);
        let mut buffer = [0; 10];
        let (length, peer) = client.recv_from(&mut buffer).unwrap();
        assert_eq!(
            (&buffer[..length], peer),
            (b"pong".as_slice(), host),
            "{publish}"
        );
    }
}

/// Published ports with passt, if it runs here.
#[test]
fn nor_by_passt() {
    let Some(program) = passt::find() else {
        println!("no passt here");
        return;
    };
    let port = |socket: &UdpSocket| socket.local_addr().unwrap().port();
    let free = UdpSocket::bind("127.0.0.1:0")
        .map(|socket| port(&socket))
        .unwrap();
    let config = Config {
        publish: vec![format!("{free}:53/udp").parse().unwrap()],
        ..Config::default()
    };
    let (mut link, _process) = match passt::start(&program, &config, MAC.0) {
        Ok(started) => started,
        Err(error) => {
            println!("passt does not run here: {error}");
            return;
        }
    };
    let service = UdpSocket::bind("127.0.0.1:0").unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    for socket in [&service, &client] {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    client.send_to(b"ping", ("127.0.0.1", free)).unwrap();
    // The address at which the guest sees the host's loopback.
    let begun = Instant::now();
    let (host, guest) = loop {
        assert!(begun.elapsed() < PATIENCE, "passt passes nothing on");
        if let Ok(Received::Frame(frame)) = link.receive() {
            if let frame::Kind::Datagram {
                from,
                to,
                data: b"ping",
            } = frame::kind(frame)
            {
                break (from, to);
            }
        } else {
            let mut wait = [rustix::event::PollFd::new(
                &link,
                rustix::event::PollFlags::IN,
            )];
            let timeout = rustix::event::Timespec::try_from(PATIENCE).unwrap();
            // The loop checks all conditions again, whatever ended the wait.
            let _ = rustix::event::poll(&mut wait, Some(&timeout));
        }
    };
    assert_eq!(host.port(), port(&client));
    let attack = [
        *host.ip(),
        config.gateway,
        Ipv4Addr::LOCALHOST,
        Ipv4Addr::UNSPECIFIED,
    ];
    let attack = attack.map(|ip| (SocketAddrV4::new(ip, port(&service)), &b"attack"[..]));
    for (to, data) in attack.into_iter().chain([(host, &b"pong"[..])]) {
        let mut frame = frame::datagram(frame::ROUTER, guest, to, data, 1500).unwrap();
        frame[6..12].copy_from_slice(MAC.as_bytes());
        assert!(link.send(&frame).unwrap());
    }
    link.flush().unwrap();
    let mut buffer = [0; 10];
    let (length, _) = client.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"pong");
    service.set_nonblocking(true).unwrap();
    let got = service
        .recv_from(&mut buffer)
        .map(|(length, _)| buffer[..length].to_vec());
    assert!(got.is_err(), "the guest has sent {got:?}");
}
