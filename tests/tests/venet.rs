// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines on a virtual bus: with each other and with a process of the host, beside others that
//! they do not see, and while vbusd is killed and started again. Nothing here needs a privilege.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed setup fails the test.

use paravane_tests::program::{self, Ends, Run};
use paravane_tests::vbusd::Vbusd;
use paravane_tests::vm;
use paravane_vbus_client::{Client, Options};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// A machine on a bus, whose script runs with its address set.
fn machine(vbusd: &Vbusd, bus: &str, address: &str, script: &str) -> Command {
    let net = format!("bus:{bus}/{bus}-switch");
    let script =
        format!("ip addr add {address}/24 dev eth0 && ip link set eth0 up || exit 9\n{script}");
    let words = ["--net", &net, "--timeout", "120", "--", "sh", "-c", &script];
    let mut command = vm::command(words);
    command.env("XDG_STATE_HOME", vbusd.state.path());
    command
}

fn run(vbusd: &Vbusd, bus: &str, address: &str, script: &str) -> Run {
    program::finish(&mut machine(vbusd, bus, address, script))
}

/// A machine that runs until it is ended. Returns when its script has printed a line.
fn serve(vbusd: &Vbusd, bus: &str, address: &str, script: &str) -> Ends {
    let mut command = machine(vbusd, bus, address, script);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    Ends(child)
}

/// A process of the host on the bus: the address 10.8.0.9, which answers pings.
struct Host {
    end: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    thread: Option<thread::JoinHandle<()>>,
}

const HOST: [u8; 4] = [10, 8, 0, 9];

