// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the thread of a card runs: apart from a vCPU that polls for its answers, on the CPU of a
//! vCPU that sleeps until they come, and only where the user lets it. `device_place.rs` tests
//! devices that do not poll.

// Alone: it watches where the host runs threads.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed setup fails the test.

use paravane_tests::net_server::{self, Server};
use paravane_tests::over::Over;
use paravane_tests::skip::skip;
use paravane_tests::worker::{COMMANDS, Worker};
use paravane_tests::{tree, wait};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Round trips of a measurement: some ten decisions of the card's place.
const TRIPS: u32 = 1000;
/// Other programs of the host can have a CPU for long: time until the card is where it belongs.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longer than a card looks for an answer.
const LATE: Duration = Duration::from_micros(400);

/// Where a card's thread may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// On all CPUs that it may use but the vCPU's.
    Apart,
    /// On the vCPU's CPU only.
    With,
    Free,
    /// The vCPU has just moved, maybe.
    Other,
}

fn tasks(process: u32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let name = |task: fs::DirEntry| task.file_name().to_str()?.parse().ok();
    tasks.filter_map(name).collect()
}

fn affinity(task: i32) -> Option<CpuSet> {
    sched_getaffinity(Some(Pid::from_raw(task)?)).ok()
}

fn card(monitor: u32) -> i32 {
    let named = |task: &i32| {
        let name = fs::read_to_string(format!("/proc/{monitor}/task/{task}/comm"));
        name.is_ok_and(|name| name == "net-user\n")
    };
    tasks(monitor).into_iter().find(named).unwrap()
}

/// The one CPU of the machine's vCPU.
fn cpu_of_vcpu(monitor: u32) -> Option<usize> {
    let sets = tree::spaces(monitor)
        .into_iter()
        .flat_map(tasks)
        .filter_map(affinity);
    let mut cpus: Vec<usize> = sets
        .filter(|set| set.count() == 1)
        .filter_map(|set| (0..CpuSet::MAX_CPU).find(|&cpu| set.is_set(cpu)))
        .collect();
    cpus.sort_unstable();
    cpus.dedup();
    // While it moves its threads have two.
    (cpus.len() == 1).then(|| cpus[0])
}

fn place(monitor: u32, card: i32, allowed: &CpuSet) -> Place {
    let (Some(cpu), Some(now)) = (cpu_of_vcpu(monitor), affinity(card)) else {
        return Place::Other;
    };
    let mut only = CpuSet::new();
    only.set(cpu);
    let mut but = *allowed;
    but.unset(cpu);
    if now == *allowed {
        Place::Free
    } else if now == only {
        Place::With
    } else if now == but {
        Place::Apart
    } else {
        Place::Other
    }
}

/// A server of one byte after another, each of which is answered late.
fn late_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            // The first byte says what the client wants: round trips.
            let mut byte = [0];
            let _ = stream.read(&mut byte);
            while let Ok(1) = stream.read(&mut byte) {
                thread::sleep(LATE);
                if stream.write_all(&byte).is_err() {
                    break;
                }
            }
        }
    });
    port
}

fn machine(options: &[&str]) -> Worker {
    Worker::start(None, COMMANDS, |folder| {
        net_server::compile(&folder.join("net"));
        let volume = format!("{}:/x:ro", folder.display());
        let words = [
            "--cpus",
            "1",
            "--net",
            "venet,loopback",
            "--volume",
            &volume,
        ];
        let words = [&words[..], options].concat();
        words.into_iter().map(String::from).collect()
    })
}

fn trips(machine: &mut Worker, port: u16) {
    machine.does(&format!(
        "/x/net client 10.0.2.2 {port} trip {TRIPS} >/dev/null"
    ));
}

