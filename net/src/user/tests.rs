// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest made of smoltcp uses the network, with real sockets of the host at the other end.

mod bounds;
mod ends;
mod evictions;
mod hostile;
mod limits;
mod outsiders;
mod published;
mod raw;
mod refusals;
mod resets;
mod retries;
mod strict;

use super::*;
use crate::link::HEADER;
use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant as Moment;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr, Ipv4Cidr};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

const MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 7]);
const PATIENCE: Duration = Duration::from_secs(20);

/// The guest's card: it takes all frames, or none, or this many.
#[derive(Default)]
struct Card {
    frames: VecDeque<Vec<u8>>,
    closed: bool,
    room: Option<usize>,
}

impl Port for Card {
    fn give(&mut self, frame: &mut [u8]) -> bool {
        let takes = !self.closed && self.room != Some(0);
        if takes {
            self.room = self.room.map(|room| room - 1);
            self.frames.push_back(frame[HEADER..].to_vec());
        }
        takes
    }
}

struct Wire {
    network: Network,
    card: Card,
    mtu: usize,
}

impl Wire {
    fn serve(&mut self) {
        self.network.look_at_clock();
        while self.network.look() | self.network.serve(&mut self.card) {}
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        if self.card.frames.is_empty() {
            self.serve();
        }
        self.card.frames.pop_front()
    }

    fn wait(&mut self, patience: Duration) -> Option<Vec<u8>> {
        let begun = Instant::now();
        loop {
            match self.next() {
                None if begun.elapsed() < patience => {
                    std::thread::sleep(Duration::from_micros(200))
                }
                other => return other,
            }
        }
    }

    fn send(&mut self, frame: &[u8]) {
        assert!(self.network.takes());
        self.network.look_at_clock();
        self.network.take(frame, &mut self.card);
        self.network.serve(&mut self.card);
    }
}

struct In(Vec<u8>);
struct Out<'a>(&'a mut Wire);

impl RxToken for In {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Out<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        self.0.send(&frame);
        result
    }
}

impl Device for Wire {
    type RxToken<'a> = In;
    type TxToken<'a> = Out<'a>;

    fn receive(&mut self, _: Moment) -> Option<(In, Out<'_>)> {
        Some((In(self.next()?), Out(self)))
    }

    fn transmit(&mut self, _: Moment) -> Option<Out<'_>> {
        Some(Out(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu + 14;
        capabilities
    }
}

struct Guest {
    wire: Wire,
    interface: Interface,
    sockets: SocketSet<'static>,
    started: Instant,
}

impl Guest {
    fn new(config: Config) -> Guest {
        let (address, gateway, mtu) = (config.guest, config.gateway, usize::from(config.mtu));
        let mut wire = Wire {
            network: Network::new(config).unwrap(),
            card: Card::default(),
            mtu,
        };
        let own = smoltcp::iface::Config::new(HardwareAddress::Ethernet(MAC));
        let mut interface = Interface::new(own, &mut wire, Moment::ZERO);
        interface.update_ip_addrs(|a| a.push(IpCidr::Ipv4(Ipv4Cidr::new(address, 24))).unwrap());
        interface
            .routes_mut()
            .add_default_ipv4_route(gateway)
            .unwrap();
        let sockets = SocketSet::new(Vec::new());
        Guest {
            wire,
            interface,
            sockets,
            started: Instant::now(),
        }
    }

