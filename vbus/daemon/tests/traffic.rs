// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes on buses of a vbusd: they exchange packets, are isolated, and survive its death.
#![allow(clippy::unwrap_used)]

mod common;

use common::{
    Daemon, Ends, PATIENCE, Process, create_bus, create_device, link, name, receive, soon, spawn,
    unlink,
};
use paravane_vbus_client::bus::{ConnectionId, Event, Kind};
use paravane_vbus_client::protocol::{Reply, Request};
use paravane_vbus_client::{Client, Error, Woken};
use rustix::net::{RecvFlags, recv};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn frame(to: [u8; 6], from: [u8; 6], text: &[u8]) -> Vec<u8> {
    [&to[..], &from, &[8, 0], text].concat()
}

fn send(client: &mut Client, packet: &[u8]) {
    let deadline = Instant::now() + PATIENCE;
    while !client.send(packet).unwrap() {
        assert!(Instant::now() < deadline, "no room for a packet");
        client.wait(Some(Duration::from_secs(5)), true).unwrap();
    }
}

#[test]
fn clients_of_a_bus_exchange_frames_and_others_see_nothing() {
    let daemon = Daemon::with("venet-switch");
    let mut control = daemon.control();
    let (mut a, mut b) = (daemon.client(), daemon.client());
    let (mac_a, mac_b) = (a.mac().unwrap(), b.mac().unwrap());
    // This process is on the bus `lan` now, and may join no other.
    create_bus(&mut control, "wan");
    let mut spy = daemon.control();
    let Err(Error::Refused(error)) = spy.ask(&Request::Join { bus: name("wan") }) else {
        unreachable!("a process is on two buses");
    };
    assert_eq!(error.kind(), Kind::Busy);
    for number in 0..1000u32 {
        let there = frame(mac_b, mac_a, &number.to_le_bytes());
        send(&mut a, &there);
        assert_eq!(receive(&mut b), there);
        let back = frame(mac_a, mac_b, &number.to_le_bytes());
        send(&mut b, &back);
        assert_eq!(receive(&mut a), back);
    }
}

/// Another process, on another bus of the same vbusd, tries to reach the first bus by every number
/// that exists there.
#[test]
fn a_process_on_another_bus_reaches_nothing() {
    const SPY: &str = "PARAVANE_TEST_VBUS_SPY";
    if let Some(socket) = std::env::var_os(SPY) {
        spy(std::path::Path::new(&socket));
        return;
    }
    let daemon = Daemon::with("venet-switch");
    let mut control = daemon.control();
    create_bus(&mut control, "wan");
    create_device(&mut control, "other", "venet-switch");
    link(&mut control, "wan", "other");
    let (mut a, mut b) = (daemon.client(), daemon.client());
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_on_another_bus_reaches_nothing"])
        .env(SPY, daemon.socket())
        .spawn();
    let mut child = Process(child.unwrap());
    let deadline = Instant::now() + 2 * PATIENCE;
    // Frames for everybody, until the spy has ended.
    let (mac_a, mut frames) = (a.mac().unwrap(), 0);
    let status = loop {
        send(&mut a, &frame([0xff; 6], mac_a, b"for all"));
        receive(&mut b);
        frames += 1;
        if let Some(status) = child.0.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "the spy does not end");
    };
    assert!(status.success() && frames > 10, "{status} {frames}");
    assert_eq!(daemon.attribute("other", "rx-packets"), 0);
}

