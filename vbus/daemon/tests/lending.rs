// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients of a switch that share: vbusd copies no payload between them, and neither delays the
//! other.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/sharing.rs"]
mod sharing;

use common::{Daemon, Ends, PATIENCE, Process, name, soon, spawn};
use paravane_vbus_client::bus::Event;
use paravane_vbus_client::protocol::{Reply, Request};
use paravane_vbus_client::{Client, Error, Terms};
use sharing::{LONG, acquaint, frame, listen, next, sharing, switch};
use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn vbusd_copies_no_payload_between_two_that_share() {
    let daemon = switch();
    let (mut a, mut b) = (sharing(&daemon), sharing(&daemon));
    assert!(a.shares() && b.shares());
    assert_eq!(daemon.attribute("dev", "sharing"), 2);
    acquaint(&daemon, &mut a, &mut b);
    acquaint(&daemon, &mut b, &mut a);
    let figure = |name: &str| daemon.attribute("dev", name);
    let before = ["copied", "copied-bytes", "lent", "lent-bytes", "rx-bytes"].map(figure);
    for number in 0..1000 {
        let there = frame(&a, &b, number, LONG);
        assert!(a.send(&there).unwrap());
        assert_eq!(next(&mut b), there);
        let back = frame(&b, &a, !number, LONG);
        assert!(b.send(&back).unwrap());
        assert_eq!(next(&mut a), back);
    }
    let after = ["copied", "copied-bytes", "lent", "lent-bytes", "rx-bytes"].map(figure);
    let more: Vec<u64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
    let all = 2000 * LONG as u64;
    assert_eq!(more, [0, 0, 2000, all - 2000 * 288, all]);
    // Short frames are copied.
    let short = frame(&a, &b, 1, 300);
    assert!(a.send(&short).unwrap());
    assert_eq!(next(&mut b), short);
    assert_eq!(figure("copied"), after[0] + 1);
}

#[test]
fn where_one_does_not_agree_vbusd_copies() {
    let daemon = Daemon::with("venet-switch");
    let (mut a, mut plain) = (sharing(&daemon), daemon.client());
    assert!(!a.shares(), "the switch does not");
    daemon.set("share", "1");
    let mut b = sharing(&daemon);
    assert!(b.shares());
    for number in 0..100 {
        let pass = |from: &mut Client, to: &mut Client| {
            listen(from);
            let sent = frame(from, to, number, LONG);
            assert!(from.send(&sent).unwrap());
            assert_eq!(next(to), sent);
        };
        pass(&mut a, &mut b);
        pass(&mut b, &mut plain);
        pass(&mut plain, &mut a);
    }
    let figures = ["copied", "lent", "sharing"];
    let found = figures.map(|figure| daemon.attribute("dev", figure));
    assert_eq!(found, [300, 0, 1]);
    // A device of another class shares nothing, and works as ever.
    let daemon = Daemon::with("echo");
    let mut echo = sharing(&daemon);
    assert!(!echo.shares());
    let sent = vec![7; LONG];
    assert!(echo.send(&sent).unwrap());
    assert_eq!(next(&mut echo), sent);
}

/// The events that a client needs to share are kept when others are lost.
#[test]
fn sharing_goes_on_after_events_were_lost() {
    let daemon = switch();
    let (mut a, mut b) = (sharing(&daemon), sharing(&daemon));
    acquaint(&daemon, &mut a, &mut b);
    let mut control = daemon.control();
    common::create_device(&mut control, "spare", "null");
    let mut change = |times: usize| {
        for _ in 0..times {
            common::link(&mut control, "lan", "spare");
            common::unlink(&mut control, "lan", "spare");
        }
    };
    // More than the socket and vbusd's queue hold. `b` takes no event.
    change(200);
    let mut c = sharing(&daemon);
    acquaint(&daemon, &mut a, &mut c);
    // The announcement of `c` to `b` is the oldest event after these.
    change(40);
    let mut lost = 0;
    soon("no event was lost", || {
        while let Some(event) = b.event().unwrap() {
            lost += u32::from(event == Event::Lost);
        }
        lost > 0
    });
    acquaint(&daemon, &mut c, &mut b);
    acquaint(&daemon, &mut b, &mut c);
}

/// Another process that shares, and reads nothing.
const IDLE: &str = "PARAVANE_TEST_VBUS_IDLE";

/// Runs only as a process of the test below.
#[test]
fn an_idle_receiver() {
    let Some(folder) = std::env::var_os(IDLE) else {
        return;
    };
    let options = paravane_vbus_client::Options {
        socket: std::path::Path::new(&folder).join("socket"),
        bus: "lan".to_string(),
        device: "dev".to_string(),
        count: 64,
        buffer: 2048,
    };
    let terms = Terms {
        sharing: true,
        ..Terms::default()
    };
    let mut client = Client::connect_on(options, terms).unwrap();
    loop {
        let _ = client.wait(None, false);
        listen(&mut client);
        thread::sleep(Duration::from_millis(5));
    }
}

