// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices of every class are added and dropped, reset, clients killed, the file of a disk loses
//! its name and a tap disappears, and vbusd is killed and started again, all under load: for a few
//! seconds, ten minutes with `PARAVANE_TEST_LONG`, or as many seconds as `PARAVANE_TURMOIL_SECONDS`
//! says.
#![allow(clippy::unwrap_used)]

mod common;

#[path = "turmoil/card.rs"]
mod card;
#[path = "turmoil/changes.rs"]
mod changes;
#[path = "turmoil/disk.rs"]
mod disk;
#[path = "turmoil/holdings.rs"]
mod holdings;
#[path = "turmoil/namespace.rs"]
mod namespace;
#[path = "turmoil/victims.rs"]
mod victims;

use card::{Server, Stream};
use changes::{CHANGES, Changes, furnish};
use common::{Daemon, Ends, PATIENCE, c_example, soon};
use disk::{Store, WRITERS};
use holdings::Holdings;
use namespace::Place;
use paravane_vbus_client::{Client, Disk, Error};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use victims::Victims;

/// How much more private memory a process may have after the turmoil, in KiB: what its heap keeps.
const MEMORY: u64 = 4096;
/// Streams on the user-mode network.
const USERS: u64 = 2;

/// Echoes numbers until the end, through whatever happens to the device. Nothing may be lost.
fn echo(mut client: Client, end: &AtomicBool) -> (u64, u64) {
    let (mut sent, mut next, mut losses) = (0u64, 0u64, 0);
    let (mut packet, mut progress) = ([0; 8], Instant::now());
    while !end.load(Ordering::Relaxed) || next < sent {
        while !end.load(Ordering::Relaxed) && client.send(&sent.to_le_bytes()).unwrap() {
            sent += 1;
        }
        let last = next;
        while client.receive(&mut packet).unwrap().is_some() {
            let number = u64::from_le_bytes(packet);
            assert!(number <= next, "packets {next} to {number} are lost");
            next += u64::from(number == next);
        }
        if next > last {
            progress = Instant::now();
        }
        assert!(
            progress.elapsed() < PATIENCE,
            "the echo stands still at {next} of {sent}"
        );
        let woken = client.wait(Some(Duration::from_secs(10)), sent > next);
        match woken.and_then(|_| {
            while client.event()?.is_some() {}
            Ok(())
        }) {
            Ok(()) => {}
            Err(Error::Lost(_)) => {
                losses += 1;
                client.reconnect(Duration::from_secs(20)).unwrap();
            }
            Err(error) => unreachable!("{error}"),
        }
    }
    (sent, losses)
}

fn connect(daemon: &Daemon, device: &str) -> Client {
    Client::connect(daemon.options("lan", device)).unwrap()
}

/// The resources of vbusd when each of its devices has had a client, and has none.
fn without_clients(daemon: &Daemon, devices: &[&str]) -> Holdings {
    for device in ["store", "spare"] {
        let disk = Disk::connect(&daemon.socket(), "lan", device, Duration::ZERO);
        drop(disk.unwrap());
    }
    let cards = devices
        .iter()
        .filter(|name| !["store", "spare"].contains(name));
    for device in cards {
        drop(connect(daemon, device));
    }
    nobody_is_connected(daemon, devices);
    // It may still have the socket by which this was asked.
    thread::sleep(Duration::from_millis(200));
    Holdings::of(daemon.child.id())
}

fn nobody_is_connected(daemon: &Daemon, devices: &[&str]) {
    for device in devices {
        soon(&format!("connections to {device} are left"), || {
            daemon.attribute(device, "connections") == 0
        });
    }
    soon("members are left", || {
        daemon.control().buses().unwrap()[0].members.is_empty()
    });
}

fn seconds() -> u64 {
    if let Some(seconds) = std::env::var_os("PARAVANE_TURMOIL_SECONDS") {
        return seconds.to_str().unwrap().parse().unwrap();
    }
    if std::env::var_os("PARAVANE_TEST_LONG").is_some() {
        600
    } else {
        4
    }
}