    fn poll(&mut self) {
        let now = Moment::from_micros(i64::try_from(self.started.elapsed().as_micros()).unwrap());
        self.interface.poll(now, &mut self.wire, &mut self.sockets);
        std::thread::sleep(Duration::from_micros(200));
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Guest) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            self.poll();
            assert!(
                begun.elapsed() < PATIENCE,
                "{what}: not within {PATIENCE:?}"
            );
        }
    }

    fn socket(&mut self, handle: SocketHandle) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(handle)
    }

    fn tcp(&mut self) -> SocketHandle {
        let buffer = || tcp::SocketBuffer::new(vec![0; 1 << 18]);
        self.sockets.add(tcp::Socket::new(buffer(), buffer()))
    }

    fn connect(&mut self, to: SocketAddrV4, port: u16) -> SocketHandle {
        let handle = self.tcp();
        let context = self.interface.context();
        self.sockets
            .get_mut::<tcp::Socket<'_>>(handle)
            .connect(context, to, port)
            .unwrap();
        handle
    }

    /// Sends a datagram from this port of the guest.
    fn send(&mut self, from: u16, to: SocketAddrV4, data: &[u8]) -> SocketAddrV4 {
        let own = SocketAddrV4::new(Config::default().guest, from);
        let mut frame = frame::datagram(frame::ROUTER, own, to, data, 1500).unwrap();
        frame[6..12].copy_from_slice(MAC.as_bytes());
        self.wire.send(&frame);
        own
    }

    /// Sends a datagram and waits for the answer.
    fn ask(&mut self, from: u16, to: SocketAddrV4, data: &[u8]) -> Option<(SocketAddrV4, Vec<u8>)> {
        let own = self.send(from, to, data);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) {
            let Some(reply) = self.wire.wait(Duration::from_millis(500)) else {
                break;
            };
            if let frame::Kind::Datagram { from, to, data } = frame::kind(&reply) {
                assert_eq!(to, own);
                return Some((from, data.to_vec()));
            }
        }
        None
    }
}

fn loopback() -> Config {
    Config {
        host_loopback: true,
        ..Config::default()
    }
}

fn gateway(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Config::default().gateway, port)
}

/// Bytes that depend on their position.
fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|i| u8::try_from((i * 31 + i / 251) % 256).unwrap())
        .collect()
}

/// A listener on the loopback that echoes its first connection until that ends.
fn echo() -> (u16, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut copy = stream.try_clone().unwrap();
        std::io::copy(&mut stream, &mut copy).unwrap();
        copy.shutdown(std::net::Shutdown::Write).unwrap();
    });
    (port, thread)
}

fn echo_through(mtu: u16, length: usize, large_buffers: usize) {
    let (port, server) = echo();
    let mut guest = Guest::new(Config {
        mtu,
        large_buffers,
        ..loopback()
    });
    let handle = guest.connect(gateway(port), 40_000);
    let data = pattern(length);
    let (mut sent, mut received) = (0, Vec::new());
    guest.until("echo", |guest| {
        let socket = guest.socket(handle);
        if socket.can_send() && sent < length {
            sent += socket.send_slice(&data[sent..]).unwrap();
            if sent == length {
                socket.close();
            }
        }
        while socket.can_recv() {
            socket
                .recv(|bytes| (bytes.len(), received.extend_from_slice(bytes)))
                .unwrap();
        }
        sent == length && !socket.may_recv() && socket.state() != tcp::State::SynSent
    });
    assert!(
        received == data,
        "{} bytes of {length} came back as they were",
        received.len()
    );
    server.join().unwrap();
}

#[test]
fn a_connection_carries_its_bytes_both_ways() {
    echo_through(65_520, 3_000_000, 1);
}

#[test]
fn a_small_mtu_too() {
    echo_through(1500, 300_000, 1);
}

#[test]
fn a_refusal_is_a_refusal() {
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let mut guest = Guest::new(loopback());
    let handle = guest.connect(gateway(port), 40_001);
    guest.until("refusal", |g| {
        g.socket(handle).state() == tcp::State::Closed
    });
}

#[test]
fn the_host_s_loopback_is_closed_unless_asked_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut guest = Guest::new(Config::default());
    let handle = guest.connect(gateway(port), 40_002);
    guest.until("refusal", |g| {
        g.socket(handle).state() == tcp::State::Closed
    });
    assert!(listener.accept().is_err());
    let outside = |text: &str| Config::default().outside(text.parse().unwrap());
    for inside in [
        "127.0.0.1",
        "169.254.169.254",
        "10.0.2.3",
        "10.0.2.15",
        "10.0.2.200",
        "224.0.0.1",
        "255.255.255.255",
        "0.0.0.0",
        "240.0.0.1",
    ] {
        assert_eq!(outside(inside), None, "{inside}");
    }
    assert!(outside("192.0.2.1").is_some());
    let open = Config {
        link_local: true,
        ..Config::default()
    };
    let metadata = Ipv4Addr::new(169, 254, 169, 254);
    assert_eq!(open.outside(metadata), Some(metadata.into()));
}

