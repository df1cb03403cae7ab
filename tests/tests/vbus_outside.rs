// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices of vbusd that lead out of its buses: taps, in a network namespace of the test, and the
//! user-mode network, which reaches a server of the test on this host's loopback. Their clients are
//! guests and a process of the host.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::lines::Lines;
use paravane_tests::program::{self, Ends, Run};
use paravane_tests::{skip::skip, vm};
use paravane_vbus_client::{Client, Error, Options};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);
/// What the host serves.
const BYTES: usize = 3_000_000;

/// Waits until a command succeeds.
const UNTIL: &str = "until_() { n=0; while ! eval \"$1\"; do
            n=$((n + 1)); test $n -lt 1200 || { echo \"never: $1\"; exit 9; }; usleep 50000
        done; }
    ";

/// A shell that vbusd is a child of, perhaps in a network namespace of its own.
struct Host {
    shell: Ends,
    input: ChildStdin,
    output: Lines,
    state: TempDir,
}

impl Host {
    fn start(mut command: Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = Lines::of(child.stdout.take());
        let state = tempfile::tempdir().unwrap();
        let mut host = Host {
            shell: Ends(child),
            input,
            output,
            state,
        };
        host.start_vbusd();
        host
    }

    /// With this host's network.
    fn plain() -> Self {
        Host::start(Command::new("sh"))
    }

    /// With a network of its own. `None`: this host has no taps.
    fn with_taps() -> Option<Self> {
        let open = fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/net/tun");
        if let Err(error) = open {
            skip(&format!("/dev/net/tun: {error}"));
            return None;
        }
        let mut command = Command::new("unshare");
        command.arg("--net");
        if !rustix::process::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command.arg("sh");
        let mut host = Host::start(command);
        host.tell("ip link set lo up");
        Some(host)
    }

