// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cards that lead out of a bus, by the user-mode network: each client has a router for itself.
//! `tests/tests/vbus_outside.rs` has taps and guests.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Daemon, memory, name, receive, soon};
use paravane_vbus_client::bus::Event;
use paravane_vbus_client::protocol::{Reply, Request, Shared};
use paravane_vbus_client::{Client, Error};
use paravane_vbus_shm::layout::{self, Descriptor, Ioq, Side, Signal};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::fs::{self, File};
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

const OWN: [u8; 4] = [10, 0, 2, 15];
const ROUTER: [u8; 4] = [10, 0, 2, 2];

/// A question by ARP.
fn question(client: &Client) -> Vec<u8> {
    let mac = client.mac().unwrap();
    let head = [8, 6, 0, 1, 8, 0, 6, 4, 0, 1];
    [&[0xff; 6], &mac[..], &head, &mac, &OWN, &[0; 6], &ROUTER].concat()
}

/// The client asks for the router's address, and gets it.
fn ask(client: &mut Client) {
    assert!(client.send(&question(client)).unwrap());
    let answer = receive(client);
    assert_eq!(answer[..6], client.mac().unwrap());
    assert_eq!(
        (&answer[12..14], &answer[20..22]),
        (&[8, 6][..], &[0, 2][..])
    );
    assert_eq!(answer[28..32], ROUTER);
}

/// How often its threads have slept.
fn wake_ups(daemon: &Daemon) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.child.id())).unwrap();
    let line = |task: std::io::Result<fs::DirEntry>| {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let mut lines = status.lines();
        let line = lines.find(|line| line.starts_with("voluntary_ctxt_switches"));
        line.unwrap().to_string()
    };
    tasks.map(line).collect()
}

#[test]
fn each_client_has_a_network_for_itself() {
    let mut daemon = Daemon::with("venet-user");
    let mut all = Vec::new();
    let full = loop {
        match Client::connect(daemon.options("lan", "dev")) {
            Ok(client) => all.push(client),
            Err(error) => break error.to_string(),
        }
    };
    // A host with few descriptors has room for fewer.
    let expected = if all.len() == 8 {
        "8 of 8"
    } else {
        "no descriptors"
    };
    assert!(full.contains(expected), "{full}");
    assert!((2..=8).contains(&all.len()), "{}", all.len());
    for client in &mut all {
        for _ in 0..3 {
            ask(client);
        }
    }
    let connections = daemon.attribute("dev", "connections");
    assert_eq!(connections, all.len() as u64);
    // A client goes, another comes.
    all.pop();
    soon("the place is not free", || {
        Client::connect(daemon.options("lan", "dev")).is_ok()
    });
    let mac = all[0].mac();
    daemon.restart();
    for client in &mut all {
        client.reconnect(Duration::from_secs(20)).unwrap();
        assert_eq!(client.mac(), mac);
        ask(client);
    }
    // An idle card sleeps, and so does vbusd.
    let rests = |time| {
        let before = wake_ups(&daemon);
        std::thread::sleep(Duration::from_millis(time));
        wake_ups(&daemon) == before
    };
    soon("vbusd does not come to rest", || rests(100));
    // What is late may still come once. A card that wakes up each second shows it each time.
    assert!((0..3).any(|_| rests(1000)), "an idle vbusd runs");
}

#[test]
fn a_reset_and_an_unlinked_device_end_connections() {
    let daemon = Daemon::with("venet-user");
    let mut client = daemon.client();
    ask(&mut client);
    let before = daemon.files();
    let device = name("dev");
    daemon.control().ask(&Request::Reset { device }).unwrap();
    let lost = |client: &mut Client| {
        let mut end = None;
        soon("the connection does not end", || {
            end = client.event().err();
            end.is_some()
        });
        end.unwrap()
    };
    let end = lost(&mut client);
    assert_eq!(end, Error::Lost("the device was reset".to_string()));
    client.reconnect(Duration::from_secs(20)).unwrap();
    ask(&mut client);
    common::unlink(&mut daemon.control(), "lan", "dev");
    lost(&mut client);
    common::link(&mut daemon.control(), "lan", "dev");
    for _ in 0..20 {
        client.reconnect(Duration::from_secs(20)).unwrap();
        ask(&mut client);
    }
    soon("descriptors are left", || daemon.files() <= before);
    drop(client);
    common::unlink(&mut daemon.control(), "lan", "dev");
    let device = name("dev");
    daemon
        .control()
        .ask(&Request::RemoveDevice { device })
        .unwrap();
}

const MEMORY: u64 = 64 << 10;
const COUNT: u32 = 4;

