// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines on a bus of vbusd that leave checksums and segments to each other, and one that does
//! not. Nothing here needs a privilege.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::program::{self, Ends};
use paravane_tests::vbusd::Vbusd;
use paravane_tests::vm;
use std::process::{Command, Stdio};

/// Bytes of the file that is sent.
const MIB: u64 = 32;
/// Most bytes of TCP's payload in a frame of the MTU.
const SEGMENT: u64 = 1448;

/// A machine on the bus, whose script runs with its address set.
fn machine(vbusd: &Vbusd, address: &str, script: &str) -> Command {
    let own = match address.strip_prefix('[') {
        Some(six) => format!("{}/64", six.trim_end_matches(']')),
        None => format!("{address}/24"),
    };
    // No other card has this address, so Linux need not ask for it, which takes a second.
    let script = format!(
        "echo 0 > /proc/sys/net/ipv6/conf/eth0/accept_dad
         ip link set eth0 up && ip addr add {own} dev eth0 || exit 9\n{script}"
    );
    let net = ["--net", "bus:lan/lan-switch", "--timeout", "120"];
    let mut command = vm::command(net);
    command.args(["--", "sh", "-c", &script]);
    command.env("XDG_STATE_HOME", vbusd.state.path());
    command
}

/// Serves a file over HTTP.
fn serve(vbusd: &Vbusd, address: &str) -> Ends {
    let script = format!(
        "mkdir /tmp/w; dd if=/dev/urandom of=/tmp/w/file bs=1M count={MIB} 2>/dev/null
         sha256sum < /tmp/w/file > /tmp/w/sum; httpd -p 80 -h /tmp/w; echo ready; sleep 1000"
    );
    let mut command = machine(vbusd, address, &script);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    assert_eq!(program::first_line(&mut child), "ready\n");
    Ends(child)
}

/// A figure of the switch.
fn figure(vbusd: &Vbusd, name: &str) -> u64 {
    let shown = vbusd.done(&["show", "lan-switch", name]);
    shown.trim().parse().unwrap()
}

/// What the switch did while a machine fetched the file: frames passed on, segments cut, checksums
/// completed.
fn fetch(vbusd: &Vbusd, address: &str, from: &str) -> [u64; 3] {
    let all = ["rx-packets", "made-segments", "made-checksums"];
    let figures = || all.map(|name| figure(vbusd, name));
    let before = figures();
    let script = format!(
        "wget -q -O - http://{from}/file | sha256sum > /tmp/mine
         wget -q -O - http://{from}/sum > /tmp/theirs
         cmp /tmp/mine /tmp/theirs && echo same"
    );
    let run = program::finish(&mut machine(vbusd, address, &script));
    assert_eq!((run.code, run.stdout.as_str()), (0, "same\n"), "{run:?}");
    let after = figures();
    [0, 1, 2].map(|number| after[number] - before[number])
}

#[test]
fn guests_that_agree_exchange_long_segments_and_one_that_does_not_gets_short_ones() {
    exchange(|host| format!("10.8.0.{host}"));
}

#[test]
fn segments_over_ipv6_are_as_long() {
    exchange(|host| format!("[fd00:8::{host}]"));
}

/// `address` makes that of a machine.
fn exchange(address: impl Fn(u32) -> String) {
    let vbusd = Vbusd::start(&["lan"]);
    vbusd.done(&["set", "lan-switch", "lossless=1"]);
    let whole = (MIB << 20) / SEGMENT;
    let _first = serve(&vbusd, &address(1));
    let [frames, segments, _] = fetch(&vbusd, &address(2), &address(1));
    // Acknowledgements are among them.
    assert!(frames < whole / 4, "{frames} frames, {whole} segments");
    assert_eq!(segments, 0);
    // Those that come now agree on nothing.
    vbusd.done(&["set", "lan-switch", "offload=0"]);
    let _plain = serve(&vbusd, &address(3));
    let [frames, segments, checksums] = fetch(&vbusd, &address(4), &address(1));
    assert!(frames >= whole, "{frames} frames, {whole} segments");
    assert!(segments >= whole, "{segments} of {whole} segments");
    // Of frames that are no long segments, such as the connection's first.
    assert!(checksums > 0);
    vbusd.done(&["set", "lan-switch", "offload=1"]);
    let [frames, segments, _] = fetch(&vbusd, &address(5), &address(3));
    assert!(frames >= whole, "{frames} frames, {whole} segments");
    // The sender has cut them.
    assert!(segments < whole / 100, "{segments} segments");
}
