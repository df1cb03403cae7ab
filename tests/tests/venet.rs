// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines on a virtual bus: with each other and with a process of the host, beside others that
//! they do not see, and while vbusd is killed and started again. Nothing here needs a privilege.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed setup fails the test.

use paravane_tests::host_without::NOBODY;
use paravane_tests::lines::Lines;
use paravane_tests::program::{self, Ends, Run};
use paravane_tests::vbusd::Vbusd;
use paravane_tests::vm;
use rustix::process::geteuid;
use std::io::Write;
use std::process::{ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A machine on a bus, whose script runs with its address set.
fn machine(vbusd: &Vbusd, bus: &str, address: &str, script: &str) -> Command {
    // The bus has one network.
    let net = format!("bus:{bus}");
    let script =
        format!("ip addr add {address}/24 dev eth0 && ip link set eth0 up || exit 9\n{script}");
    vbusd.machine(&["--net", &net, "--timeout", "120", "--", "sh", "-c", &script])
}

fn run(vbusd: &Vbusd, bus: &str, address: &str, script: &str) -> Run {
    program::finish(&mut machine(vbusd, bus, address, script))
}

/// A machine that runs until it is ended. Returns when its script has printed a line.
fn serve(vbusd: &Vbusd, bus: &str, address: &str, script: &str) -> Ends {
    let mut command = machine(vbusd, bus, address, script);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    assert_eq!(program::first_line(&mut child), "ready\n");
    Ends(child)
}

/// A process of the host on a bus: the address 10.8.0.9, which answers pings.
struct Host {
    _ends: Ends,
    input: ChildStdin,
    lines: Lines,
    address: String,
}

/// What a host has counted.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    answered: u64,
    frames: u64,
    /// Frames from addresses of another switch.
    strange: u64,
}

impl Host {
    /// With `strays` frames for an address first.
    fn start(vbusd: &Vbusd, bus: &str, strays: u64, to: &str) -> Self {
        let mut command = vbusd.tool("bus_host");
        command
            .arg(vbusd.socket())
            .args([bus, &format!("{bus}-switch")]);
        command.args([&strays.to_string(), to]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let mut lines = Lines::of(child.stdout.take());
        let address = lines.each_within(PATIENCE).next().unwrap();
        Host {
            _ends: Ends(child),
            input,
            lines,
            address,
        }
    }

    fn seen(&mut self) -> Seen {
        self.input.write_all(b"\n").unwrap();
        let line = self.lines.each_within(PATIENCE).next().unwrap();
        let mut numbers = line.split(' ').map(|number| number.parse().unwrap());
        let mut next = || numbers.next().unwrap();
        Seen {
            answered: next(),
            frames: next(),
            strange: next(),
        }
    }
}

/// Serves a file of `mib` MiB over HTTP.
fn server(mib: u32) -> String {
    format!(
        "mkdir /tmp/w; dd if=/dev/urandom of=/tmp/w/file bs=1M count={mib} 2>/dev/null
         sha256sum < /tmp/w/file > /tmp/w/sum; httpd -p 80 -h /tmp/w; echo ready; sleep 1000"
    )
}

/// Frames that clients of a switch have sent and got, and those for addresses that no port has.
/// Waits until there are no new ones.
fn counts(vbusd: &Vbusd, bus: &str) -> [u64; 3] {
    let switch = format!("{bus}-switch");
    let now =
        || ["tx-packets", "rx-packets", "dropped-unknown"].map(|name| vbusd.figure(&switch, name));
    let (mut last, begun) = (now(), Instant::now());
    loop {
        thread::sleep(Duration::from_millis(300));
        let next = now();
        if next == last {
            return next;
        }
        assert!(begun.elapsed() < PATIENCE, "{bus} does not come to rest");
        last = next;
    }
}

/// Two machines on a bus exchange frames with each other, and one with the process at 10.8.0.9.
fn exchange(vbusd: &Vbusd, bus: &str) {
    let _server = serve(vbusd, bus, "10.8.0.1", &server(8));
    let met = run(
        vbusd,
        bus,
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
        "{bus}: {met:?}"
    );
}

/// Two buses with the same addresses, whose members exchange frames in turn: nothing of one reaches
/// the other, by the counters of its switch and of a process on it.
fn of_one_bus_meet(vbusd: &Vbusd) {
    const STRAYS: u64 = 3;
    let mut lan = Host::start(vbusd, "lan", 0, "");
    // A frame for an address of another bus reaches no port.
    let mut other = Host::start(vbusd, "other", STRAYS, &lan.address);
    let only_strays = [STRAYS, 0, STRAYS];
    assert_eq!(counts(vbusd, "other"), only_strays);
    assert_eq!(counts(vbusd, "lan"), [0; 3]);

    exchange(vbusd, "lan");
    let (of_lan, seen) = (counts(vbusd, "lan"), lan.seen());
    assert!(of_lan[0] > 100 && of_lan[1] > 100, "{of_lan:?}");
    assert!(seen.answered >= 5 && seen.strange == 0, "{seen:?}");
    assert_eq!(counts(vbusd, "other"), only_strays);
    assert_eq!(other.seen().frames, 0);

    exchange(vbusd, "other");
    let of_other = counts(vbusd, "other");
    assert!(of_other[0] > 100 && of_other[1] > 100, "{of_other:?}");
    let there = other.seen();
    assert!(there.answered >= 5 && there.strange == 0, "{there:?}");
    assert_eq!((counts(vbusd, "lan"), lan.seen()), (of_lan, seen));
}

#[test]
fn guests_and_a_process_of_one_bus_meet_and_others_do_not() {
    of_one_bus_meet(&Vbusd::start(&["lan", "other"]));
}

/// vbusd, the processes and the machines have no privilege.
#[test]
fn an_ordinary_user_does_all_of_it() {
    if !geteuid().is_root() {
        eprintln!("not tested: only root can become another user. The test above has shown it.");
        return;
    }
    let vbusd = Vbusd::start_as_ordinary_user(&["bus_host"], &["lan", "other"]);
    assert_eq!(vbusd.user(), NOBODY);
    of_one_bus_meet(&vbusd);
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
    let mut lines = Lines::of(child.stdout.take());
    let _ends = Ends(child);
    assert_eq!(lines.next_within(PATIENCE), "begun\n");
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(300));
        daemon.kill();
        thread::sleep(Duration::from_millis(200));
        daemon.again();
    }
    let rest: Vec<String> = lines.each_within(PATIENCE).collect();
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
    let mut lines = Lines::of(child.stdout.take());
    let _ends = Ends(child);
    let mut line = || lines.each_within(PATIENCE).next().unwrap();
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
    refused("bus:", &[], "bus:NAME");
    daemon.done(&["create-bus", "empty"]);
    refused("bus:empty", &[], "bus empty has no network");
    daemon.done(&["link", "lan", "other-switch"]);
    let named = "name one, as in bus:lan/lan-switch or bus:lan/other-switch";
    refused("bus:lan", &[], named);
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