fn spy(socket: &std::path::Path) {
    let options = |bus: &str, device: &str| paravane_vbus_client::Options {
        socket: socket.to_path_buf(),
        bus: bus.to_string(),
        device: device.to_string(),
        count: 8,
        buffer: 2048,
    };
    let mut client = Client::connect(options("wan", "other")).unwrap();
    assert!(Client::connect(options("wan", "dev")).is_err());
    assert!(
        Client::connect(options("lan", "dev")).is_err(),
        "on two buses"
    );
    let mut control = paravane_vbus_client::Control::connect(socket).unwrap();
    control.ask(&Request::Join { bus: name("wan") }).unwrap();
    let Reply::Interfaces(seen) = control.ask(&Request::Interfaces).unwrap() else {
        unreachable!();
    };
    assert_eq!(
        seen.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(),
        ["other"]
    );
    for number in 0..20 {
        // Those of the first bus, and this process's own other connection.
        let connection = ConnectionId(number);
        for request in [
            Request::Call {
                connection,
                call: 2,
                argument: vec![],
            },
            Request::Close { connection },
        ] {
            let Err(Error::Refused(error)) = control.ask(&request) else {
                unreachable!("connection {number} is within reach");
            };
            assert_eq!(error.kind(), Kind::NotFound);
        }
    }
    // Broadcasts of the first bus.
    for _ in 0..10 {
        let woken = client.wait(Some(Duration::from_millis(50)), false);
        assert_ne!(woken, Ok(Woken::Event));
        assert_eq!(
            client.receive(&mut [0; 64]),
            Ok(None),
            "a frame of another bus"
        );
    }
}

/// The device looks for packets by itself while they keep coming, and is notified only when it has
/// found none for a while.
#[test]
fn a_busy_ring_causes_no_notification_and_an_idle_one_no_work() {
    const POLL: Duration = Duration::from_micros(2000);
    // A poll ends earlier if another program has the CPU for more than twice as long.
    const PAUSE: Duration = Duration::from_micros(90);
    let daemon = Daemon::with("null");
    let request = Request::SetAttribute {
        device: name("dev"),
        attribute: "poll-us".to_string(),
        value: POLL.as_micros().to_string(),
    };
    daemon.control().ask(&request).unwrap();
    let mut client = daemon.client();
    let packets = if std::env::var_os("PARAVANE_TEST_LONG").is_some() {
        3_000_000
    } else {
        30_000
    };
    // Pauses of this thread, which the host stops when it likes: each may let one poll be in vain.
    let (mut last, mut pauses) = (Instant::now(), 1);
    let mut progress = last;
    while client.statistics.sent < packets {
        let sent = client.send(&[7; 64]).unwrap();
        if !sent {
            thread::yield_now();
        }
        let now = Instant::now();
        if sent {
            progress = now;
        }
        assert!(now - progress < PATIENCE, "no room for a packet");
        pauses += u64::from(now - last > PAUSE);
        last = now;
    }
    soon("not all packets are delivered", || {
        client.reclaim().unwrap() == 0
    });
    let notified = client.statistics.notified;
    let [vain, skipped] = ["polls-vain", "polls-skipped"].map(|what| daemon.attribute("dev", what));
    println!("{packets} packets, {notified} notifications, {pauses} pauses, {vain} polls in vain");
    // The host may also stop vbusd, which this thread does not see.
    assert!(
        vain <= pauses + packets / 1000,
        "{vain} polls in vain, {pauses} pauses"
    );
    // The device was notified of the first packet, and then only when it did not poll.
    assert!(
        notified <= 1 + vain + skipped,
        "{notified} notifications, {vain} polls in vain, {skipped} left out"
    );
    assert_eq!(client.statistics.slept, 0);
    assert_eq!(
        daemon.attribute("dev", "tx-notified"),
        0,
        "the client never asked for it"
    );
    assert_eq!(daemon.attribute("dev", "tx-packets"), packets);
    // Idle: vbusd does not run at all.
    let switches = || daemon.status("voluntary_ctxt_switches");
    soon("vbusd does not come to rest", || {
        let before = switches();
        thread::sleep(Duration::from_millis(100));
        switches() == before
    });
    let (before, ticks) = (switches(), daemon.cpu_ticks());
    thread::sleep(Duration::from_secs(1));
    assert_eq!(
        (switches(), daemon.cpu_ticks()),
        (before, ticks),
        "an idle vbusd runs"
    );
}

/// `poll-us` has its first value. While the device has packets of a client, it does not want to be
/// notified of more, however fast the host runs either side.
#[test]
fn a_ring_that_is_never_empty_causes_no_notification() {
    let daemon = Daemon::with("null");
    assert_eq!(daemon.attribute("dev", "poll-us"), 40);
    // One thread of vbusd for several that send: it is slower than they are, and rings fill up.
    let clients = [(); 3].map(|()| {
        let mut options = daemon.options("lan", "dev");
        (options.count, options.buffer) = (1024, 256);
        Client::connect(options).unwrap()
    });
    thread::scope(|scope| {
        for client in clients {
            scope.spawn(|| keep_full(client));
        }
    });
}

