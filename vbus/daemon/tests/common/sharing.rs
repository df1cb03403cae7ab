// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients of a switch that share.
#![allow(dead_code, clippy::unwrap_used)]

use super::common::{Daemon, PATIENCE, soon};
use paravane_vbus_client::bus::limits;
use paravane_vbus_client::{Client, Terms};
use std::time::{Duration, Instant};

/// A frame that is long enough to be lent, and fits into a buffer.
pub const LONG: usize = 1800;

pub fn sharing(daemon: &Daemon) -> Client {
    let terms = Terms {
        sharing: true,
        ..Terms::default()
    };
    Client::connect_on(daemon.options("lan", "dev"), terms).unwrap()
}

/// A switch that lets its ports share.
pub fn switch() -> Daemon {
    let daemon = Daemon::with("venet-switch");
    daemon.set("share", "1");
    daemon
}

/// A frame whose bytes depend on a number.
pub fn frame(from: &Client, to: &Client, number: u32, len: usize) -> Vec<u8> {
    let head = [&to.mac().unwrap()[..], &from.mac().unwrap(), &[8, 0]].concat();
    let words = (0..).map(|word: u32| number.wrapping_add(word));
    let payload = words.flat_map(u32::to_le_bytes).take(len - head.len());
    head.into_iter().chain(payload).collect()
}

/// Takes events, as every client must that shares.
pub fn listen(client: &mut Client) {
    while client.event().unwrap().is_some() {}
}

/// Exchanges frames until the first one is lent.
pub fn acquaint(daemon: &Daemon, from: &mut Client, to: &mut Client) {
    let before = daemon.attribute("dev", "lent");
    soon("no frame is lent", || {
        listen(from);
        listen(to);
        let sent = frame(from, to, 0, LONG);
        assert!(from.send(&sent).unwrap());
        assert_eq!(next(to), sent);
        daemon.attribute("dev", "lent") > before
    });
}

/// The next frame.
pub fn next(client: &mut Client) -> Vec<u8> {
    let mut packet = vec![0; limits::PACKET];
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(len) = client.receive(&mut packet).unwrap() {
            packet.truncate(len);
            return packet;
        }
        assert!(Instant::now() < deadline, "no packet");
        client.wait(Some(Duration::from_secs(1)), false).unwrap();
        listen(client);
    }
}