impl Host {
    fn start(daemon: &Vbusd, bus: &str) -> Self {
        let options = Options {
            socket: daemon.socket(),
            bus: bus.to_string(),
            device: format!("{bus}-switch"),
            count: 64,
            buffer: 2048,
        };
        let (end, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (stop, count) = (Arc::clone(&end), Arc::clone(&answered));
        let mut client = Client::connect(options).unwrap();
        let work = move || {
            let mut frame = [0; 2048];
            while !stop.load(Ordering::SeqCst) {
                let step = Some(Duration::from_millis(50));
                let Ok(received) = client.wait(step, false).and_then(|_| {
                    // A client that only waits still takes its events.
                    while client.event()?.is_some() {}
                    client.receive(&mut frame)
                }) else {
                    client.reconnect(PATIENCE).unwrap();
                    continue;
                };
                let Some(length) = received else { continue };
                let mac = client.mac().unwrap();
                if let Some(answer) = frame.get(..length).and_then(|f| answer(f, mac)) {
                    let _ = client.send(&answer);
                    count.fetch_add(1, Ordering::SeqCst);
                }
            }
        };
        Host {
            end,
            answered,
            thread: Some(thread::spawn(work)),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.end.store(true, Ordering::SeqCst);
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// The answer of a host that knows ARP and ping.
fn answer(frame: &[u8], mac: [u8; 6]) -> Option<Vec<u8>> {
    let mut answer = frame.to_vec();
    let from = frame.get(6..12)?.to_vec();
    answer.get_mut(..6)?.copy_from_slice(&from);
    answer.get_mut(6..12)?.copy_from_slice(&mac);
    match frame.get(12..14)? {
        [8, 6] if frame.get(20..22)? == [0, 1] && frame.get(38..42)? == HOST => {
            answer[21] = 2;
            answer[32..42].copy_from_slice(&frame[22..32]);
            answer[22..28].copy_from_slice(&mac);
            answer[28..32].copy_from_slice(&HOST);
            Some(answer)
        }
        [8, 0] if frame.get(23)? == &1 && frame.get(30..34)? == HOST && frame.get(34)? == &8 => {
            answer[26..30].copy_from_slice(&frame[30..34]);
            answer[30..34].copy_from_slice(&frame[26..30]);
            // The checksum loses what the type does.
            answer[34] = 0;
            let sum = u32::from(u16::from_be_bytes([frame[36], frame[37]])) + 0x800;
            let sum = (sum & 0xffff) + (sum >> 16);
            answer[36..38].copy_from_slice(&u16::try_from(sum).unwrap().to_be_bytes());
            Some(answer)
        }
        _ => None,
    }
}

/// Serves a file of so many MiB over HTTP.
fn server(mib: u32) -> String {
    format!(
        "mkdir /tmp/w; dd if=/dev/urandom of=/tmp/w/file bs=1M count={mib} 2>/dev/null
         sha256sum < /tmp/w/file > /tmp/w/sum; httpd -p 80 -h /tmp/w; echo ready; sleep 1000"
    )
}

#[test]
fn guests_and_a_process_of_one_bus_meet_and_others_do_not() {
    let daemon = Vbusd::start(&["lan", "other"]);
    let host = Host::start(&daemon, "lan");
    let _server = serve(&daemon, "lan", "10.8.0.1", &server(8));
    let met = run(
        &daemon,
        "lan",
        "10.8.0.2",
        "ping -c 5 -W 5 10.8.0.9 >/dev/null && echo host
         wget -q -O - http://10.8.0.1/file | sha256sum > /tmp/mine
         wget -q -O - http://10.8.0.1/sum > /tmp/theirs
         cmp /tmp/mine /tmp/theirs && echo same
         ip link set eth0 mtu 9000 && ping -c 1 -W 5 10.8.0.1 >/dev/null && echo large",
    );
    assert_eq!(
        (met.code, met.stdout.as_str()),
        (0, "host\nsame\nlarge\n"),
        "{met:?}"
    );
    assert!(host.answered.load(Ordering::SeqCst) >= 5);
    // The same addresses on another bus.
    let alone = run(
        &daemon,
        "other",
        "10.8.0.2",
        "for at in 1 9; do ping -c 2 -W 1 10.8.0.$at >/dev/null && echo $at; done; echo none",
    );
    assert_eq!(
        (alone.code, alone.stdout.as_str()),
        (0, "none\n"),
        "{alone:?}"
    );
}

/// Each thread that shares memory with vbusd or speaks to it has a policy.
#[test]
fn the_threads_of_the_bus_are_confined() {
    let daemon = Vbusd::start(&["lan", "other"]);
    let machine = serve(&daemon, "lan", "10.8.0.1", "echo ready; sleep 1000");
    let tasks = std::fs::read_dir(format!("/proc/{}/task", machine.0.id())).unwrap();
    let mut found = Vec::new();
    for task in tasks {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().to_string()
        };
        let name = field("Name:");
        if ["bus", "vbus-join"].contains(&name.as_str()) {
            assert_eq!(field("Seccomp:"), "2", "{name}");
            found.push(name);
        }
    }
    found.sort();
    assert_eq!(found, ["bus", "vbus-join"]);
}

/// A download is under way when vbusd is killed, and goes on with the next one.
#[test]
fn guests_continue_when_vbusd_was_killed_and_started_again() {
    let mut daemon = Vbusd::start(&["lan", "other"]);
    let _server = serve(&daemon, "lan", "10.8.0.1", &server(64));
    let mut command = machine(
        &daemon,
        "lan",
        "10.8.0.2",
        "wget -q -O - http://10.8.0.1/sum > /tmp/theirs
         echo begun
         for i in 1 2 3; do
             wget -q -O - http://10.8.0.1/file | sha256sum > /tmp/mine
             cmp /tmp/mine /tmp/theirs && echo same
         done",
    );
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let _ends = Ends(child);
    assert_eq!(lines.next().unwrap().unwrap(), "begun");
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(300));
        daemon.kill();
        thread::sleep(Duration::from_millis(200));
        daemon.again();
    }
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(rest, ["same", "same", "same"]);
}

#[test]
fn a_card_disappears_and_comes_with_its_device() {
    let daemon = Vbusd::start(&["lan", "other"]);
    let script = "echo here; read x
        while test -e /sys/class/net/eth0; do sleep 0.1; done; echo gone; read x
        while ! test -e /sys/class/net/eth0; do sleep 0.1; done; echo back
        cat /sys/bus/vbus/devices/*/type";
    let mut command = machine(&daemon, "lan", "10.8.0.2", script);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let _ends = Ends(child);
    let mut line = || lines.next().unwrap().unwrap();
    assert_eq!(line(), "here");
    daemon.done(&["unlink", "lan", "lan-switch"]);
    input.write_all(b"\n").unwrap();
    assert_eq!(line(), "gone");
    daemon.done(&["link", "lan", "lan-switch"]);
    input.write_all(b"\n").unwrap();
    assert_eq!(line(), "back");
    assert_eq!(line(), "virtual-ethernet");
}

#[test]
fn what_cannot_be_is_refused_in_a_line() {
    let daemon = Vbusd::start(&["lan", "other"]);
    daemon.done(&["create-device", "mirror", "echo"]);
    daemon.done(&["link", "lan", "mirror"]);
    let refused = |net: &str, more: &[&str], part: &str| {
        let mut words = vec!["--net", net];
        words.extend(more);
        words.extend(["--", "true"]);
        let mut command = vm::command(words);
        let run = program::finish(command.env("XDG_STATE_HOME", daemon.state.path()));
        assert_eq!(
            (run.code, run.stderr.lines().count()),
            (2, 1),
            "{net}: {run:?}"
        );
        assert!(run.stderr.contains(part), "{net}: {run:?}");
    };
    refused("bus:lan/none", &[], "there is no device none on the bus");
    refused("bus:none/switch", &[], "may not join bus none");
    refused("bus:lan/mirror", &[], "is no network: its type is echo");
    refused("bus:lan", &[], "bus:NAME/DEVICE");
    refused(
        "bus:lan/lan-switch",
        &["--publish", "8080:80"],
        "--publish needs",
    );
    let nobody = tempfile::tempdir().unwrap();
    let mut command = vm::command(["--net", "bus:lan/lan-switch", "--", "true"]);
    let run = program::finish(command.env("XDG_STATE_HOME", nobody.path()));
    assert_eq!((run.code, run.stderr.lines().count()), (2, 1), "{run:?}");
    assert!(run.stderr.contains("cannot reach vbusd"), "{run:?}");
}
