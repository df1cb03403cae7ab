// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the priority of a connection is worth beside others that flood vbusd. Its latency at one
//! priority is compared with that at another one in turns of the same run, so that what else the
//! host does changes both.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Daemon, create_device, link};
use paravane_vbus_client::Client;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Clients that always have work for vbusd: four rounds of it.
const FLOODS: usize = 60;
/// Measurements at each priority, and round trips of one.
const TURNS: usize = 5;
const TRIPS: usize = 100;
/// How much later the low priority is served at least. It waits for 60 turns of vbusd, the high
/// one for at most 16.
const WORTH: u32 = 2;

/// Each client keeps its queue full of frames for all others, which cost vbusd much more than them.
fn flood(mut clients: Vec<Client>, over: &AtomicBool, passed: &AtomicU64) {
    let mut frame = [0xff; 2000];
    while !over.load(Ordering::Relaxed) {
        for client in &mut clients {
            while client.receive(&mut []).unwrap().is_some() {
                passed.fetch_add(1, Ordering::Relaxed);
            }
            frame[6..12].copy_from_slice(&client.mac().unwrap());
            while client.post(&frame).unwrap() {}
            client.flush();
        }
    }
}

/// The median of round trips, and the one that 99 of 100 are below.
fn trips(client: &mut Client) -> [Duration; 2] {
    let mut packet = [0; 64];
    let mut all: Vec<Duration> = (0..TRIPS)
        .map(|_| {
            let begun = Instant::now();
            assert_eq!(client.send(&[2; 64]), Ok(true));
            while client.receive(&mut packet).unwrap().is_none() {
                thread::yield_now();
            }
            begun.elapsed()
        })
        .collect();
    all.sort();
    [all[TRIPS / 2], all[TRIPS - 2]]
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort();
    all[all.len() / 2]
}

#[test]
fn a_high_priority_is_worth_something_beside_floods() {
    let daemon = Daemon::with("echo");
    let mut control = daemon.control();
    create_device(&mut control, "switch", "venet-switch");
    link(&mut control, "lan", "switch");
    let floods: Vec<Client> = (0..FLOODS)
        .map(|_| {
            let mut client = Client::connect(daemon.options("lan", "switch")).unwrap();
            client.set_priority(0).unwrap();
            client
        })
        .collect();
    let mut client = daemon.client();
    let (over, passed) = (AtomicBool::new(false), AtomicU64::new(0));
    let found = thread::scope(|scope| {
        scope.spawn(|| flood(floods, &over, &passed));
        let mut found = [0, 3].map(|_| [Vec::new(), Vec::new()]);
        for _ in 0..TURNS {
            for (priority, found) in [0, 3].into_iter().zip(&mut found) {
                client.set_priority(priority).unwrap();
                for (all, one) in found.iter_mut().zip(trips(&mut client)) {
                    all.push(one);
                }
            }
        }
        over.store(true, Ordering::Relaxed);
        found.map(|found| found.map(median))
    });
    let [low, high] = found;
    let passed = passed.load(Ordering::Relaxed);
    println!("median and p99: {low:?} at priority 0, {high:?} at 3; {passed} packets beside it");
    assert!(passed > 100_000, "there was no flood: {passed} packets");
    for (low, high) in low.into_iter().zip(high) {
        assert!(high * WORTH <= low, "{low:?} at priority 0, {high:?} at 3");
    }
}
