// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The networks of `paravane run`, each with a real guest. They use only this host's loopback and a
//! namespace of the test.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::own_net::in_namespace;
use paravane_tests::program::{self, Ends};
use paravane_tests::{linux, source_root, vm};
use std::io::{Read, Write};
use std::iter;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

fn run(words: &[&str], script: &str) -> program::Run {
    // A network that loses the end of a connection must not block the test for ever.
    let more = ["--timeout", "60", "--", "sh", "-c", script];
    program::finish(&mut vm::command(words.iter().copied().chain(more)))
}

/// The kinds of user-mode network of this host. Every host has the stack.
fn kinds() -> Vec<&'static str> {
    let passt = run(&["--net", "passt"], "true");
    if passt.code == 0 {
        return vec!["user", "stack", "passt", "venet", "venet-passt"];
    }
    eprintln!("without passt: {}", passt.stderr);
    vec!["user", "stack", "venet"]
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Starts a machine that runs until it is ended.
fn start(words: &[&str], script: &str) -> Ends {
    let more = ["--", "sh", "-c", script];
    let mut command = vm::command(words.iter().copied().chain(more));
    Ends(
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    )
}

/// A server on the loopback that answers in capitals. Returns its port, and a channel with a
/// message for each connection.
fn server() -> (u16, std::sync::mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (came, connections) = channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = came.send(());
            let mut text = String::new();
            let _ = stream.read_to_string(&mut text);
            let _ = stream.write_all(text.to_uppercase().as_bytes());
        }
    });
    (port, connections)
}

#[test]
fn addresses_come_by_themselves_and_by_dhcp() {
    for kind in kinds() {
        // A program that sends before the link is up must repeat it a second later.
        let script = "read state < /sys/class/net/eth0/operstate; echo $state; \
            ip -4 addr show eth0 | grep -o 'inet [0-9./]*'; ip route | grep default; \
            grep -c '^nameserver' /etc/resolv.conf; \
                      udhcpc -f -n -q -i eth0 -s /bin/true 2>&1 | grep obtained";
        let done = run(&["--net", kind], script);
        let lines: Vec<&str> = done.stdout.lines().collect();
        assert_eq!(
            lines.get(..2),
            Some(&["up", "inet 10.0.2.15/24"][..]),
            "{kind}: {done:?}"
        );
        assert!(
            lines[2].starts_with("default via 10.0.2.2 dev eth0"),
            "{kind}: {done:?}"
        );
        assert!(lines[4].contains("10.0.2.15"), "{kind}: {done:?}");
    }
}

#[test]
fn the_host_s_loopback_is_reached_only_when_asked_for() {
    for kind in kinds() {
        let (port, connections) = server();
        let ask = format!("echo hello | nc -w 20 10.0.2.2 {port}");
        let open = run(&["--net", &format!("{kind},loopback")], &ask);
        assert_eq!(
            (open.code, open.stdout.as_str()),
            (0, "HELLO\n"),
            "{kind}: {open:?}"
        );
        connections.recv_timeout(PATIENCE).unwrap();
        let closed = run(&["--net", kind], &ask);
        assert_ne!(closed.code, 0, "{kind}: {closed:?}");
        assert!(connections.try_recv().is_err(), "{kind}");
    }
}

#[test]
fn published_ports_lead_into_the_guest() {
    for kind in kinds() {
        let tcp = free_port();
        let words = ["--net", kind, "--publish", &format!("{tcp}:80")];
        let _machine = start(&words, "while :; do nc -l -p 80 -e echo hi; done");
        let begun = Instant::now();
        let mut text = String::new();
        // Until a program in the guest listens, connections end at once.
        while text.is_empty() && begun.elapsed() < PATIENCE {
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", tcp)) {
                let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
                let _ = stream.read_to_string(&mut text);
            }
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(text, "hi\n", "{kind}");
    }
}

/// KiB of private memory of a process.
fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    field
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap()
}

/// Each of the first connections has buffers of half a MiB. No client is reset in favour of
/// another.
#[test]
fn what_many_connections_took_is_given_back() {
    let port = free_port();
    let words = ["--net", "stack", "--publish", &format!("{port}:80")];
    let machine = start(
        &words,
        "mkdir /w; echo hi > /w/index.html; httpd -f -p 80 -h /w",
    );
    // Answered, and open at this end.
    let ask = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        text.ends_with("hi\n").then_some(stream)
    };
    let begun = Instant::now();
    while ask().is_none() {
        assert!(begun.elapsed() < PATIENCE, "no program listens");
        thread::sleep(Duration::from_millis(20));
    }
    let before = memory(machine.0.id());
    let mut most = 0;
    for count in [150, 450, 150, 150] {
        let all: Vec<TcpStream> = (0..count).map(|_| ask().unwrap()).collect();
        most = most.max(memory(machine.0.id()));
        assert!(all.iter().all(|one| one.take_error().unwrap().is_none()));
        drop(all);
    }
    assert!(
        most > before + (32 << 10),
        "{before} {most}: no memory was used, so nothing is shown"
    );
    let begun = Instant::now();
    while memory(machine.0.id()) > before + (12 << 10) {
        let now = memory(machine.0.id());
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "KiB: {before}, {most}, and then {now}"
        );
        thread::sleep(Duration::from_millis(100));
    }
    println!("KiB: {before}, {most}, {} again", memory(machine.0.id()));
}