/// Round trips, and where the card was during them.
fn watched_trips(machine: &mut Worker, port: u16, allowed: &CpuSet) -> Vec<Place> {
    let (monitor, over) = (machine.pid(), AtomicBool::new(false));
    let card = card(monitor);
    thread::scope(|scope| {
        let guard = Over(&over);
        let watch = scope.spawn(|| {
            let mut seen = Vec::new();
            while !over.load(Ordering::Relaxed) {
                seen.push(place(monitor, card, allowed));
                thread::sleep(Duration::from_millis(1));
            }
            seen
        });
        trips(machine, port);
        drop(guard);
        watch.join().unwrap()
    })
}

/// Round trips until the card was in a place while most of a round was made, or, for `a_while`, at
/// any time.
fn trips_until(machine: &mut Worker, port: u16, wanted: Place, a_while: bool) {
    let (allowed, begun) = (sched_getaffinity(None).unwrap(), Instant::now());
    loop {
        let seen = watched_trips(machine, port, &allowed);
        let count = seen.iter().filter(|place| **place == wanted).count();
        println!("{wanted:?}: {count} of {} looks", seen.len());
        if count * 2 > seen.len() || (a_while && count > 0) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "not {wanted:?}: {seen:?}");
    }
}

/// A card that is not optimized is mostly too late with the answer. So its trials apart fail, and
/// are all that there is to see.
const TRIALS_ONLY: bool = cfg!(debug_assertions);

fn has_two_cpus() -> bool {
    let two = sched_getaffinity(None).unwrap().count() > 1;
    if !two {
        skip("one CPU");
    }
    two
}

#[test]
fn a_card_leaves_a_vcpu_that_looks_and_comes_back_to_one_that_sleeps() {
    if !has_two_cpus() {
        return;
    }
    let mut machine = machine(&[]);
    let (_server, port) = Server::start(&machine.folder().join("net"));
    let late = late_server();
    trips_until(&mut machine, port, Place::Apart, TRIALS_ONLY);
    trips_until(&mut machine, late, Place::With, false);
    // Looks have failed meanwhile: it is tried again.
    trips_until(&mut machine, port, Place::Apart, TRIALS_ONLY);
    machine.end();
}

/// As `taskset -a -p` does it.
fn give(monitor: u32, cpus: &CpuSet) {
    for task in tasks(monitor) {
        // A thread may have ended meanwhile.
        let _ = sched_setaffinity(Pid::from_raw(task), cpus);
    }
}

#[test]
fn cpus_that_the_user_takes_away_and_gives_back_decide() {
    if !has_two_cpus() {
        return;
    }
    let mut machine = machine(&[]);
    let (_server, port) = Server::start(&machine.folder().join("net"));
    let (monitor, all) = (machine.pid(), sched_getaffinity(None).unwrap());
    let card = card(monitor);
    for wanted in [Place::Apart, Place::With] {
        // Whether the CPU that is left is the vCPU's or another one.
        trips_until(&mut machine, port, Place::Apart, TRIALS_ONLY);
        // It may be moving.
        let cpu = wait::some("the vCPU has one CPU", PATIENCE, || cpu_of_vcpu(monitor));
        let stays = |left: &usize| (*left == cpu) == (wanted == Place::With);
        let mut own = (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu));
        let mut one = CpuSet::new();
        one.set(own.find(stays).unwrap());
        give(monitor, &one);
        for _ in 0..5 {
            trips(&mut machine, port);
            assert!(affinity(card) == Some(one), "it has other CPUs");
        }
        give(monitor, &all);
    }
    trips_until(&mut machine, port, Place::Apart, TRIALS_ONLY);
    machine.end();
}

#[test]
fn without_the_heuristic_a_card_stays_where_the_host_puts_it() {
    let all = sched_getaffinity(None).unwrap();
    let mut machine = machine(&["--without", "device-place"]);
    let (_server, port) = Server::start(&machine.folder().join("net"));
    for port in [port, late_server()] {
        for _ in 0..3 {
            let seen = watched_trips(&mut machine, port, &all);
            let moved = |place: &Place| [Place::Apart, Place::With].contains(place);
            assert!(!seen.iter().any(moved), "{seen:?}");
        }
    }
    machine.end();
}