#[test]
fn nothing_is_lost_and_nothing_leaks_in_turmoil() {
    // The library of C is built where the network is, should it be needed.
    drop(c_example());
    match namespace::enter("nothing_is_lost_and_nothing_leaks_in_turmoil") {
        Place::Inside => turmoil(true),
        Place::NoTaps => turmoil(false),
        Place::Done => {}
    }
}

fn turmoil(taps: bool) {
    // Half of the time with one vbusd after the other, half with the last of them.
    let half = Duration::from_secs(seconds()) / 2;
    let mut daemon = Daemon::start();
    let store = Store::new(daemon.folder.path());
    let devices = furnish(&daemon, taps);
    let mut victims = Victims::new(&daemon);
    let fresh = without_clients(&daemon, &devices);
    let server = Server::new();
    let ways = (0..USERS).map(|_| card::USER);
    let ways = taps.then_some(card::TAP).into_iter().chain(ways);
    let here = Holdings::of(std::process::id());
    let (end, served) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut warm = None;
    let (mut rounds, mut ends) = (0, 0);
    thread::scope(|scope| {
        let _ends = [Ends(&end), Ends(&served)];
        let (store, end, served, server) = (&store, &end, &served, &server);
        let serves = scope.spawn(move || server.serve(served));
        let echoes: Vec<_> = (0..2)
            .map(|_| {
                let client = connect(&daemon, "dev");
                scope.spawn(move || echo(client, end))
            })
            .collect();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let socket = daemon.socket();
                scope.spawn(move || disk::write(&socket, writer, store, end))
            })
            .collect();
        let streams: Vec<_> = (0..)
            .zip(ways)
            .map(|(name, way)| {
                let stream = Stream::new(connect(&daemon, way.device), way, name, server);
                scope.spawn(move || (name, stream.run(end)))
            })
            .collect();
        victims.start_all();
        let changes = Changes { taps, store };
        let begun = Instant::now();
        while begun.elapsed() < half || rounds < CHANGES {
            rounds += 1;
            thread::sleep(Duration::from_millis(30));
            if rounds % 5 == 0 {
                ends += 1;
                daemon.kill();
                store.check();
                // Clients and victims look for it in this time.
                thread::sleep(Duration::from_millis(rounds % 4 * 20));
                daemon.restart();
            }
            changes.make(&mut daemon, rounds, true);
            victims.replace_one();
        }
        let (begun, with_ends) = (Instant::now(), rounds);
        while begun.elapsed() < half || rounds < with_ends + 2 * CHANGES {
            rounds += 1;
            thread::sleep(Duration::from_millis(30));
            changes.make(&mut daemon, rounds, false);
            victims.replace_one();
            if rounds == with_ends + CHANGES {
                let time = Duration::from_millis(100);
                warm = Some(Holdings::over(daemon.child.id(), time));
            }
        }
        victims.kill_all();
        end.store(true, Ordering::Relaxed);
        let mut packets = Vec::new();
        for echo in echoes {
            packets.push(("echo", echo.join().unwrap()));
        }
        for stream in streams {
            let (name, (acknowledged, losses)) = stream.join().unwrap();
            let received = server.received(name);
            assert!(
                received >= acknowledged,
                "stream {name}: {received} of {acknowledged} are there"
            );
            packets.push(("stream", (acknowledged, losses)));
        }
        served.store(true, Ordering::Relaxed);
        serves.join().unwrap();
        for writer in writers {
            writer.join().unwrap();
        }
        store.check();
        let without = store.refused.load(Ordering::SeqCst);
        println!(
            "{rounds} rounds, {ends} ends of vbusd; packets and reconnections: {packets:?}; \
             records: {:?}, {without} refused without a file",
            store.flushed
        );
        for (what, (sent, losses)) in packets {
            assert!(
                sent > 100 && losses > 3,
                "{what}: {sent} sent, {losses} losses"
            );
        }
        assert!(without > 0, "no writer found the file gone");
    });
    nobody_is_connected(&daemon, &devices);
    for device in &devices {
        let broken = daemon.attribute(device, "resets-broken");
        assert_eq!(broken, 0, "{device}");
    }
    here.are_all("this process", std::process::id(), MEMORY);
    // It has what it had before it had clients, and of its heap no more than in the middle.
    let mut before = fresh;
    before.memory = warm.unwrap().memory;
    before.are_all("vbusd", daemon.child.id(), MEMORY);
}
