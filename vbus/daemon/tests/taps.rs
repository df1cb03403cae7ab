// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vbusd's use of a tap of the host, in a network namespace of the test.
#![allow(clippy::unwrap_used)]

mod common;

// It is shared with a test that uses more of it.
#[allow(dead_code)]
#[path = "turmoil/namespace.rs"]
mod namespace;

use common::{Daemon, create_bus, link, name, soon};
use namespace::{Place, TAP, ip};
use paravane_vbus_client::bus::ethernet::cap;
use paravane_vbus_client::protocol::Request;
use paravane_vbus_client::{Client, Woken};
use rustix::net::{AddressFamily, SocketType, socket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Whether the host gives frames without a checksum (`ETHTOOL_GTXCSUM`), and TCP segments longer
/// than the MTU (`ETHTOOL_GTSO`).
fn offloads() -> [bool; 2] {
    [0x16, 0x1e].map(|command| {
        // struct ethtool_value
        let mut value = [command, 0u32];
        // SAFETY: all zeroes are a valid `struct ifreq`.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(TAP.bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        // SAFETY: SIOCETHTOOL reads the request, and reads and writes the two words of `value`,
        // which outlive the call.
        let done = unsafe { libc::ioctl(socket.as_raw_fd(), 0x8946, &raw mut request) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        value[1] != 0
    })
}

/// A tap of the host stays when its client has gone. The next program that opens it must not get
/// unfinished frames.
#[test]
fn a_tap_has_the_offloads_of_its_client_and_no_longer() {
    match namespace::enter("a_tap_has_the_offloads_of_its_client_and_no_longer") {
        Place::Inside => {}
        Place::NoTaps | Place::Done => return,
    }
    let daemon = Daemon::start();
    let mut control = daemon.control();
    create_bus(&mut control, "lan");
    let request = Request::CreateDevice {
        device: name("out"),
        class: "venet-tap".to_string(),
        attributes: vec![("tap".to_string(), TAP.to_string())],
    };
    control.ask(&request).unwrap();
    link(&mut control, "lan", "out");
    for _ in 0..3 {
        let options = daemon.options("lan", "out");
        let client = Client::connect_with(options, cap::ALL).unwrap();
        soon("the tap has no offloads", || offloads() == [true; 2]);
        drop(client);
        soon("the tap keeps its offloads", || offloads() == [false; 2]);
        // A client without them comes after one that had them.
        let client = Client::connect(daemon.options("lan", "out")).unwrap();
        assert_eq!(offloads(), [false; 2]);
        drop(client);
    }
    let mut client = Client::connect_with(daemon.options("lan", "out"), cap::ALL).unwrap();
    soon("the tap has no offloads", || offloads() == [true; 2]);
    let mut daemon = daemon;
    daemon.restart();
    client.reconnect(Duration::from_secs(20)).unwrap();
    soon("the tap has no offloads", || offloads() == [true; 2]);
}

/// The host sends no frames by itself: it has no IPv6.
fn be_silent() {
    for which in ["all", "default"] {
        let file = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
        // A host without IPv6 has no such file.
        let _ = std::fs::write(file, "1");
    }
}

/// A bus with a card for each of these taps.
fn on_taps(taps: &[&str]) -> Daemon {
    let daemon = Daemon::start();
    let mut control = daemon.control();
    create_bus(&mut control, "lan");
    for tap in taps {
        let request = Request::CreateDevice {
            device: name(tap),
            class: "venet-tap".to_string(),
            attributes: vec![("tap".to_string(), (*tap).to_string())],
        };
        control.ask(&request).unwrap();
        link(&mut control, "lan", tap);
    }
    daemon
}

/// Waits for the client's link to be up, or down. Returns after how long it was.
fn becomes(client: &mut Client, up: bool) -> Duration {
    let begun = Instant::now();
    while client.link().unwrap() != up {
        let woken = client.wait(Some(Duration::from_secs(10)), false).unwrap();
        assert_ne!(woken, Woken::Time, "the link does not become {up}");
    }
    begun.elapsed()
}

/// How often the thread of taps has slept.
fn sleeps(daemon: &Daemon) -> u64 {
    let tasks = format!("/proc/{}/task", daemon.child.id());
    let mut tasks = std::fs::read_dir(tasks)
        .unwrap()
        .map(|task| task.unwrap().path());
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    let thread = tasks
        .find(|task| read(task.join("comm")).trim() == "taps")
        .unwrap();
    let status = read(thread.join("status"));
    let line = status
        .lines()
        .find(|line| line.starts_with("voluntary_ctxt_switches"));
    line.unwrap()
        .split_whitespace()
        .last()
        .unwrap()
        .parse()
        .unwrap()
}

/// A client learns at once, and not by the next frame, that its tap went down or up. It does not
/// learn of other clients' taps. It begins with the present state.
#[test]
fn a_client_hears_of_the_state_of_its_tap() {
    match namespace::enter("a_client_hears_of_the_state_of_its_tap") {
        Place::Inside => {}
        Place::NoTaps | Place::Done => return,
    }
    be_silent();
    ip("tuntap add vm1 mode tap");
    let mut daemon = on_taps(&[TAP, "vm1"]);
    let hearing = |daemon: &Daemon, tap| Client::connect_hearing(daemon.options("lan", tap), 0);
    let mut one = hearing(&daemon, TAP).unwrap();
    let mut two = hearing(&daemon, "vm1").unwrap();
    becomes(&mut two, false);
    assert!(one.link().unwrap());
    for _ in 0..3 {
        ip(&format!("link set {TAP} down"));
        becomes(&mut one, false);
        ip("link set vm1 up");
        becomes(&mut two, true);
        assert!(!one.link().unwrap());
        ip(&format!("link set {TAP} up"));
        becomes(&mut one, true);
        ip("link set vm1 down");
        becomes(&mut two, false);
        assert!(one.link().unwrap());
        // The burst of changes that are reported at once is used up.
        std::thread::sleep(Duration::from_millis(500));
    }
    // A name says nothing: the interface is the same.
    ip("link set vm1 name other");
    ip("link set other up");
    becomes(&mut two, true);
    ip("link set other name vm1");
    // So it is in another network namespace, from where no message comes.
    let mut other = std::process::Command::new("unshare");
    let mut other = other.args(["--net", "sleep", "1000"]).spawn().unwrap();
    let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
    let pid = other.id().to_string();
    soon("there is no other namespace", || of(&pid) != of("self"));
    ip(&format!("link set vm1 netns {pid}"));
    becomes(&mut two, false);
    let up = ["-t", &pid, "-n", "ip", "link", "set", "vm1", "up"];
    let done = std::process::Command::new("nsenter").args(up).status();
    assert!(done.unwrap().success());
    becomes(&mut two, true);
    other.kill().unwrap();
    other.wait().unwrap();
    // The state while vbusd is not running is reported when it runs again.
    ip(&format!("link set {TAP} down"));
    becomes(&mut one, false);
    daemon.restart();
    one.reconnect(Duration::from_secs(20)).unwrap();
    becomes(&mut one, false);
    ip(&format!("link set {TAP} up"));
    becomes(&mut one, true);
    // One that does not ask is not told, and no buffer of its own is used.
    drop(one);
    soon("the tap is not free", || {
        let Ok(mut client) = Client::connect(daemon.options("lan", TAP)) else {
            return false;
        };
        ip(&format!("link set {TAP} down"));
        // The first wait may end for what was before.
        let mut wait = || client.wait(Some(Duration::from_millis(300)), false);
        let woken = [wait(), wait()];
        assert_eq!((&woken[1], client.link()), (&Ok(Woken::Time), Ok(true)));
        // Its frames are lost during this, and nothing else.
        assert!(client.send(&[0x55; 60]).unwrap());
        soon("the frame is not taken", || client.reclaim() == Ok(0));
        ip(&format!("link set {TAP} up"));
        true
    });
}

/// The interfaces of a busy host do not keep vbusd busy. A change of a tap is reported
/// nevertheless, also where messages of the kernel were lost.
#[test]
fn changes_of_other_interfaces_wake_vbusd_rarely() {
    match namespace::enter("changes_of_other_interfaces_wake_vbusd_rarely") {
        Place::Inside => {}
        Place::NoTaps | Place::Done => return,
    }
    be_silent();
    ip("tuntap add vm1 mode tap");
    let daemon = on_taps(&[TAP]);
    let options = daemon.options("lan", TAP);
    let mut client = Client::connect_hearing(options, 0).unwrap();
    becomes(&mut client, true);
    std::thread::sleep(Duration::from_secs(1));
    let before = sleeps(&daemon);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(sleeps(&daemon), before, "an idle host wakes it");
    // Each line is some messages. One process does them all.
    let lines = "link set vm1 up\nlink set vm1 down\n".repeat(3000);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lines");
    std::fs::write(&file, lines).unwrap();
    let (begun, before) = (Instant::now(), sleeps(&daemon));
    let flood = |file: &std::path::Path| ip(&format!("-batch {}", file.display()));
    flood(&file);
    let (took, slept) = (begun.elapsed(), sleeps(&daemon) - before);
    println!("6000 changes in {took:?}: {slept} wake-ups");
    let pauses = u64::try_from(took.as_millis() / 100).unwrap();
    assert!(slept <= 2 * (pauses + 10), "{slept} wake-ups in {took:?}");
    // vbusd stands still, so that the kernel loses messages for it.
    let pid = rustix::process::Pid::from_child(&daemon.child);
    let signal = |signal| rustix::process::kill_process(pid, signal).unwrap();
    for state in ["down", "up"] {
        signal(rustix::process::Signal::STOP);
        flood(&file);
        ip(&format!("link set {TAP} {state}"));
        signal(rustix::process::Signal::CONT);
        becomes(&mut client, state == "up");
    }
}
