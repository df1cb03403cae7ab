// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices are added and dropped, reset, and clients killed, all under load; ten minutes of it with
//! `PARAVANE_TEST_LONG`.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Daemon, c_example, create_device, link, name, soon, unlink};
use paravane_vbus_client::protocol::Request;
use paravane_vbus_client::{Client, Error};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

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

#[test]
fn nothing_is_lost_and_nothing_leaks_in_turmoil() {
    let long = std::env::var_os("PARAVANE_TEST_LONG").is_some();
    let time = Duration::from_secs(if long { 600 } else { 4 });
    let daemon = Daemon::with("echo");
    let (_folder, program) = c_example();
    let files = daemon.files();
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..2)
            .map(|_| {
                let (client, end) = (daemon.client(), &end);
                scope.spawn(move || echo(client, end))
            })
            .collect();
        let mut control = daemon.control();
        let start = || -> Child {
            Command::new(&program)
                .arg(daemon.socket())
                .args(["lan", "dev", "4000000000"])
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        };
        let mut victims: Vec<Child> = (0..3).map(|_| start()).collect();
        let (begun, mut rounds) = (Instant::now(), 0);
        while begun.elapsed() < time || rounds < 24 {
            rounds += 1;
            thread::sleep(Duration::from_millis(30));
            match rounds % 3 {
                0 => {
                    unlink(&mut control, "lan", "dev");
                    link(&mut control, "lan", "dev");
                }
                1 => drop(
                    control
                        .ask(&Request::Reset {
                            device: name("dev"),
                        })
                        .unwrap(),
                ),
                _ => {
                    let device = format!("extra-{rounds}");
                    create_device(&mut control, &device, "null");
                    link(&mut control, "lan", &device);
                    unlink(&mut control, "lan", &device);
                    let device = name(&device);
                    control.ask(&Request::RemoveDevice { device }).unwrap();
                }
            }
            let mut victim = victims.remove(0);
            victim.kill().unwrap();
            victim.wait().unwrap();
            victims.push(start());
        }
        for mut victim in victims {
            victim.kill().unwrap();
            victim.wait().unwrap();
        }
        end.store(true, Ordering::Relaxed);
        for client in clients {
            let (sent, losses) = client.join().unwrap();
            assert!(sent > 100 && losses > 3, "{sent} packets, {losses} losses");
        }
        println!("{rounds} rounds");
    });
    let connections = || daemon.attribute("dev", "connections");
    soon("connections are left", || connections() == 0);
    assert_eq!(daemon.attribute("dev", "resets-broken"), 0);
    // The control socket of `attribute` has ended, too.
    soon("descriptors are left", || daemon.files() == files);
    assert_eq!(daemon.control().buses().unwrap()[0].members, [0u64; 0]);
}