/// Each client gets its own answers, of any length.
#[test]
fn published_datagrams_lead_into_the_guest_and_back() {
    let folder = tempfile::tempdir().unwrap();
    linux::compile(
        &source_root().join("tests/guest/udp"),
        &folder.path().join("udp"),
    );
    let volume = format!("{}:/mnt:ro", folder.path().display());
    for kind in kinds() {
        let port = free_port();
        let publish = format!("{port}:7/udp");
        let words = ["--net", kind, "--publish", &publish, "--volume", &volume];
        let _machine = start(&words, "/mnt/udp 7");
        let asker = || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket
                .set_read_timeout(Some(Duration::from_millis(200)))
                .unwrap();
            socket.connect(("127.0.0.1", port)).unwrap();
            socket
        };
        let answer = |socket: &UdpSocket| {
            let mut bytes = [0; 65536];
            let length = socket.recv(&mut bytes).ok()?;
            Some(String::from_utf8_lossy(bytes.get(..length)?).into_owned())
        };
        let askers = [asker(), asker(), asker()];
        for (number, socket) in askers.iter().enumerate() {
            // A datagram is lost until a program in the guest listens.
            let (text, begun) = (format!("asker {number}"), Instant::now());
            loop {
                // Refused, as long as no program on this side listens either.
                let _ = socket.send(text.as_bytes());
                match answer(socket) {
                    Some(told) => break assert_eq!(told, text.to_uppercase(), "{kind}"),
                    None => assert!(begun.elapsed() < PATIENCE, "{kind}: no answer for {number}"),
                }
            }
            // Answers to datagrams that were repeated meanwhile.
            while answer(socket).is_some() {}
        }
        for length in [0, 1, 1472, 8000] {
            for (number, socket) in askers.iter().enumerate() {
                let letter = char::from(b'a' + u8::try_from(number).unwrap());
                let text = letter.to_string().repeat(length);
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                assert_eq!(socket.send(text.as_bytes()).unwrap(), length);
                // An answer to a datagram that was repeated may come as late as now.
                let earlier = Some(format!("ASKER {number}"));
                let told = iter::repeat_with(|| answer(socket)).find(|told| *told != earlier);
                assert_eq!(
                    told,
                    Some(Some(text.to_uppercase())),
                    "{kind}: {length} bytes"
                );
            }
        }
    }
}

#[test]
fn which_network_it_is_is_told_and_it_costs_nothing_unused() {
    let done = run(&["--verbose"], "true");
    assert!(!done.stderr.contains("network:"), "{done:?}");
    // No program needs to answer.
    let done = run(&["--verbose"], "nc -w 1 10.0.2.2 9");
    assert!(done.stderr.contains("paravane: network: "), "{done:?}");
    let passt = done.stderr.contains("network: passt\r\n");
    assert_eq!(passt, kinds().contains(&"passt"), "{done:?}");
    if !passt {
        assert!(
            done.stderr.contains("the stack in this process (passt: "),
            "{done:?}"
        );
    }
    let mut command = vm::command(["--verbose", "--", "nc", "-w", "1", "10.0.2.2", "9"]);
    let done = program::finish(command.env("PATH", "/nonexistent"));
    assert!(
        done.stderr
            .contains("network: the stack in this process (passt: it is not installed)"),
        "{done:?}"
    );
}