/// A receiver that takes nothing holds half of the slots, and no other is slower for it. When it is
/// killed, they are free.
#[test]
fn a_receiver_that_stops_or_dies_holds_nobody() {
    let daemon = switch();
    let mut a = sharing(&daemon);
    let idle = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "an_idle_receiver"])
        .env(IDLE, daemon.folder.path())
        .spawn();
    let mut idle = Process(idle.unwrap());
    soon("the other does not share", || {
        daemon.attribute("dev", "sharing") == 2
    });
    // The address after its own.
    let mut mac = a.mac().unwrap();
    mac[5] += 1;
    let lent = || daemon.attribute("dev", "lent");
    let to_idle = |a: &Client| {
        let head = [&mac[..], &a.mac().unwrap(), &[8, 0]].concat();
        let payload = std::iter::repeat_n(9, LONG - head.len());
        head.into_iter().chain(payload).collect::<Vec<u8>>()
    };
    soon("nothing is lent to it", || {
        listen(&mut a);
        let frame = to_idle(&a);
        let _ = a.send(&frame).unwrap();
        lent() > 0
    });
    let mut c = sharing(&daemon);
    acquaint(&daemon, &mut a, &mut c);
    for number in 0..2000 {
        let sent = frame(&a, &c, number, LONG);
        assert!(a.send(&sent).unwrap(), "{number}");
        assert_eq!(next(&mut c), sent);
        let frame = to_idle(&a);
        assert!(a.send(&frame).unwrap(), "{number}");
        soon("the sender waits", || a.reclaim().unwrap() == 0);
    }
    // Its queue is full, and it holds what it got. To the other, much is lent at a time.
    let at_once = |a: &mut Client, c: &mut Client| {
        let before = lent();
        for number in 0..64 {
            let sent = frame(a, c, number, LONG);
            assert!(a.send(&sent).unwrap());
        }
        soon("the sender waits", || a.reclaim().unwrap() == 0);
        for number in 0..64 {
            assert_eq!(next(c), frame(a, c, number, LONG));
        }
        lent() - before
    };
    let some = at_once(&mut a, &mut c);
    assert!((16..64).contains(&some), "{some}");
    idle.0.kill().unwrap();
    idle.0.wait().unwrap();
    soon("it has not gone", || {
        daemon.attribute("dev", "sharing") == 2
    });
    soon("its slots are not free", || at_once(&mut a, &mut c) == 64);
}

fn again(client: &mut Client) {
    client.reconnect(PATIENCE).unwrap();
    assert!(client.shares());
}

/// Frames arrive as they were sent, also lent ones, while vbusd dies, the device is reset, and
/// receivers come and go.
#[test]
fn lent_frames_are_whole_while_vbusd_dies() {
    let mut daemon = switch();
    let (mut a, mut b) = (sharing(&daemon), sharing(&daemon));
    let (mac_a, mac_b) = (a.mac().unwrap(), b.mac().unwrap());
    let made = move |number: u32| {
        let head = [&mac_b[..], &mac_a, &[8, 0]].concat();
        let words = (0..).map(|word: u32| number.wrapping_add(word));
        let payload = words.flat_map(u32::to_le_bytes).take(LONG - head.len());
        head.into_iter().chain(payload).collect::<Vec<u8>>()
    };
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends(&ends);
        scope.spawn(|| {
            let mut number = 0;
            while !ends.load(Ordering::Relaxed) {
                let step = a.event().and_then(|_| a.send(&made(number)));
                match step {
                    Ok(true) => number += 1,
                    Ok(false) => match a.wait(Some(Duration::from_millis(10)), true) {
                        Ok(_) => {}
                        Err(Error::Lost(_)) => again(&mut a),
                        Err(other) => unreachable!("{other}"),
                    },
                    Err(Error::Lost(_)) => again(&mut a),
                    Err(other) => unreachable!("{other}"),
                }
            }
        });
        let mut packet = vec![0; 4096];
        let mut seen = BTreeSet::new();
        for round in 0..8 {
            let deadline = Instant::now() + PATIENCE;
            let (mut got, before) = (0, daemon.attribute("dev", "lent"));
            while got < 300 || daemon.attribute("dev", "lent") < before + 100 {
                assert!(Instant::now() < deadline, "{round}: {got}");
                let step = b.event().and_then(|_| b.receive(&mut packet));
                match step {
                    Ok(Some(len)) => {
                        let number = packet[14..].first_chunk().unwrap();
                        let number = u32::from_le_bytes(*number);
                        assert!(packet[..len] == made(number), "frame {number} is torn");
                        seen.insert(number);
                        got += 1;
                    }
                    Ok(None) => match b.wait(Some(Duration::from_millis(10)), false) {
                        Ok(_) => {}
                        Err(Error::Lost(_)) => again(&mut b),
                        Err(other) => unreachable!("{other}"),
                    },
                    Err(Error::Lost(_)) => again(&mut b),
                    Err(other) => unreachable!("{other}"),
                }
            }
            if round % 2 == 0 {
                daemon.kill();
                daemon.child = spawn(daemon.folder.path());
            } else {
                let device = name("dev");
                let reset = daemon.control().ask(&Request::Reset { device });
                assert!(matches!(reset, Ok(Reply::Number(_))));
            }
        }
        assert!(seen.len() > 2000);
    });
}