/// Sends, and judges each packet before and after which the device had others all the time.
fn keep_full(mut client: Client) {
    const JUDGED: u32 = 20_000;
    // A few of them may have been returned already, unseen by this side, but fewer than this.
    const LEAST: u32 = 128;
    let deadline = Instant::now() + Duration::from_secs(60);
    // Number of the packet with which the device began to have that many.
    let (mut since, mut judged) = (None, 0);
    while judged < JUDGED {
        assert!(Instant::now() < deadline, "only {judged} packets judged");
        let notified = client.statistics.notified;
        if !client.send(&[7; 256]).unwrap() {
            thread::yield_now();
            continue;
        }
        let notified = client.statistics.notified - notified;
        let delivered = client.statistics.delivered;
        // The one before is among these, so the ring was not empty when this one came.
        if client.reclaim().unwrap() < LEAST {
            since = None;
            continue;
        }
        let first = *since.get_or_insert(client.statistics.sent);
        // It has worked since then. Before, it may have been about to sleep.
        if delivered >= first {
            let sent = client.statistics.sent;
            assert_eq!(notified, 0, "for packet {sent}, not empty since {first}");
            judged += 1;
        }
    }
}

/// The other direction: the device does not notify a client that polls, and does not notify a
/// client again that has not handled all frames yet.
#[test]
fn a_client_that_is_never_done_is_notified_once() {
    const FRAMES: u64 = 20_000;
    let daemon = Daemon::with("venet-switch");
    // The sender waits for the receiver's buffers, so there are frames for it all the time.
    let request = Request::SetAttribute {
        device: name("dev"),
        attribute: "lossless".to_string(),
        value: "1".to_string(),
    };
    daemon.control().ask(&request).unwrap();
    let (mut sender, mut client) = (daemon.client(), daemon.client());
    let mac = client.mac().unwrap();
    let counted = |what| daemon.attribute("dev", what);
    for (asks, expected) in [(false, 0), (true, 1)] {
        // All that came before is seen.
        while client.wait(Some(Duration::from_millis(200)), false) != Ok(Woken::Time) {
            while client.receive(&mut [0; 8]).unwrap().is_some() {}
        }
        assert!(!asks || client.rest(false), "there is a frame");
        bells(&client);
        let before = ["rx-notified", "rx-quiet"].map(counted);
        let (end, mut rung) = (AtomicBool::new(false), 0);
        let after = thread::scope(|scope| {
            let _ends = Ends(&end);
            let thread = scope.spawn(|| send_until(&mut sender, mac, &end));
            if asks {
                soon("it is not notified", || {
                    rung += bells(&client);
                    rung > 0
                });
            }
            take(&mut client, FRAMES);
            rung += bells(&client);
            let after = ["rx-notified", "rx-quiet"].map(counted);
            end.store(true, Ordering::Relaxed);
            thread.join().unwrap();
            after
        });
        let [notified, quiet] = [0, 1].map(|at| after[at] - before[at]);
        println!("{FRAMES} frames, {notified} notifications, {quiet} were not needed");
        assert_eq!((rung, notified), (expected, expected), "asks: {asks}");
        assert!(quiet >= FRAMES / 2, "{quiet}");
    }
}

/// Sends frames to this address, at most for two minutes.
fn send_until(client: &mut Client, to: [u8; 6], end: &AtomicBool) {
    let frame = frame(to, client.mac().unwrap(), &[7; 64]);
    let deadline = Instant::now() + Duration::from_secs(120);
    while !end.load(Ordering::Relaxed) && Instant::now() < deadline {
        if !client.send(&frame).unwrap() {
            thread::yield_now();
        }
    }
}

/// Receives `packets` packets, and never asks for a notification.
fn take(client: &mut Client, packets: u64) {
    let end = client.statistics.received + packets;
    let deadline = Instant::now() + Duration::from_secs(60);
    while client.statistics.received < end {
        assert!(Instant::now() < deadline, "the frames end");
        if client.receive(&mut [0; 8]).unwrap().is_none() {
            thread::yield_now();
        }
    }
}

