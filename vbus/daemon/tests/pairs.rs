// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes with several pairs of queues at a switch of vbusd.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Daemon, create_device, link, name};
use paravane_vbus_client::protocol::Request;
use paravane_vbus_client::{Client, Error};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::{Duration, Instant};

const FLOWS: u8 = 24;
const PATIENCE: Duration = Duration::from_secs(20);

fn client(daemon: &Daemon, device: &str, pairs: u32) -> Result<Client, Error> {
    Client::connect_pairs(daemon.options("lan", device), 0, pairs)
}

/// A frame of a flow over UDP, with a number.
fn frame(to: [u8; 6], from: [u8; 6], flow: u8, number: u32) -> Vec<u8> {
    let mut frame = [&to[..], &from, &[8, 0, 0x45]].concat();
    frame.resize(42, 0);
    frame[23] = 17;
    frame[26..34].copy_from_slice(&[10, 8, 0, 1, 10, 8, 0, 2]);
    frame[34..38].copy_from_slice(&[0x40, flow, 0, 80]);
    frame.extend(number.to_le_bytes());
    frame
}

/// What a receiver has of the flows: the next number of each, and the pairs by which it came.
#[derive(Default)]
struct Seen {
    next: BTreeMap<u8, u32>,
    pairs: BTreeMap<u8, BTreeSet<usize>>,
}

impl Seen {
    fn take(&mut self, client: &mut Client) {
        let mut frame = [0; 64];
        while let Some(length) = client.receive(&mut frame).unwrap() {
            let (flow, number) = (frame[35], frame[42..length].try_into().unwrap());
            let number = u32::from_le_bytes(number);
            let next = self.next.entry(flow).or_default();
            // After another vbusd has come some are there twice.
            assert!(number <= *next, "flow {flow}: {number} before {next}");
            *next = (number + 1).max(*next);
            self.pairs.entry(flow).or_default().insert(client.pair());
        }
    }
}

/// Sends frames of all flows with these numbers, and checks what arrives.
fn send(from: &mut Client, to: &mut Client, seen: &mut Seen, numbers: Range<u32>) {
    let (source, target) = (from.mac().unwrap(), to.mac().unwrap());
    for number in numbers {
        for flow in 0..FLOWS {
            let frame = frame(target, source, flow, number);
            let begun = Instant::now();
            while !from.send(&frame).unwrap() {
                assert!(begun.elapsed() < PATIENCE, "there is no room");
                seen.take(to);
            }
        }
        seen.take(to);
    }
}

/// Frames of many flows use all pairs, and each keeps its order and loses nothing, with a receiver
/// that has as many pairs and with one that has one, also when another vbusd comes.
#[test]
fn flows_use_all_pairs_and_lose_nothing_when_vbusd_dies() {
    let mut daemon = Daemon::with("venet-switch");
    let lossless = Request::SetAttribute {
        device: name("dev"),
        attribute: "lossless".to_string(),
        value: "1".to_string(),
    };
    daemon.control().ask(&lossless).unwrap();
    for pairs in [4, 1] {
        let mut from = client(&daemon, "dev", 4).unwrap();
        let mut to = client(&daemon, "dev", pairs).unwrap();
        assert_eq!((from.pairs(), to.pairs()), (4, pairs as usize));
        let (mac, mut seen) = (to.mac(), Seen::default());
        for round in 0..5 {
            let first = round * 100;
            send(&mut from, &mut to, &mut seen, first..first + 100);
            // Frames are under way.
            daemon.restart();
            // A frame for an address that is not there is lost.
            to.reconnect(PATIENCE).unwrap();
            from.reconnect(PATIENCE).unwrap();
            assert_eq!((to.mac(), from.pairs()), (mac, 4));
        }
        let begun = Instant::now();
        while seen.next.values().any(|&next| next < 500) {
            assert!(begun.elapsed() < PATIENCE, "{:?}", seen.next);
            to.wait(Some(Duration::from_millis(100)), false).unwrap();
            seen.take(&mut to);
        }
        assert_eq!(seen.next.len(), usize::from(FLOWS));
        assert!(seen.pairs.values().all(|pairs| pairs.len() == 1));
        let used: BTreeSet<_> = seen.pairs.values().flatten().collect();
        assert_eq!(used.len(), pairs as usize, "{used:?}");
    }
}

/// A client gets no more pairs than its device has.
#[test]
fn a_client_has_the_pairs_that_its_device_has() {
    let daemon = Daemon::with("venet-switch");
    create_device(&mut daemon.control(), "mirror", "echo");
    link(&mut daemon.control(), "lan", "mirror");
    for (device, wanted, pairs) in [("dev", 8, 8), ("dev", 3, 3), ("mirror", 8, 1)] {
        let client = client(&daemon, device, wanted).unwrap();
        assert_eq!(client.pairs(), pairs, "{device}");
    }
    let mut mirror = client(&daemon, "mirror", 8).unwrap();
    assert!(mirror.send(b"one").unwrap());
    assert_eq!(common::receive(&mut mirror), b"one");
    for wanted in [0, 9, u32::MAX] {
        let refused = client(&daemon, "dev", wanted);
        assert!(matches!(refused, Err(Error::Invalid(_))), "{wanted}");
    }
}
