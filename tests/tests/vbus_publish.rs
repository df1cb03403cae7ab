// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ports of the host that a vbusd publishes for a client of its user-mode network, which is a guest
//! here. They are ports of this host's loopback.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::program::{self, Ends};
use paravane_tests::vbusd::Vbusd;
use paravane_tests::{linux, source_root};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// What the guest serves.
const BYTES: usize = 3_000_000;

/// Ports that were free a moment ago.
fn free_ports() -> [u16; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    [
        listener.local_addr().unwrap().port(),
        socket.local_addr().unwrap().port(),
    ]
}

/// A vbusd with a network that has these attributes, on the bus `lan`.
fn vbusd(attributes: &[&str]) -> Vbusd {
    let vbusd = Vbusd::start(&["lan"]);
    let words = ["create-device", "net", "venet-user"];
    vbusd.done(&[&words, attributes].concat());
    vbusd.done(&["link", "lan", "net"]);
    vbusd
}

/// A guest on it that serves a file over TCP, and answers over UDP.
fn serve(vbusd: &Vbusd, folder: &Path, mtu: u16) -> Ends {
    let script = format!(
        "ip link set eth0 mtu {mtu} up || exit 9
        printf '#!/bin/sh\ntest $1 != bound || echo $ip $mtu' > /tmp/lease && chmod +x /tmp/lease
        lease=$(udhcpc -n -q -i eth0 -O mtu -s /tmp/lease 2>/dev/null)
        ip addr add 10.0.2.15/24 dev eth0
        httpd -p 80 -h /mnt && echo ready $lease && exec /mnt/udp 7"
    );
    let volume = format!("{}:/mnt:ro", folder.display());
    let words = [
        "--net",
        "bus:lan/net",
        "--timeout",
        "120",
        "--volume",
        &volume,
    ];
    let mut command = vbusd.machine(&[&words[..], &["--", "sh", "-c", &script]].concat());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let expected = format!("ready 10.0.2.15 {mtu}\n");
    assert_eq!(program::first_line(&mut child), expected);
    Ends(child)
}

/// The file, as a program of the host gets it.
fn fetch(port: u16) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /file HTTP/1.0\r\n\r\n").ok()?;
    let mut all = Vec::new();
    stream.read_to_end(&mut all).ok()?;
    let head = all.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some(all.split_off(head + 4)).filter(|file| file.len() == BYTES)
}

/// What the guest answers to a datagram.
fn ask(port: u16) -> Option<String> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let wait = Some(Duration::from_millis(200));
    socket.set_read_timeout(wait).unwrap();
    socket.send_to(b"hello", ("127.0.0.1", port)).ok()?;
    let mut bytes = [0; 64];
    let length = socket.recv(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

/// Tries until there is an answer.
fn until<T>(what: &str, attempt: impl Fn() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Refused in a line with this part, and nothing has changed.
fn refused(vbusd: &Vbusd, words: &[&str], part: &str) {
    let before = vbusd.done(&["show", "net", "publish"]);
    let run = vbusd.administer(words);
    let lines = run.stderr.lines().count();
    assert!(run.code != 0 && lines == 1, "{words:?}: {run:?}");
    assert!(run.stderr.contains(part), "{words:?}: {run:?}");
    assert_eq!(vbusd.done(&["show", "net", "publish"]), before);
}

/// A program of the host reaches a guest by TCP and UDP, also by long frames, and again after vbusd
/// was killed. The ports are closed while there is no guest.
#[test]
fn published_ports_lead_to_the_client_of_a_network() {
    let folder = tempfile::tempdir().unwrap();
    let data: Vec<u8> = (0..BYTES)
        .map(|n| u8::try_from(n * n / 7 % 251).unwrap())
        .collect();
    std::fs::write(folder.path().join("file"), &data).unwrap();
    let udp = source_root().join("tests/guest/udp");
    linux::compile(&udp, &folder.path().join("udp"));
    for mtu in [1500, 9000] {
        let [tcp, udp] = free_ports();
        let publish = format!("publish={tcp}:80,127.0.0.1:{udp}:7/udp");
        let mut vbusd = vbusd(&[&publish, &format!("mtu={mtu}")]);
        assert!(fetch(tcp).is_none(), "nobody is there");
        let machine = serve(&vbusd, folder.path(), mtu);
        for is_again in [false, true] {
            if is_again {
                vbusd.kill();
                assert!(fetch(tcp).is_none(), "vbusd is away");
                vbusd.again();
            }
            assert!(until("no file", || fetch(tcp)) == data);
            assert_eq!(until("no answer", || ask(udp)), "HELLO");
        }
        drop(machine);
        until("the port stays", || {
            TcpListener::bind(("127.0.0.1", tcp)).ok()
        });
    }
}

#[test]
fn what_cannot_be_published_is_refused_in_a_line() {
    let [tcp, udp] = free_ports();
    let vbusd = vbusd(&[]);
    let set = |value: &str| format!("publish={value}");
    for (value, part) in [
        ("80", "expected HOST:GUEST"),
        ("8080:80,", "expected HOST:GUEST"),
        ("8080:0", "the guest's port is 1 to 65535"),
        ("0:80", "the host's port is 1 to 65535 here"),
        ("8080:80/icmp", "expected tcp or udp"),
        ("nowhere:8080:80", "nowhere is not an IP address"),
        ("192.0.2.1:8080:80", "cannot publish 192.0.2.1:8080/tcp"),
    ] {
        refused(&vbusd, &["set", "net", &set(value)], part);
    }
    // The second of the same port.
    let twice = format!("{tcp}:80,{tcp}:81");
    let taken = format!("cannot publish 127.0.0.1:{tcp}/tcp");
    refused(&vbusd, &["set", "net", &set(&twice)], &taken);
    let listener = TcpListener::bind(("127.0.0.1", tcp)).unwrap();
    let good = format!("{udp}:7/udp,{tcp}:80");
    refused(&vbusd, &["set", "net", &set(&good)], &taken);
    drop(listener);
    vbusd.done(&["set", "net", &set(&good)]);
    assert_eq!(vbusd.done(&["show", "net", "publish"]).trim(), good);
    // It was only tried.
    let listener = TcpListener::bind(("127.0.0.1", tcp)).unwrap();
    let words = ["--net", "bus:lan/net", "--timeout", "60", "--", "true"];
    let run = program::finish(&mut vbusd.machine(&words));
    assert!(run.code != 0 && run.stderr.contains(&taken), "{run:?}");
    drop(listener);
    // A port leads to one client, and stays while it is there.
    let sleep = ["sh", "-c", "echo up; sleep 60"];
    let mut command = vbusd.machine(&[&words[..5], &sleep].concat());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    assert_eq!(program::first_line(&mut child), "up\n");
    let machine = Ends(child);
    let run = program::finish(&mut vbusd.machine(&words));
    let full = run.stderr.contains("1 of 1 possible clients");
    assert!(run.code != 0 && full, "{run:?}");
    let leave = "its clients must leave first";
    refused(&vbusd, &["set", "net", "publish="], leave);
    refused(&vbusd, &["set", "net", "mtu=576"], leave);
    drop(machine);
    until("the client stays", || {
        let run = vbusd.administer(&["set", "net", "publish="]);
        (run.code == 0).then_some(())
    });
    for bad in ["mtu=575", "mtu=9001", "mtu="] {
        refused(&vbusd, &["set", "net", bad], "576 to 9000 bytes are");
    }
}
