// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that a client sends and whose close would wait: only the client notices.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Daemon, create_bus, lingering, name, send, signal, soon, try_send};
use paravane_vbus_client::protocol::{Request, encode};
use paravane_vbus_client::{Client, Control};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};
use rustix::process::Signal;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long vbusd may take for anything.
const SOON: Duration = Duration::from_secs(10);

/// Lets vbusd have the last copy of the files that `hand` sends, and checks that others notice
/// nothing.
fn unharmed<S>(count: usize, hand: impl FnOnce([Control; 2], Vec<OwnedFd>) -> S) {
    let daemon = Daemon::with("echo");
    let mut client = daemon.client();
    let mut control = daemon.control();
    let (files, others) = lingering(count);
    let taken = [daemon.control(), daemon.control()].map(|mut one| {
        // Files come from those that were taken.
        one.buses().unwrap();
        one
    });
    signal(&daemon, Signal::STOP);
    let sockets = hand(taken, files);
    signal(&daemon, Signal::CONT);
    let begun = Instant::now();
    create_bus(&mut control, "first");
    drop(sockets);
    for number in 0..20 {
        create_bus(&mut control, &format!("bus-{number}"));
        assert_eq!(client.send(b"still here"), Ok(true));
        assert_eq!(common::receive(&mut client), b"still here");
        daemon.control().buses().unwrap();
    }
    let took = begun.elapsed();
    assert!(took < SOON, "others waited for {took:?}");
    drop(others);
}

fn request() -> Vec<u8> {
    encode(&Request::Interfaces).unwrap()
}

#[test]
fn a_file_beside_a_request_stops_nobody() {
    unharmed(1, |[control, _], files| {
        send(control.socket(), &request(), &files);
        control
    });
}

/// A client sends more files than the protocol allows, and a packet without a byte.
#[test]
fn too_many_files_stop_nobody() {
    unharmed(12, |[first, second], mut files| {
        let rest = files.split_off(6);
        send(first.socket(), &request(), &files);
        send(second.socket(), b"", &rest);
        (first, second)
    });
}

/// The files are on a socket that vbusd closes before it takes them.
#[test]
fn files_behind_nonsense_stop_nobody() {
    unharmed(3, |[control, _], files| {
        send(control.socket(), b"nonsense", &[]);
        for file in files {
            send(control.socket(), b"", &[]);
            send(control.socket(), b"x", &[file]);
        }
        control
    });
}

/// The files follow an answer that is never read, or are on a socket that is refused.
#[test]
fn files_on_a_refused_socket_stop_nobody() {
    let daemon = Daemon::with("echo");
    let all: Vec<_> = (0..300)
        .filter_map(|_| Control::connect(&daemon.socket()).ok())
        .collect();
    // They are accepted, or refused by now.
    soon("it does not refuse", || {
        all.iter().any(|one| {
            recv(
                one.socket(),
                &mut [0; 8],
                RecvFlags::DONTWAIT | RecvFlags::PEEK,
            ) != Err(Errno::AGAIN)
        })
    });
    let mut control = all
        .into_iter()
        .map(|mut one| one.ask(&Request::Classes).map(|_| one))
        .filter_map(Result::ok)
        .collect::<Vec<_>>();
    let (files, others) = lingering(1);
    signal(&daemon, Signal::STOP);
    let refused = Control::connect(&daemon.socket()).unwrap();
    // Since Linux 6.16 it cannot carry files.
    let sent = try_send(refused.socket(), &request(), &files);
    assert!(matches!(sent, Ok(()) | Err(Errno::PERM)), "{sent:?}");
    // Without the other end, the last close takes no time.
    let others = sent.is_ok().then_some(others);
    drop((files, refused));
    signal(&daemon, Signal::CONT);
    let begun = Instant::now();
    let last = control.last_mut().unwrap();
    for _ in 0..20 {
        last.buses().unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    drop(others);
}

/// The files are on the socket by which vbusd notifies.
#[test]
fn files_where_notifications_come_are_refused() {
    let daemon = Daemon::with("echo");
    let client: Client = daemon.client();
    let (files, others) = lingering(1);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let file = [files[0].as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&file)));
    let parts = [IoSlice::new(b"x")];
    let sent = sendmsg(client.file(), &parts, &mut control, SendFlags::NOSIGNAL);
    // Without the other end, the last close takes no time.
    let others = sent.is_ok().then_some(others);
    drop(files);
    let begun = Instant::now();
    let mut control = daemon.control();
    let device = name("dev");
    control.ask(&Request::Reset { device }).unwrap();
    for _ in 0..20 {
        control.buses().unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!((sent, others.is_some()), (Err(Errno::PIPE), false));
}