#[test]
fn a_published_port_leads_into_the_guest() {
    let publish = vec!["0:80".parse().unwrap()];
    let mut guest = Guest::new(Config {
        publish,
        ..Config::default()
    });
    let host = guest.wire.network.published()[0].host;
    assert_ne!(host.port(), 0);
    let handle = guest.tcp();
    guest.socket(handle).listen(80).unwrap();
    let client = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(host).unwrap();
        stream.write_all(b"hello").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    let mut got = Vec::new();
    guest.until("request", |guest| {
        let socket = guest.socket(handle);
        if socket.can_recv() {
            socket
                .recv(|bytes| (bytes.len(), got.extend_from_slice(bytes)))
                .unwrap();
        }
        got.len() >= 5
    });
    assert_eq!(got, b"hello");
    guest.socket(handle).send_slice(b"world").unwrap();
    guest.socket(handle).close();
    guest.until("answer", |_| client.is_finished());
    assert_eq!(client.join().unwrap(), "world");
}

#[test]
fn a_taken_port_is_an_error_in_a_line() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let publish = vec![format!("{port}:80").parse().unwrap()];
    let message = Network::new(Config {
        publish,
        ..Config::default()
    })
    .unwrap_err()
    .to_string();
    assert!(
        message.contains(&format!("127.0.0.1:{port}/tcp")) && !message.contains('\n'),
        "{message}"
    );
}

#[test]
fn datagrams_find_their_way_back() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut buffer = [0; 2000];
        while let Ok((length, peer)) = server.recv_from(&mut buffer) {
            server.send_to(&buffer[..length], peer).unwrap();
        }
    });
    let mut guest = Guest::new(loopback());
    assert_eq!(
        guest.ask(5000, gateway(port), b"one"),
        Some((gateway(port), b"one".to_vec()))
    );
    assert_eq!(
        guest.ask(5001, gateway(port), b"two"),
        Some((gateway(port), b"two".to_vec()))
    );
}

#[test]
fn name_queries_go_to_the_host_s_resolver() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let resolvers = vec![server.local_addr().unwrap()];
    std::thread::spawn(move || {
        let mut buffer = [0; 2000];
        while let Ok((_, peer)) = server.recv_from(&mut buffer) {
            server.send_to(b"answer", peer).unwrap();
        }
    });
    let mut guest = Guest::new(Config {
        resolvers,
        ..Config::default()
    });
    let dns = SocketAddrV4::new(Config::default().dns, 53);
    assert_eq!(
        guest.ask(5002, dns, b"query"),
        Some((dns, b"answer".to_vec()))
    );
}

#[test]
fn a_published_datagram_port_leads_into_the_guest() {
    let publish = vec!["0:53/udp".parse().unwrap()];
    let mut guest = Guest::new(Config {
        publish,
        ..Config::default()
    });
    // The network learns the guest's address from what the guest sends.
    assert_eq!(guest.ask(1, gateway(9), b"x"), None);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client
        .send_to(b"ping", guest.wire.network.published()[0].host)
        .unwrap();
    let frame = guest.wire.wait(PATIENCE).unwrap();
    let frame::Kind::Datagram { from, to, data } = frame::kind(&frame) else {
        panic!("no datagram")
    };
    assert_eq!((to.port(), data), (53, b"ping".as_slice()));
    assert_eq!(*from.ip(), Config::default().gateway);
    let mut reply = frame::datagram(frame::ROUTER, to, from, b"pong", 1500).unwrap();
    reply[6..12].copy_from_slice(MAC.as_bytes());
    guest.wire.send(&reply);
    let mut buffer = [0; 10];
    let (length, peer) = client.recv_from(&mut buffer).unwrap();
    assert_eq!(
        (&buffer[..length], peer),
        (b"pong".as_slice(), guest.wire.network.published()[0].host)
    );
}

#[test]
fn garbage_is_survived() {
    let mut guest = Guest::new(loopback());
    for seed in 0..3000usize {
        let frame: Vec<u8> = (0..seed % 90 + 1)
            .map(|i| pattern(200)[(seed * 7 + i * 13) % 200])
            .collect();
        guest.wire.send(&frame);
    }
    let (port, server) = echo();
    let handle = guest.connect(gateway(port), 40_003);
    guest.until("a connection after garbage", |g| {
        g.socket(handle).may_send()
    });
    guest.socket(handle).close();
    guest.until("end", |_| server.is_finished());
}
