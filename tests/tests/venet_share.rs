// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines whose cards share memory on a switch of vbusd: files arrive whole, vbusd copies almost
//! nothing of them, and the death of a machine or of vbusd harms no other. Nothing here needs a
//! privilege.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::lines::Lines;
use paravane_tests::program::{self, Ends};
use paravane_tests::vbusd::Vbusd;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// Waits for the sum of the server's file, and then compares one with it, by these words.
const GET: &str = "until wget -q -O /tmp/theirs http://10.8.0.1/sum; do sleep 0.1; done
    get() {
        wget -q -O - http://10.8.0.1/file | sha256sum > /tmp/mine
        cmp /tmp/mine /tmp/theirs && echo same
    }
    ";

/// A machine on the bus, whose script runs with its address set.
fn machine(vbusd: &Vbusd, net: &str, address: &str, script: &str) -> Command {
    let script =
        format!("ip addr add {address}/24 dev eth0 && ip link set eth0 up || exit 9\n{script}");
    vbusd.machine(&["--net", net, "--timeout", "240", "--", "sh", "-c", &script])
}

fn start(mut command: Command) -> (Ends, Lines) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = Lines::of(child.stdout.take());
    (Ends(child), lines)
}

/// A machine that serves a file, whose card shares.
fn server(vbusd: &Vbusd) -> (Ends, Lines) {
    let script = "mkdir /tmp/w; dd if=/dev/urandom of=/tmp/w/file bs=1M count=32 2>/dev/null
         sha256sum < /tmp/w/file > /tmp/w/sum; httpd -p 80 -h /tmp/w; echo ready; sleep 1000";
    let (ends, mut lines) = start(machine(vbusd, SHARED, "10.8.0.1", script));
    assert_eq!(lines.next_within(PATIENCE), "ready\n");
    (ends, lines)
}

const SHARED: &str = "bus:lan/lan-switch,share";

fn figures(vbusd: &Vbusd) -> [u64; 2] {
    ["lent-bytes", "copied-bytes"].map(|name| vbusd.figure("lan-switch", name))
}

fn sharing(vbusd: &Vbusd) -> u64 {
    vbusd.figure("lan-switch", "sharing")
}

fn soon(what: &str, mut check: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !check() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn switch() -> Vbusd {
    let vbusd = Vbusd::start(&["lan"]);
    vbusd.done(&["set", "lan-switch", "share=1"]);
    vbusd
}

#[test]
fn vbusd_copies_little_of_a_file_between_two_that_share() {
    let mut vbusd = switch();
    let _server = server(&vbusd);
    let script = format!("{GET} echo begun; get; get; read x; get; get; get");
    let mut command = machine(&vbusd, SHARED, "10.8.0.2", &script);
    command.stdin(Stdio::piped());
    let (mut ends, mut lines) = start(command);
    assert_eq!(lines.next_within(PATIENCE), "begun\n");
    let before = figures(&vbusd);
    for _ in 0..2 {
        assert_eq!(lines.next_within(PATIENCE), "same\n");
    }
    let after = figures(&vbusd);
    let [lent, copied] = [0, 1].map(|at| after[at] - before[at]);
    // Two files of 32 MiB; confirmations of TCP are short.
    assert!(lent > 48 << 20 && copied < lent / 4, "{lent} {copied}");
    // vbusd is killed amid the others, and both agree with the next one.
    drop(ends.0.stdin.take());
    thread::sleep(Duration::from_millis(100));
    vbusd.kill();
    thread::sleep(Duration::from_millis(200));
    vbusd.again();
    for _ in 0..3 {
        assert_eq!(lines.next_within(PATIENCE), "same\n");
    }
    let [lent, _] = figures(&vbusd);
    assert!(lent > 16 << 20, "{lent}");
}

/// A receiver is killed amid a file, and another is stopped. The server continues to serve the
/// others, one of which does not share.
#[test]
fn a_machine_that_dies_or_stops_holds_no_other() {
    let vbusd = switch();
    let _server = server(&vbusd);
    let endless = format!("{GET} while get; do :; done");
    let mut victims = ["10.8.0.2", "10.8.0.3"].map(|address| {
        let (ends, mut lines) = start(machine(&vbusd, SHARED, address, &endless));
        assert_eq!(lines.next_within(PATIENCE), "same\n");
        // Without its lines, it could not go on.
        (ends, lines)
    });
    assert_eq!(sharing(&vbusd), 3);
    let [(dead, _), (stopped, _)] = &mut victims;
    dead.0.kill().unwrap();
    dead.0.wait().unwrap();
    soon("the dead one shares", || sharing(&vbusd) == 2);
    let pid = rustix::process::Pid::from_child(&stopped.0);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let script = format!("{GET} get; get; get");
    for net in [SHARED, "bus:lan/lan-switch"] {
        let before = figures(&vbusd);
        let (_ends, mut lines) = start(machine(&vbusd, net, "10.8.0.4", &script));
        for _ in 0..3 {
            assert_eq!(lines.next_within(PATIENCE), "same\n", "{net}");
        }
        let after = figures(&vbusd);
        let [lent, copied] = [0, 1].map(|at| after[at] - before[at]);
        if net == SHARED {
            assert!(lent > copied, "{lent} {copied}");
        } else {
            assert!(lent < copied / 16, "{lent} {copied}");
        }
    }
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
}

/// The administrator has not agreed: the machine works, and copies are made.
#[test]
fn a_switch_that_does_not_agree_copies() {
    let vbusd = Vbusd::start(&["lan"]);
    let _server = server(&vbusd);
    let script = format!("{GET} get");
    let run = program::finish(&mut machine(&vbusd, SHARED, "10.8.0.2", &script));
    assert_eq!((run.code, run.stdout.as_str()), (0, "same\n"), "{run:?}");
    assert_eq!((sharing(&vbusd), figures(&vbusd)[0]), (0, 0));
}
