// SPDX-License-Identifier: Apache-2.0 OR MIT
//! No user's clients take what others need: sockets, connections, memory, descriptors.
//!
//! The tests run as root, since they need other users.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Daemon, FIRST, as_user, create_bus, join, memory, open_to_all};
use paravane_vbus_client::bus::{ConnectionId, Kind};
use paravane_vbus_client::protocol::{Reply, Request};
use paravane_vbus_client::{Control, Error};
use std::fs;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

/// A vbusd that other users reach. Users from [`FIRST`] on may join its bus.
fn daemon() -> Option<Daemon> {
    daemon_with("null")
}

/// A vbusd that other users reach, with a device of this class on the bus.
fn daemon_with(class: &str) -> Option<Daemon> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOT TESTED: that users leave others their share. Only root can become another.");
        return None;
    }
    let daemon = Daemon::with(class);
    open_to_all(&daemon);
    Some(daemon)
}

fn open(control: &mut Control, len: u64) -> Result<ConnectionId, Kind> {
    let request = Request::Open {
        interface: 1,
        version: 1,
    };
    match control.ask_with(&request, &[memory(len).as_fd()]) {
        Ok((Reply::Opened(id), _)) => Ok(id),
        Err(Error::Refused(error)) => Err(error.kind()),
        other => unreachable!("{other:?}"),
    }
}

/// Opens connections with as many clients as it takes. Returns how many were possible.
fn open_all(daemon: &Daemon, len: u64) -> (Vec<Control>, usize) {
    let (mut all, mut count) = (vec![], 0);
    while let Ok(mut control) = join(daemon) {
        let mut mine = 0;
        while open(&mut control, len).is_ok() {
            mine += 1;
        }
        all.push(control);
        count += mine;
        if mine == 0 {
            break;
        }
    }
    (all, count)
}

#[test]
fn many_users_do_not_lock_the_administrator_out() {
    let Some(daemon) = daemon() else {
        return;
    };
    let mut control = daemon.control();
    let mut all = vec![];
    for user in 0..8 {
        all.extend(as_user(FIRST + user, || {
            let all = (0..64).map(|_| {
                let mut control = Control::connect(&daemon.socket()).ok()?;
                // Refused, but not for the number of clients.
                match control.ask(&Request::Classes) {
                    Err(Error::Refused(error)) if error.kind() == Kind::Denied => Some(control),
                    _ => None,
                }
            });
            all.flatten().collect::<Vec<_>>()
        }));
    }
    assert!(all.len() > 200, "{}", all.len());
    create_bus(&mut control, "other");
    create_bus(&mut daemon.control(), "another");
}

#[test]
fn a_user_s_memory_leaves_some_for_others() {
    let Some(daemon) = daemon() else {
        return;
    };
    let (_all, count) = as_user(FIRST, || open_all(&daemon, 64 << 20));
    assert_eq!(count, 16, "a quarter of 4 GiB");
    as_user(FIRST + 1, || {
        open(&mut join(&daemon).unwrap(), 64 << 20).unwrap();
    });
}

/// A network takes memory and descriptors of vbusd, besides the client's own.
#[test]
fn a_user_s_networks_leave_some_for_others() {
    let Some(daemon) = daemon_with("venet-user") else {
        return;
    };
    let (_all, count) = as_user(FIRST, || open_all(&daemon, 64 << 10));
    assert!((1..=4).contains(&count), "{count} of 16");
    as_user(FIRST + 1, || {
        open(&mut join(&daemon).unwrap(), 64 << 10).unwrap();
    });
}

/// A user that has its part of the networks is refused before a network is made. Connections are
/// numbered, so none was opened between two of another user.
#[test]
fn a_card_that_is_refused_is_not_made() {
    let Some(daemon) = daemon_with("venet-user") else {
        return;
    };
    let (_all, count) = as_user(FIRST, || open_all(&daemon, 64 << 10));
    let mut control = join(&daemon).unwrap();
    let before = open(&mut control, 64 << 10).unwrap();
    as_user(FIRST, || {
        let mut control = join(&daemon).unwrap();
        for _ in 0..5 {
            assert_eq!(open(&mut control, 64 << 10), Err(Kind::Limit), "{count}");
        }
    });
    let after = open(&mut control, 64 << 10).unwrap();
    assert_eq!(after.0, before.0 + 1);
}

/// The host allows few descriptors.
#[test]
fn a_user_s_connections_leave_descriptors_for_others() {
    let Some(mut daemon) = daemon() else {
        return;
    };
    daemon.kill();
    fs::remove_file(daemon.socket()).unwrap();
    daemon.child = Command::new("sh")
        .args(["-c", "ulimit -n 700 && exec \"$0\" \"$1\""])
        .arg(env!("CARGO_BIN_EXE_vbusd"))
        .arg(daemon.folder.path())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    common::soon("it does not listen", || {
        Control::connect(&daemon.socket()).is_ok()
    });
    let (_all, count) = as_user(FIRST, || open_all(&daemon, 4096));
    assert!((16..200).contains(&count), "{count}");
    // A change is saved, and another user is served.
    create_bus(&mut daemon.control(), "other");
    as_user(FIRST + 1, || {
        open(&mut join(&daemon).unwrap(), 4096).unwrap();
    });
}
