// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host that has no memory for a page of a client.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "../../../tests/src/skip.rs"]
mod skip;

use common::{Daemon, name, receive, soon};
use paravane_vbus_client::protocol::{Reply, Request, Shared};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::fs;
use std::os::fd::AsFd;

/// The test changes settings of the whole host, so it runs only where this is set: in a virtual
/// machine, as root.
const ALLOWED: &str = "PARAVANE_TEST_OVERCOMMIT";

/// A setting of the host's memory, which returns to its value.
struct Setting(&'static str, String);

impl Setting {
    fn set(name: &'static str, value: &str) -> Self {
        let path = format!("/proc/sys/vm/{name}");
        let before = fs::read_to_string(&path).unwrap();
        fs::write(path, value).unwrap();
        Setting(name, before.trim().to_string())
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let _ = fs::write(format!("/proc/sys/vm/{}", self.0), &self.1);
    }
}

/// KiB that all processes may use now.
fn committed() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|line| line.starts_with("Committed_AS"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.unwrap().parse().unwrap()
}

/// A client whose memory has holes loses its connection, and no other client notices.
#[test]
fn a_page_that_the_host_cannot_give_ends_one_connection() {
    if std::env::var_os(ALLOWED).is_none() {
        return skip::skip("changes the host's overcommit settings: PARAVANE_TEST_OVERCOMMIT asks");
    }
    let mut daemon = Daemon::with("echo");
    let mut other = daemon.client();
    let file = memfd_create(c"holes", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, 1 << 20).unwrap();
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, seals).unwrap();
    let mut control = daemon.control();
    control.ask(&Request::Join { bus: name("lan") }).unwrap();
    let open = Request::Open {
        interface: 1,
        version: 1,
    };
    let (opened, _files) = control.ask_with(&open, &[file.as_fd()]).unwrap();
    let Reply::Opened(connection) = opened else {
        unreachable!("{opened:?}");
    };
    let shared = Shared {
        queue: 0,
        offset: 0,
        count: 16,
    };
    let share = Request::Share { connection, shared };
    let answer = {
        let most = committed() / 2;
        let _kbytes = Setting::set("overcommit_kbytes", &most.to_string());
        let _mode = Setting::set("overcommit_memory", "2");
        control.ask(&share)
    };
    assert!(answer.is_err(), "{answer:?}");
    soon("its connection has not ended", || {
        daemon.attribute("dev", "connections") == 1
    });
    assert!(daemon.child.try_wait().unwrap().is_none());
    assert!(other.send(b"still there").unwrap());
    assert_eq!(receive(&mut other), b"still there");
}