/// Writes an empty ring with this role at a place of the memory.
fn ring(memory: &File, start: u64, role: u64) {
    let put = |at: usize, value: u64| {
        let value = u32::try_from(value).unwrap().to_le_bytes();
        memory.write_all_at(&value, start + at as u64).unwrap();
    };
    let signal = offset_of!(Ioq, signal);
    put(offset_of!(Ioq, magic), layout::VBUS_IOQ_MAGIC);
    put(offset_of!(Ioq, version), layout::VBUS_IOQ_VERSION);
    put(offset_of!(Ioq, count), COUNT.into());
    put(offset_of!(Ioq, role), role);
    put(
        signal + offset_of!(Signal, magic),
        layout::VBUS_SIGNAL_MAGIC,
    );
    put(
        signal + offset_of!(Signal, version),
        layout::VBUS_SIGNAL_VERSION,
    );
    put(
        signal + offset_of!(Signal, sides) + offset_of!(Side, enabled),
        1,
    );
}

/// The client posts a frame outside of its memory.
#[test]
fn a_client_that_breaks_the_rules_loses_its_card_alone() {
    let daemon = Daemon::with("venet-user");
    let mut beside = daemon.client();
    ask(&mut beside);
    let mut control = daemon.control();
    control.ask(&Request::Join { bus: name("lan") }).unwrap();
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(memfd_create("test", flags).unwrap());
    file.set_len(MEMORY).unwrap();
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, seals).unwrap();
    ring(&file, 0, layout::VBUS_ROLE_RECEIVE);
    ring(&file, 0x1000, layout::VBUS_ROLE_TRANSMIT);
    let put = |at: usize, bytes: &[u8]| file.write_all_at(bytes, 0x1000 + at as u64).unwrap();
    let descriptor = size_of::<Ioq>();
    put(
        descriptor + offset_of!(Descriptor, ptr),
        &(MEMORY - 8).to_le_bytes(),
    );
    put(
        descriptor + offset_of!(Descriptor, len),
        &60u32.to_le_bytes(),
    );
    let south = u32::try_from(layout::VBUS_SOUTH).unwrap();
    put(
        descriptor + offset_of!(Descriptor, owner),
        &south.to_le_bytes(),
    );
    put(offset_of!(Ioq, valid_tail), &1u32.to_le_bytes());
    put(offset_of!(Ioq, inuse_tail), &1u32.to_le_bytes());
    let open = Request::Open {
        interface: 1,
        version: 1,
    };
    let (reply, _files) = control.ask_with(&open, &[file.as_fd()]).unwrap();
    let Reply::Opened(connection) = reply else {
        unreachable!();
    };
    for (queue, offset) in [(0, 0), (1, 0x1000)] {
        let shared = Shared {
            queue,
            offset,
            count: COUNT,
        };
        control.ask(&Request::Share { connection, shared }).unwrap();
    }
    control
        .ask(&Request::Call {
            connection,
            call: 0,
            argument: Vec::new(),
        })
        .unwrap();
    soon("it keeps its card", || {
        matches!(
            control.event().unwrap(),
            Some(Event::Closed { connection: it, why }) if it == connection
                && why.contains("broke the protocol")
        )
    });
    assert_eq!(daemon.attribute("dev", "resets-broken"), 1);
    assert_eq!(daemon.attribute("dev", "connections"), 1);
    ask(&mut beside);
}

/// Calls and queues that make no sense are refused, and end nothing.
#[test]
fn what_makes_no_sense_is_refused() {
    let daemon = Daemon::with("venet-user");
    let mut client = daemon.client();
    for (call, argument) in [
        (0, &[][..]),
        (3, &[0; 8]),
        (3, &[]),
        (18, &[0; 4]),
        (99, &[0; 1024]),
        (u32::MAX, &[]),
    ] {
        let refused = client.call(call, argument);
        assert!(matches!(refused, Err(Error::Refused(_))), "{call}");
    }
    ask(&mut client);
    let mut control = daemon.control();
    control.ask(&Request::Join { bus: name("lan") }).unwrap();
    let open = Request::Open {
        interface: 1,
        version: 1,
    };
    let file = memory(MEMORY);
    let (reply, _files) = control.ask_with(&open, &[file.as_fd()]).unwrap();
    let Reply::Opened(connection) = reply else {
        unreachable!();
    };
    for (queue, offset) in [(0, 0), (1, u64::MAX), (99, 0)] {
        let shared = Shared {
            queue,
            offset,
            count: COUNT,
        };
        let refused = control.ask(&Request::Share { connection, shared });
        assert!(matches!(refused, Err(Error::Refused(_))), "{queue}");
    }
}

#[test]
fn their_threads_are_confined() {
    let daemon = Daemon::start();
    let confined = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", daemon.child.id())).unwrap();
        let mut found: Vec<String> = tasks
            .filter_map(|task| {
                let folder = task.unwrap().path();
                let status = fs::read_to_string(folder.join("status")).unwrap();
                let name = status.lines().next()?.strip_prefix("Name:\t")?.to_string();
                status.contains("Seccomp:\t2\n").then_some(name)
            })
            .collect();
        found.sort();
        found
    };
    // It listens before the first thread is confined.
    let all = [
        "closer",
        "disks",
        "net-keeper",
        "networks",
        "tap-keeper",
        "taps",
        "vbusd",
    ];
    soon("a thread is not confined", || confined() == all);
}