/// Notifications of a client since the last call.
fn bells(client: &Client) -> u64 {
    let [bell, _] = client.files();
    let rung = recv(bell, &mut [0; 4096], RecvFlags::DONTWAIT);
    rung.map_or(0, |(count, _)| count as u64)
}

/// vbusd is killed and started again while an echo runs: every packet comes back, in order. A
/// packet that was under way may come twice.
#[test]
fn clients_continue_after_vbusd_was_killed() {
    let mut daemon = Daemon::with("echo");
    let mut client = daemon.client();
    let end = AtomicBool::new(false);
    let (kills, twice) = thread::scope(|scope| {
        let _ends = Ends(&end);
        let ended = &end;
        let killer = scope.spawn(move || {
            let mut kills = 0;
            while !ended.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(100));
                daemon.kill();
                thread::sleep(Duration::from_millis(20));
                daemon.child = spawn(daemon.folder.path());
                kills += 1;
            }
            kills
        });
        let begun = Instant::now();
        let (mut sent, mut next, mut twice) = (0u64, 0u64, 0u64);
        let mut progress = begun;
        while begun.elapsed() < Duration::from_secs(3) || next < sent {
            while begun.elapsed() < Duration::from_secs(3)
                && client.send(&sent.to_le_bytes()).unwrap()
            {
                sent += 1;
            }
            let (mut packet, last) = ([0; 8], next);
            while client.receive(&mut packet).unwrap().is_some() {
                let number = u64::from_le_bytes(packet);
                assert!(number <= next, "packets {next} to {number} are lost");
                twice += u64::from(number < next);
                next += u64::from(number == next);
            }
            if next > last {
                progress = Instant::now();
            }
            assert!(
                progress.elapsed() < PATIENCE,
                "it stands still at {next} of {sent}"
            );
            match client
                .wait(Some(Duration::from_secs(10)), sent > next)
                .and_then(|woken| {
                    while client.event()?.is_some() {}
                    Ok(woken)
                }) {
                Ok(_) => {}
                Err(Error::Lost(_)) => client.reconnect(Duration::from_secs(10)).unwrap(),
                Err(error) => unreachable!("{error}"),
            }
        }
        assert!(sent > 100, "only {sent} packets");
        soon("packets are not delivered", || {
            client.reclaim().unwrap() == 0
        });
        end.store(true, Ordering::Relaxed);
        (killer.join().unwrap(), twice)
    });
    assert!(kills >= 3, "{kills}");
    // At most the packets of a ring for each kill.
    assert!(
        twice <= kills * 64,
        "{twice} came twice after {kills} kills"
    );
}

#[test]
fn devices_come_and_go_and_clients_learn_of_it() {
    let daemon = Daemon::with("venet-switch");
    let mut control = daemon.control();
    let mut client = daemon.client();
    let mac = client.mac();
    create_device(&mut control, "second", "null");
    link(&mut control, "lan", "second");
    let second = daemon.options("lan", "second");
    // A wake-up may be for nothing.
    let added = (0..10).find_map(|_| {
        client.wait(Some(Duration::from_secs(5)), false).unwrap();
        client.event().unwrap()
    });
    assert!(
        matches!(added, Some(Event::Added { id: 2, .. })),
        "{added:?}"
    );
    assert!(Client::connect(second).is_ok());
    unlink(&mut control, "lan", "dev");
    let lost = (0..10).find_map(|_| {
        let woken = client.wait(Some(Duration::from_secs(5)), false);
        woken.and_then(|_| client.event()).err()
    });
    assert!(matches!(lost, Some(Error::Lost(_))), "{lost:?}");
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(100));
            link(&mut daemon.control(), "lan", "dev");
        });
        client.reconnect(Duration::from_secs(10)).unwrap();
    });
    assert_eq!(
        (client.interface().id, client.mac()),
        (3, mac),
        "it keeps its address"
    );
    let reset = control.ask(&Request::Reset {
        device: name("dev"),
    });
    assert_eq!(reset, Ok(Reply::Number(1)));
    client.reconnect(Duration::from_secs(10)).unwrap();
}