#[test]
fn a_killed_monitor_leaves_nothing_of_its_network() {
    let port = free_port();
    let publish = format!("{port}:80");
    let mut machine = start(
        &["--publish", &publish],
        "while :; do nc -l -p 80 -e echo hi; done",
    );
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(begun.elapsed() < PATIENCE, "no program listens");
        thread::sleep(Duration::from_millis(20));
    }
    machine.0.kill().unwrap();
    machine.0.wait().unwrap();
    let begun = Instant::now();
    while TcpListener::bind(("127.0.0.1", port)).is_err() {
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "a program still listens"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_tap_is_a_wire_to_the_host() {
    tap_is_a_wire("tap:vm0");
}

/// A tap by a card of the virtual bus. Its frames may be longer than the MTU, or unfinished.
#[test]
fn a_tap_is_a_wire_to_the_host_by_a_virtual_bus() {
    tap_is_a_wire("venet-tap:vm0");
}

/// An interface with an MTU of its own, a guest on it, connections both ways.
fn tap_is_a_wire(net: &str) {
    let script = r#"
        set -e
        folder=$1
        shift
        ip link set lo up
        ip tuntap add vm0 mode tap
        ip addr add 10.9.0.1/24 dev vm0
        ip link set vm0 mtu 9000 up
        head -c 3000000 /dev/urandom > "$folder/file"
        sha256sum < "$folder/file"
        busybox httpd -f -p 10.9.0.1:7000 -h "$folder" >/dev/null 2>&1 &
        trap "kill $!" EXIT
        "$@" --net NET --timeout 60 -- sh -c '
            ip addr add 10.9.0.2/24 dev eth0 && ip link set eth0 mtu 9000 up && mkdir /tmp/x
            printf "GET /file HTTP/1.0\r\n\r\n" | nc 10.9.0.1 7000 | sed "1,/^\r*$/d" > /tmp/x/file
            httpd -f -p 80 -h /tmp/x' >/dev/null 2>&1 &
        monitor=$!
        # Until a program in the guest listens.
        for i in $(seq 200); do
            printf "GET /file HTTP/1.0\r\n\r\n" |
                busybox nc 10.9.0.2 80 2>/dev/null >"$folder/answer" && break
            sleep 0.1
        done
        sed "1,/^\r*$/d" < "$folder/answer" | sha256sum
        kill $monitor
        wait $monitor || true
    "#;
    let Some(done) = in_namespace(&script.replace("NET", net)) else {
        return;
    };
    let sums: Vec<&str> = done.stdout.lines().collect();
    assert_eq!((done.code, sums.len()), (0, 2), "{done:?}");
    assert_eq!(sums[0], sums[1], "{done:?}");
}

#[test]
fn a_card_of_a_virtual_bus_disappears_with_its_tap() {
    let script = r#"
        set -e
        folder=$1
        shift
        ip tuntap add vm0 mode tap
        ip link set vm0 up
        mkfifo "$folder/output"
        "$@" --net venet-tap:vm0 --timeout 60 -- sh -c '
            ip link set eth0 up; echo up
            while test -e /sys/class/net/eth0; do usleep 20000; done; echo gone' >"$folder/output" &
        exec 3<"$folder/output"
        read line <&3
        echo "$line"
        ip link del vm0
        read line <&3
        echo "$line"
        wait $!
    "#;
    if let Some(done) = in_namespace(script) {
        assert_eq!(
            (done.code, done.stdout.as_str()),
            (0, "up\ngone\n"),
            "{done:?}"
        );
    }
}

/// A program that every host has stands in for passt, and sends frames as passt does. The card of
/// the virtual bus disappears with it.
#[test]
fn frames_pass_in_a_stream_as_passt_has_it() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(program::tool("like_passt"), folder.path().join("passt")).unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", folder.path().display());
    let pings = "for size in 56 1000 20000; do
            ping -c 2 -s $size -W 20 10.0.2.2 | grep -o ' 0% packet loss'
        done";
    let ends = "nc -w 1 10.0.2.2 9 </dev/null
        while test -e /sys/class/net/eth0; do usleep 20000; done; echo gone";
    for (net, script) in [
        ("passt", pings.to_string()),
        ("venet-passt", format!("{pings}; {ends}")),
    ] {
        let words = ["--net", net, "--timeout", "60", "--", "sh", "-c", &script];
        let done = program::finish(vm::command(words).env("PATH", &path));
        let mut expected = " 0% packet loss\n".repeat(3);
        if net == "venet-passt" {
            expected += "gone\n";
        }
        assert_eq!((done.code, &done.stdout), (0, &expected), "{net}: {done:?}");
    }
}

#[test]
fn what_cannot_be_is_refused_in_a_line() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("{}:80", listener.local_addr().unwrap().port());
    let kinds: Vec<String> = ["user", "stack", "passt", "venet", "venet-passt"]
        .map(String::from)
        .to_vec();
    for kind in &kinds {
        let done = run(&["--net", kind, "--publish", &taken], "true");
        assert_eq!((done.code, done.stderr.lines().count()), (2, 1), "{done:?}");
        assert!(
            done.stderr.contains("cannot publish 127.0.0.1:"),
            "{done:?}"
        );
    }
    for net in ["passt", "venet-passt"] {
        let mut command = vm::command(["--net", net, "--", "true"]);
        let done = program::finish(command.env("PATH", "/nonexistent"));
        assert_eq!((done.code, done.stderr.lines().count()), (2, 1), "{done:?}");
        let word = format!("--net {net}: passt: ");
        assert!(done.stderr.contains(&word), "{done:?}");
    }
}
