// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread of cards stands still, as a thread does that has not had a CPU for long. vbusd serves
//! all requests that do not need it, and answers the others when it continues.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Daemon, create_device, link, memory, name, receive, soon};
use paravane_vbus_client::protocol::{Reply, Request, encode};
use paravane_vbus_client::{Client, Error};
use std::fs;
use std::ptr::null_mut;
use std::thread;
use std::time::Duration;

const MACQUERY: u32 = 2;

/// A thread that stands while the value lives. A debugger may stop one thread of a process.
struct Stands(libc::pid_t);

/// One request of `ptrace` for a thread of a child of this process.
fn trace(request: libc::c_uint, thread: libc::pid_t) {
    let none: *mut libc::c_void = null_mut();
    // SAFETY: no request that is made here reads or writes memory of this process.
    let done = unsafe { libc::ptrace(request, thread, none, none) };
    assert_eq!(done, 0, "ptrace: {}", std::io::Error::last_os_error());
}

impl Stands {
    fn new(daemon: &Daemon, name: &str) -> Self {
        let tasks = fs::read_dir(format!("/proc/{}/task", daemon.child.id())).unwrap();
        let mut tasks = tasks.map(|task| task.unwrap());
        let found = tasks.find(|task| {
            let path = task.path().join("comm");
            fs::read_to_string(path).unwrap().trim_end() == name
        });
        let thread = found.unwrap().file_name().into_string().unwrap();
        let thread = thread.parse().unwrap();
        trace(libc::PTRACE_SEIZE, thread);
        trace(libc::PTRACE_INTERRUPT, thread);
        let mut status = 0;
        // SAFETY: writes the status only.
        let stopped = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
        assert!(stopped == thread && libc::WIFSTOPPED(status));
        Stands(thread)
    }
}

impl Drop for Stands {
    fn drop(&mut self) {
        trace(libc::PTRACE_DETACH, self.0);
    }
}

/// A device that returns packets, on vbusd's first thread.
fn echo(daemon: &Daemon) -> Client {
    create_device(&mut daemon.control(), "back", "echo");
    link(&mut daemon.control(), "lan", "back");
    Client::connect(daemon.options("lan", "back")).unwrap()
}

fn trips(echo: &mut Client, count: u32) {
    for number in 0..count {
        let packet = number.to_le_bytes();
        assert!(echo.send(&packet).unwrap());
        assert_eq!(receive(echo), packet);
    }
}

#[test]
fn vbusd_serves_while_a_thread_of_cards_stands() {
    let daemon = Daemon::with("venet-user");
    let mut echo = echo(&daemon);
    let mut network = daemon.client();
    let device = || name("dev");
    thread::scope(|scope| {
        let stands = Stands::new(&daemon, "networks");
        // These answers need the thread.
        let second = scope.spawn(|| Client::connect(daemon.options("lan", "dev")));
        let called = scope.spawn(|| {
            let mac = network.call(MACQUERY, &[]);
            (mac, network)
        });
        // One more, by a client that does not wait for its answer.
        let mut gone = daemon.control();
        gone.ask(&Request::Join { bus: name("lan") }).unwrap();
        let open = Request::Open {
            interface: 1,
            version: 1,
        };
        common::send(gone.socket(), &encode(&open).unwrap(), &[memory(1 << 16)]);
        soon("a client is not connected", || {
            daemon.attribute("dev", "connections") == 3
        });
        drop(gone);
        // All others are served.
        trips(&mut echo, 100);
        let set = Request::SetAttribute {
            device: device(),
            attribute: "poll-us".to_string(),
            value: "7".to_string(),
        };
        assert_eq!(daemon.control().ask(&set), Ok(Reply::Done));
        assert_eq!(daemon.attribute("dev", "poll-us"), 7);
        soon("a client that has gone is connected", || {
            daemon.attribute("dev", "connections") == 2
        });
        trips(&mut echo, 100);
        assert!(!second.is_finished() && !called.is_finished());
        drop(stands);
        let mut second = second.join().unwrap().unwrap();
        let (mac, mut network) = called.join().unwrap();
        assert_eq!(mac.unwrap(), network.mac().unwrap());
        assert_eq!(second.call(MACQUERY, &[]).unwrap(), second.mac().unwrap());
        assert_eq!(network.event(), Ok(None));
    });
}

/// A card that has not ended may still work on its client's queues, so the client must not.
#[test]
fn a_client_learns_of_its_end_when_its_card_has_ended() {
    let daemon = Daemon::with("venet-user");
    let mut echo = echo(&daemon);
    let mut network = daemon.client();
    thread::scope(|scope| {
        let stands = Stands::new(&daemon, "networks");
        let reset = scope.spawn(|| {
            let device = name("dev");
            daemon.control().ask(&Request::Reset { device })
        });
        soon("it is not reset", || {
            daemon.attribute("dev", "connections") == 0
        });
        trips(&mut echo, 100);
        for _ in 0..20 {
            assert_eq!(network.event(), Ok(None));
            network.drain().unwrap();
            thread::sleep(Duration::from_millis(5));
        }
        assert!(!reset.is_finished());
        drop(stands);
        assert_eq!(reset.join().unwrap(), Ok(Reply::Number(1)));
        let mut end = None;
        soon("the client does not learn of it", || {
            end = network.event().err();
            end.is_some()
        });
        assert_eq!(end, Some(Error::Lost("the device was reset".to_string())));
    });
    network.reconnect(Duration::from_secs(20)).unwrap();
    assert_eq!(network.call(MACQUERY, &[]).unwrap(), network.mac().unwrap());
}

/// The host may stand still for longer than a client waits for an answer.
#[test]
#[ignore = "more than a minute: make test-release"]
fn a_client_connects_again_when_vbusd_has_stood_for_long() {
    let daemon = Daemon::with("venet-switch");
    let mut client = daemon.client();
    let process = libc::pid_t::try_from(daemon.child.id()).unwrap();
    // SAFETY: a signal for a child of this process, which was not waited for.
    let signal = |signal| assert_eq!(unsafe { libc::kill(process, signal) }, 0);
    signal(libc::SIGSTOP);
    thread::scope(|scope| {
        let again = scope.spawn(|| client.reconnect(Duration::from_secs(120)));
        thread::sleep(Duration::from_secs(62));
        assert!(!again.is_finished());
        signal(libc::SIGCONT);
        again.join().unwrap().unwrap();
    });
    assert!(client.mac().is_some());
}