    /// Runs a line in the shell, which must succeed. Returns what it prints.
    fn tell(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}\necho \"=$?\"").unwrap();
        let mut said = String::new();
        loop {
            let next = self.output.each_within(PATIENCE).next().unwrap();
            if let Some(code) = next.strip_prefix('=') {
                assert_eq!(code, "0", "{line}: {said}");
                return said;
            }
            said = said + &next + "\n";
        }
    }

    fn folder(&self) -> PathBuf {
        self.state.path().join("paravane/vbus")
    }

    fn socket(&self) -> PathBuf {
        self.folder().join("socket")
    }

    fn start_vbusd(&mut self) {
        let (program, folder) = (program::path(), self.folder());
        let (program, folder) = (program.display(), folder.display());
        self.tell(&format!(
            "{program} vbus daemon --folder {folder} >/dev/null & vbusd=$!"
        ));
        let begun = Instant::now();
        while self.administer(&["ls"]).code != 0 {
            assert!(begun.elapsed() < PATIENCE, "vbusd does not listen");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Another vbusd with the same state.
    fn restart_vbusd(&mut self) {
        self.tell("kill -9 $vbusd; wait $vbusd || true");
        self.start_vbusd();
    }

    fn administer(&self, words: &[&str]) -> Run {
        let socket = self.socket();
        let at = ["--socket", socket.to_str().unwrap()];
        program::run(["vbus"].iter().chain(words).chain(&at))
    }

    /// Runs a command of `paravane vbus` that must succeed. Returns its output.
    fn done(&self, words: &[&str]) -> String {
        let run = self.administer(words);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{words:?}");
        run.stdout
    }

    /// Makes the tap.
    fn make_tap(&mut self) {
        self.tell("ip tuntap add vm0 mode tap && ip addr add 10.9.0.1/24 dev vm0");
        self.tell("ip link set vm0 up");
    }

    /// Makes a bus, and on it a card that leads to the tap.
    fn make_card(&self) {
        self.done(&["create-bus", "lan"]);
        self.done(&["create-device", "out", "venet-tap", "tap=vm0"]);
        self.done(&["link", "lan", "out"]);
    }

    /// Runs a command of `paravane vbus` that must fail, with one line that contains `part`.
    fn refused(&self, words: &[&str], part: &str) {
        let run = self.administer(words);
        let lines = run.stderr.lines().count();
        assert!(run.code != 0 && lines == 1, "{words:?}: {run:?}");
        assert!(run.stderr.contains(part), "{words:?}: {run:?}");
    }

    fn attribute(&self, name: &str) -> String {
        self.done(&["show", "out", name]).trim().to_string()
    }

    /// A process of this host as a client.
    fn client(&self) -> Result<Client, Error> {
        Client::connect(Options {
            socket: self.socket(),
            bus: "lan".to_string(),
            device: "out".to_string(),
            count: 64,
            buffer: 2048,
        })
    }

    /// A machine on the bus that prints lines and reads one before it continues.
    fn machine(&self, words: &[&str], script: &str) -> Talk {
        let mut command = vm::command(words);
        let script = format!("{UNTIL}{script}");
        command.args(["--timeout", "120", "--", "sh", "-c", &script]);
        command.env("XDG_STATE_HOME", self.state.path());
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child: Child = command.spawn().unwrap();
        Talk {
            input: child.stdin.take().unwrap(),
            lines: Lines::of(child.stdout.take()),
            _ends: Ends(child),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = writeln!(self.input, "kill -9 $vbusd $server; exit 0");
        let _ = program::status_within(&mut self.shell.0, PATIENCE);
    }
}

struct Talk {
    input: ChildStdin,
    lines: Lines,
    _ends: Ends,
}

impl Talk {
    /// The next line of this kind.
    fn line(&mut self, wanted: impl Fn(&str) -> bool) -> Option<String> {
        self.lines.each_within(PATIENCE).find(|line| wanted(line))
    }

    fn hear(&mut self, expected: &str) {
        assert_eq!(self.line(|_| true).unwrap(), expected);
    }

    fn go_on(&mut self) {
        self.input.write_all(b"\n").unwrap();
    }
}

/// Whether the address answers the client, which asks by ARP.
fn answers(client: &mut Client, own: Ipv4Addr, asked: Ipv4Addr) -> bool {
    let mac = client.mac().unwrap();
    let mut frame = vec![0xff; 6];
    frame.extend(mac);
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(mac);
    frame.extend(own.octets());
    frame.extend([0; 6]);
    frame.extend(asked.octets());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        assert!(client.send(&frame).unwrap());
        client.wait(Some(Duration::from_secs(1)), false).unwrap();
        let mut answer = [0; 2048];
        while let Some(length) = client.receive(&mut answer).unwrap() {
            let answer = &answer[..length];
            let is = |at: usize, bytes: &[u8]| answer.get(at..at + bytes.len()) == Some(bytes);
            // An answer to this question.
            if is(0, &mac) && is(12, &[8, 6]) && is(20, &[0, 2]) && is(28, &asked.octets()) {
                return true;
            }
        }
    }
    false
}

fn serve_file(host: &mut Host, path: &Path) {
    let data: Vec<u8> = (0..BYTES)
        .map(|n| u8::try_from(n * n / 7 % 251).unwrap())
        .collect();
    fs::write(path.join("file"), data).unwrap();
    let path = path.display();
    host.tell(&format!(
        "busybox httpd -f -p 7000 -h {path} >/dev/null 2>&1 & server=$!"
    ));
}

/// Frames of a process and of a guest pass to the host and back, also after vbusd has died; and the
/// card comes and goes with its tap.
#[test]
fn a_tap_of_a_bus_is_a_wire_to_the_host() {
    let Some(mut host) = Host::with_taps() else {
        return;
    };
    host.make_tap();
    host.make_card();
    let (own, asked) = (Ipv4Addr::new(10, 9, 0, 3), Ipv4Addr::new(10, 9, 0, 1));
    let mut client = host.client().unwrap();
    assert!(answers(&mut client, own, asked));
    // The tap has one client.
    assert!(host.client().unwrap_err().to_string().contains("1 of 1"));
    host.restart_vbusd();
    let mac = client.mac();
    client.reconnect(PATIENCE).unwrap();
    assert_eq!(client.mac(), mac, "the address survives a restart");
    assert!(answers(&mut client, own, asked));
    drop(client);

    let folder = tempfile::tempdir().unwrap();
    serve_file(&mut host, folder.path());
    let script = "up() { ip addr add 10.9.0.2/24 dev $1; ip link set $1 up; }
        get() {
            printf 'GET /file HTTP/1.0\\r\\n\\r\\n' | nc -w 5 10.9.0.1 7000 |
                sed '1,/^\\r*$/d' > /tmp/file
            test $(wc -c < /tmp/file) = 3000000 && sha256sum < /tmp/file
        }
        eth() { ls /sys/class/net | grep -m 1 eth; }
        until_ 'test -e /sys/class/net/eth0'; up eth0; until_ get
        read x; until_ get
        read x; until_ '! eth'; echo gone
        until_ 'test \"$(eth)\" != \"\"'; up $(eth); until_ get; read x";
    let sum = host.tell(&format!("sha256sum < {}/file", folder.path().display()));
    for words in [
        &["--net", "bus:lan/out"][..],
        &["--bus", "lan", "--net", "none"],
    ] {
        let mut machine = host.machine(words, script);
        machine.hear(sum.trim());
        host.restart_vbusd();
        machine.go_on();
        machine.hear(sum.trim());
        machine.go_on();
        host.tell("ip link del vm0");
        // What the shell of the guest prints of the search.
        let line = machine.line(|line| line == "gone");
        assert!(line.is_some());
        host.make_tap();
        host.tell("kill $server; wait $server || true");
        serve_file(&mut host, folder.path());
        let line = machine.line(|line| line == sum.trim());
        assert!(line.is_some());
        machine.go_on();
    }
    let received: u64 = host.attribute("received").parse().unwrap();
    assert!(received > 100, "{received}");
}

/// A tap gives and takes TCP segments that are longer than its MTU, over IPv4 and over IPv6.
#[test]
fn long_segments_pass_a_tap_in_both_directions() {
    let Some(mut host) = Host::with_taps() else {
        return;
    };
    host.make_tap();
    host.tell("ip addr add fd00:9::1/64 dev vm0 nodad");
    host.make_card();
    let folder = tempfile::tempdir().unwrap();
    serve_file(&mut host, folder.path());
    let sum = host.tell(&format!("sha256sum < {}/file", folder.path().display()));
    let script = "echo 0 > /proc/sys/net/ipv6/conf/eth0/accept_dad
        ip link set eth0 up; ip addr add 10.9.0.2/24 dev eth0; ip addr add fd00:9::2/64 dev eth0
        mkdir /tmp/w; httpd -p 80 -h /tmp/w
        for host in 10.9.0.1 '[fd00:9::1]'; do
            echo ready; read x
            until_ 'wget -q -O /tmp/w/file http://$host:7000/file'; sha256sum < /tmp/w/file; read x
        done";
    let mut machine = host.machine(&["--net", "bus:lan/out"], script);
    let most = BYTES as u64 / 1428 / 2;
    let figure = |host: &Host, name| host.attribute(name).parse::<u64>().unwrap();
    for guest in ["10.9.0.2", "[fd00:9::2]"] {
        machine.hear("ready");
        let before = figure(&host, "received");
        machine.go_on();
        machine.hear(sum.trim());
        let frames = figure(&host, "received") - before;
        assert!(frames < most, "{frames} frames to {guest}");
        let before = figure(&host, "sent");
        let got = host.tell(&format!(
            "busybox wget -q -O - 'http://{guest}/file' | sha256sum"
        ));
        assert_eq!(got, sum);
        let frames = figure(&host, "sent") - before;
        assert!(frames < most, "{frames} frames from {guest}");
        machine.go_on();
    }
}

/// A machine takes its bus whole before the tap is there, and gets the card when it is: also if the
/// tap came while vbusd was away.
#[test]
fn a_machine_gets_its_card_when_the_tap_is_there() {
    let Some(mut host) = Host::with_taps() else {
        return;
    };
    host.tell("ip tuntap add vm0 mode tap");
    host.make_card();
    let folder = tempfile::tempdir().unwrap();
    let script = "eth() { ls /sys/class/net | grep -m 1 eth; }
        eth || echo none
        read x; until_ 'test \"$(eth)\" != \"\"' > /dev/null
        ip addr add 10.9.0.2/24 dev $(eth); ip link set $(eth) up
        printf 'GET /file HTTP/1.0\\r\\n\\r\\n' > /tmp/question
        get() {
            nc -w 5 10.9.0.1 7000 < /tmp/question | sed '1,/^\\r*$/d' > /tmp/file
            test $(wc -c < /tmp/file) = 3000000 && sha256sum < /tmp/file
        }
        until_ get; read x";
    for is_away in [false, true] {
        host.tell("ip link del vm0");
        let mut machine = host.machine(&["--bus", "lan", "--net", "none"], script);
        machine.hear("none");
        if is_away {
            host.tell("kill -9 $vbusd; wait $vbusd || true");
        }
        host.make_tap();
        serve_file(&mut host, folder.path());
        if is_away {
            host.start_vbusd();
        }
        machine.go_on();
        let sum = host.tell(&format!("sha256sum < {}/file", folder.path().display()));
        machine.hear(sum.trim());
        machine.go_on();
        host.tell("kill $server; wait $server || true");
        drop(machine);
    }
}

#[test]
fn what_cannot_be_of_a_tap_is_refused_in_a_line() {
    let Some(mut host) = Host::with_taps() else {
        return;
    };
    host.done(&["create-bus", "lan"]);
    let create = |tap: &str| ["create-device", "out", "venet-tap", tap].map(String::from);
    for (tap, part) in [
        ("tap=none0", "there is no such interface"),
        ("tap=a/b", "an interface's name has 1 to 15 bytes"),
        ("mac=03:00:00:00:00:01", "is no value of mac"),
        ("file=x", "no attribute file"),
    ] {
        let words = create(tap);
        host.refused(&words.each_ref().map(String::as_str), part);
    }
    host.tell("ip tuntap add vm0 mode tap && ip link set vm0 up");
    host.done(&["create-device", "out", "venet-tap"]);
    host.done(&["link", "lan", "out"]);
    assert!(
        host.client()
            .unwrap_err()
            .to_string()
            .contains("has no tap")
    );
    host.done(&["set", "out", "tap=vm0", "mac=02:00:00:00:00:07"]);
    let client = host.client().unwrap();
    assert_eq!(client.mac(), Some([2, 0, 0, 0, 0, 7]));
    host.refused(&["set", "out", "tap="], "its clients must leave first");
    host.done(&["set", "out", "poll-us=100", "kick-us=50"]);
    // Another program has it.
    host.done(&["create-device", "other", "venet-tap"]);
    host.refused(&["set", "other", "tap=vm0"], "cannot use the tap vm0");
    drop(client);
    host.restart_vbusd();
    assert_eq!(host.attribute("tap"), "vm0");
    assert_eq!(host.attribute("mac"), "02:00:00:00:00:07");
    assert_eq!(host.attribute("poll-us"), "100");
    assert_eq!(host.attribute("kick-us"), "50");
}

/// Guests and a process at the same time, each of which has a network for itself.
#[test]
fn clients_of_a_bus_reach_what_its_user_reaches() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut text = String::new();
            let _ = stream.read_to_string(&mut text);
            let _ = stream.write_all(text.to_uppercase().as_bytes());
        }
    });
    let mut host = Host::plain();
    host.done(&["create-bus", "lan"]);
    host.done(&["create-device", "out", "venet-user", "loopback=1"]);
    host.done(&["link", "lan", "out"]);
    let script = format!(
        "until_ 'test -e /sys/class/net/eth0'; ip link set eth0 up
        udhcpc -f -n -q -i eth0 -s /bin/true 2>&1 | grep -o 'obtained from 10.0.2.2'
        ip addr add 10.0.2.15/24 dev eth0
        ask() {{ echo hello | nc -w 20 10.0.2.2 {port}; }}
        ask; read x; until_ ask; read x"
    );
    let words = [
        &["--net", "bus:lan/out"][..],
        &["--bus", "lan", "--net", "none"],
    ];
    let mut machines = words.map(|words| host.machine(words, &script));
    for machine in &mut machines {
        machine.hear("obtained from 10.0.2.2");
        machine.hear("HELLO");
    }
    let (own, asked) = (Ipv4Addr::new(10, 0, 2, 15), Ipv4Addr::new(10, 0, 2, 2));
    let mut client = host.client().unwrap();
    assert!(answers(&mut client, own, asked));
    assert_eq!(host.attribute("connections"), "3");
    host.restart_vbusd();
    client.reconnect(PATIENCE).unwrap();
    assert!(answers(&mut client, own, asked));
    for machine in &mut machines {
        machine.go_on();
        let line = machine.line(|line| line == "HELLO");
        assert!(line.is_some());
        machine.go_on();
    }
    host.refused(
        &["set", "out", "loopback=0"],
        "its clients must leave first",
    );
    drop((client, machines));
    // The host's loopback is not for all.
    let begun = Instant::now();
    while host.attribute("connections") != "0" {
        assert!(begun.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(20));
    }
    host.refused(&["set", "out", "loopback=2"], "0 or 1");
    host.done(&["set", "out", "loopback=0"]);
    let script = format!(
        "ip link set eth0 up; ip addr add 10.0.2.15/24 dev eth0
        echo hello | nc -w 5 10.0.2.2 {port}; echo refused"
    );
    let mut machine = host.machine(&["--net", "bus:lan/out"], &script);
    machine.hear("refused");
}
