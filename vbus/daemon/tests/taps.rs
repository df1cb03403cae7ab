// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What vbusd does to a tap of the host, in a network namespace of the test.
#![allow(clippy::unwrap_used)]

mod common;

// It is shared with a test that uses more of it.
#[allow(dead_code)]
#[path = "turmoil/namespace.rs"]
mod namespace;

use common::{Daemon, create_bus, link, name, soon};
use namespace::{Place, TAP};
use paravane_vbus_client::Client;
use paravane_vbus_client::bus::ethernet::cap;
use paravane_vbus_client::protocol::Request;
use rustix::net::{AddressFamily, SocketType, socket};
use std::os::fd::AsRawFd;

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
    client
        .reconnect(std::time::Duration::from_secs(20))
        .unwrap();
    soon("the tap has no offloads", || offloads() == [true; 2]);
}
