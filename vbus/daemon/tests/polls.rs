// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When a device of vbusd polls: it does so where this pays off, and not at the cost of others.
// Alone: two programs keep all CPUs busy, and vbusd's CPU time is measured.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Daemon, Ends, receive, soon};
use paravane_vbus_client::Client;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Polls that won, those in vain, and opportunities that were left out.
fn polls(daemon: &Daemon) -> [u64; 3] {
    ["polls-won", "polls-vain", "polls-skipped"].map(|what| daemon.attribute("dev", what))
}

fn round_trip(client: &mut Client) {
    assert!(client.send(b"there and back").unwrap());
    assert_eq!(receive(client), b"there and back");
}

#[test]
fn polls_of_round_trips_win() {
    const TRIPS: u64 = 2000;
    let daemon = Daemon::with("echo");
    // As long as a busy host takes to let the client run.
    daemon.set("poll-us", "10000");
    let mut client = daemon.client();
    (0..TRIPS).for_each(|_| round_trip(&mut client));
    let [won, vain, skipped] = polls(&daemon);
    println!("{won} won, {vain} in vain, {skipped} left out");
    assert!(
        won >= TRIPS / 4,
        "{won} won, {vain} in vain, {skipped} left out"
    );
    // 0 turns it off.
    daemon.set("poll-us", "0");
    soon("it still polls", || {
        let before = polls(&daemon);
        thread::sleep(Duration::from_millis(20));
        polls(&daemon) == before
    });
    let before = polls(&daemon);
    (0..100).for_each(|_| round_trip(&mut client));
    assert_eq!(polls(&daemon), before, "it polls");
}

#[test]
fn a_client_that_sends_rarely_costs_almost_no_poll_and_an_idle_one_none() {
    const PACKETS: u64 = 300;
    let daemon = Daemon::with("echo");
    let mut client = daemon.client();
    for _ in 0..PACKETS {
        round_trip(&mut client);
        thread::sleep(Duration::from_millis(10));
    }
    let [won, vain, skipped] = polls(&daemon);
    println!("{won} won, {vain} in vain, {skipped} left out");
    // 2, and one after 4, 8, 16, 32, 64, 64 and 64. A host that stops vbusd in a poll until the
    // next packet lets it win, which it then tries again.
    assert!(won + vain <= PACKETS / 10, "{won} won, {vain} in vain");
    assert!(won + vain + skipped >= PACKETS, "{skipped} left out");
    let before = polls(&daemon);
    thread::sleep(Duration::from_secs(1));
    assert_eq!(polls(&daemon), before, "it polls for an idle client");
}

/// Each packet comes within `poll-us`, so every poll would win. But a program that does not profit
/// waits for the CPU.
#[test]
fn polls_leave_the_cpu_to_programs_that_do_not_profit() {
    const PACKETS: u32 = 400;
    const GAP: Duration = Duration::from_millis(5);
    let daemon = Daemon::with("echo");
    daemon.set("poll-us", "10000");
    let mut client = daemon.client();
    let mut one = CpuSet::new();
    let all = sched_getaffinity(None).unwrap();
    one.set((0..CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu)).unwrap());
    sched_setaffinity(Some(Pid::from_child(&daemon.child)), &one).unwrap();
    let end = AtomicBool::new(false);
    let (wall, ticks) = thread::scope(|scope| {
        let _ends = Ends(&end);
        let (end, one) = (&end, &one);
        for pinned in [true, false] {
            scope.spawn(move || {
                if pinned {
                    sched_setaffinity(None, one).unwrap();
                }
                while !end.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let (begun, before) = (Instant::now(), daemon.cpu_ticks());
        for _ in 0..PACKETS {
            round_trip(&mut client);
            thread::sleep(GAP);
        }
        (begun.elapsed(), daemon.cpu_ticks() - before)
    });
    let used = Duration::from_millis(10 * ticks);
    let [won, vain, skipped] = polls(&daemon);
    println!("{used:?} of {wall:?}: {won} won, {vain} in vain, {skipped} left out");
    // Without a yield, it would have its half.
    assert!(used < wall / 10, "vbusd ran {used:?} of {wall:?}");
}
