// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices are added and dropped, reset, clients killed, and vbusd killed and started again, all
//! under load: for a few seconds, ten minutes with `PARAVANE_TEST_LONG`, or as many seconds as
//! `PARAVANE_TURMOIL_SECONDS` says.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Daemon, c_example, create_device, link, name, soon, unlink};
use paravane_vbus_client::protocol::Request;
use paravane_vbus_client::{Client, Control, Error};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How much more private memory a process may have after the turmoil, in KiB: what its heap keeps.
const MEMORY: u64 = 4096;

/// What a process has.
#[derive(Clone, Copy, Debug)]
struct Holdings {
    files: usize,
    threads: u64,
    /// Private memory, in KiB.
    memory: u64,
}

impl Holdings {
    fn of(process: u32) -> Self {
        let folder = format!("/proc/{process}");
        let status = std::fs::read_to_string(format!("{folder}/status")).unwrap();
        let field = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let value = line.unwrap().split_whitespace().next().unwrap();
            value.parse().unwrap()
        };
        Holdings {
            files: std::fs::read_dir(format!("{folder}/fd")).unwrap().count(),
            threads: field("Threads:"),
            memory: field("RssAnon:"),
        }
    }
}

/// Waits until a process has no more descriptors and threads than before, and compares its memory.
fn nothing_leaks(what: &str, process: u32, before: Holdings) {
    let now = || Holdings::of(process);
    soon(
        &format!("{what}: descriptors are left of {before:?}"),
        || now().files <= before.files,
    );
    soon(&format!("{what}: threads are left of {before:?}"), || {
        now().threads <= before.threads
    });
    let after = now();
    println!("{what}: {before:?}, then {after:?}");
    let more = after.memory.saturating_sub(before.memory);
    assert!(more <= MEMORY, "{what} has {more} KiB more");
}

/// Echoes numbers until the end, through whatever happens to the device. Nothing may be lost.
fn echo(mut client: Client, end: &AtomicBool) -> (u64, u64) {
    let (mut sent, mut next, mut losses) = (0u64, 0u64, 0);
    let mut packet = [0; 8];
    while !end.load(Ordering::Relaxed) || next < sent {
        while !end.load(Ordering::Relaxed) && client.send(&sent.to_le_bytes()).unwrap() {
            sent += 1;
        }
        while client.receive(&mut packet).unwrap().is_some() {
            let number = u64::from_le_bytes(packet);
            assert!(number <= next, "packets {next} to {number} are lost");
            next += u64::from(number == next);
        }
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

/// Clients that are killed while they send.
struct Victims<'a> {
    program: &'a std::path::Path,
    socket: std::path::PathBuf,
    all: Vec<Child>,
}

impl Victims<'_> {
    fn start(&mut self) {
        let child = Command::new(self.program)
            .arg(&self.socket)
            .args(["lan", "dev", "4000000000"])
            .stderr(Stdio::null())
            .spawn();
        self.all.push(child.unwrap());
    }

    fn kill_one(&mut self) {
        let mut victim = self.all.remove(0);
        victim.kill().unwrap();
        victim.wait().unwrap();
    }
}

/// One of the things that an administrator does.
fn change(control: &mut Control, round: u64) {
    match round % 3 {
        0 => {
            unlink(control, "lan", "dev");
            link(control, "lan", "dev");
        }
        1 => {
            let device = name("dev");
            control.ask(&Request::Reset { device }).unwrap();
        }
        _ => {
            let device = format!("extra-{round}");
            create_device(control, &device, "null");
            link(control, "lan", &device);
            unlink(control, "lan", &device);
            let device = name(&device);
            control.ask(&Request::RemoveDevice { device }).unwrap();
        }
    }
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
    // Half of the time with one vbusd after the other, half with the last of them.
    let half = Duration::from_secs(seconds()) / 2;
    let mut daemon = Daemon::with("echo");
    let (_folder, program) = c_example();
    let end = AtomicBool::new(false);
    let here = Holdings::of(std::process::id());
    let mut last = None;
    let (mut rounds, mut ends) = (0, 0);
    let totals = thread::scope(|scope| {
        let clients: Vec<_> = (0..2)
            .map(|_| {
                let (client, end) = (daemon.client(), &end);
                scope.spawn(move || echo(client, end))
            })
            .collect();
        let mut victims = Victims {
            program: &program,
            socket: daemon.socket(),
            all: Vec::new(),
        };
        for _ in 0..3 {
            victims.start();
        }
        let begun = Instant::now();
        while begun.elapsed() < half || ends < 2 {
            rounds += 1;
            thread::sleep(Duration::from_millis(30));
            if rounds % 5 == 0 {
                ends += 1;
                daemon.kill();
                // Clients and victims look for it meanwhile.
                thread::sleep(Duration::from_millis(rounds % 4 * 20));
                daemon.restart();
            }
            change(&mut daemon.control(), rounds);
            victims.kill_one();
            victims.start();
        }
        last = Some(Holdings::of(daemon.child.id()));
        let mut control = daemon.control();
        let (begun, with_ends) = (Instant::now(), rounds);
        while begun.elapsed() < half || rounds < with_ends + 12 {
            rounds += 1;
            thread::sleep(Duration::from_millis(30));
            change(&mut control, rounds);
            victims.kill_one();
            victims.start();
        }
        while !victims.all.is_empty() {
            victims.kill_one();
        }
        end.store(true, Ordering::Relaxed);
        let clients = clients.into_iter().map(|client| client.join().unwrap());
        clients.collect::<Vec<_>>()
    });
    for (sent, losses) in &totals {
        assert!(*sent > 100 && *losses > 3, "{totals:?}");
    }
    println!("{rounds} rounds, {ends} ends of vbusd, packets and reconnections: {totals:?}");
    let connections = || daemon.attribute("dev", "connections");
    soon("connections are left", || connections() == 0);
    assert_eq!(daemon.attribute("dev", "resets-broken"), 0);
    assert_eq!(daemon.control().buses().unwrap()[0].members, [0u64; 0]);
    let left = Holdings::of(daemon.child.id());
    let last = last.unwrap();
    println!("vbusd under load: {last:?}, at the end {left:?}");
    nothing_leaks("this process", std::process::id(), here);
    // Without clients it has what a new one has.
    let fresh = {
        let folder = tempfile::tempdir().unwrap();
        let mut child = common::spawn(folder.path());
        // It may still have the socket by which `spawn` has asked for it.
        thread::sleep(Duration::from_millis(200));
        let fresh = Holdings::of(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        fresh
    };
    let before = Holdings {
        memory: last.memory,
        ..fresh
    };
    nothing_leaks("vbusd", daemon.child.id(), before);
}
