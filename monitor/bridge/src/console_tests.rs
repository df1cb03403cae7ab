// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A console, with a guest and clients that the test plays.

use crate::test_guest::{Ask, COUNT, Guest, Nobody};
use crate::{Bridge, Console};
use paravane_devices::{EventFlags, OwnDevice};
use paravane_vbus_shm::layout;
use paravane_vbus_shm::north::Buffer;
use rustix::io::{Errno, dup};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::env;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

struct Place {
    folder: TempDir,
}

impl Place {
    fn socket(&self) -> PathBuf {
        self.folder.path().join("console")
    }

    fn connect(&self) -> UnixStream {
        let client = UnixStream::connect(self.socket()).unwrap();
        client.set_nonblocking(true).unwrap();
        client
    }
}

/// A guest with a console that is up, and the place of its socket.
fn guest() -> (Guest, Place) {
    let place = Place {
        folder: tempfile::tempdir().unwrap(),
    };
    let listener = UnixListener::bind(place.socket()).unwrap();
    let console = Console::new(listener).unwrap();
    let mut guest = Guest::new(Bridge::console(console).unwrap());
    guest.up_console();
    (guest, place)
}

/// Lets the bridge look at the host.
fn look(guest: &mut Guest) {
    guest.bridge.serve(true, 0);
    guest.work(1);
}

/// What has come.
fn read(client: &mut UnixStream) -> Vec<u8> {
    let (mut all, mut part) = (Vec::new(), [0; 4096]);
    loop {
        match client.read(&mut part) {
            Ok(0) => return all,
            Ok(count) => all.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return all,
            Err(error) => panic!("{error}"),
        }
    }
}

/// The packets of the guest that went back to it.
fn taken(guest: &mut Guest) -> usize {
    let tx = guest.tx.as_mut().unwrap();
    let mut count = 0;
    while tx.north.take().unwrap().is_some() {
        count += 1;
    }
    count
}

#[test]
fn bytes_go_both_ways() {
    let (mut guest, place) = guest();
    let mut client = place.connect();
    guest.post(4, 16);
    client.write_all(b"from the host, and it is long").unwrap();
    guest.send(&[(b"from ", 0), (b"the guest", 0)]);
    look(&mut guest);
    assert_eq!(read(&mut client), b"from the guest");
    assert_eq!(taken(&mut guest), 2);
    let came: Vec<u8> = guest.received().into_iter().flat_map(|one| one.0).collect();
    assert_eq!(came, b"from the host, and it is long");
}

#[test]
fn bytes_wait_for_a_client_and_for_the_guest() {
    let (mut guest, place) = guest();
    guest.send(&[(b"early", 0)]);
    look(&mut guest);
    assert_eq!(taken(&mut guest), 0, "taken without a client");
    let mut client = place.connect();
    client.write_all(b"also early").unwrap();
    look(&mut guest);
    assert_eq!(read(&mut client), b"early");
    assert_eq!(taken(&mut guest), 1);
    assert!(guest.received().is_empty());
    guest.post(1, 64);
    guest.work(1);
    assert_eq!(guest.received()[0].0, b"also early");
}

#[test]
fn a_client_that_does_not_read_stops_the_guest_and_loses_nothing() {
    let (mut guest, place) = guest();
    let mut client = place.connect();
    let part = [b'x'; 4096];
    let (mut sent, mut back) = (0, 0);
    // Until the socket is full.
    for _ in 0..1000 {
        while guest.tx.as_ref().unwrap().north.room() > 0 {
            guest.send(&[(&part[..], 0)]);
            sent += part.len();
        }
        look(&mut guest);
        let count = taken(&mut guest);
        if count == 0 {
            break;
        }
        back += count * part.len();
    }
    assert_eq!(guest.tx.as_ref().unwrap().north.room(), 0, "never full");
    let mut came = read(&mut client).len();
    assert!(back <= came, "{back} bytes went back, {came} were written");
    look(&mut guest);
    while came < sent {
        let part = read(&mut client);
        assert!(!part.is_empty(), "{came} of {sent}");
        came += part.len();
        look(&mut guest);
    }
    assert_eq!(taken(&mut guest), COUNT as usize);
}

#[test]
fn one_client_follows_another_and_gets_what_it_left() {
    let (mut guest, place) = guest();
    let mut first = place.connect();
    look(&mut guest);
    let mut second = place.connect();
    guest.send(&[(b"for the first", 0)]);
    look(&mut guest);
    assert_eq!(read(&mut first), b"for the first");
    drop(first);
    guest.send(&[(b"for the second", 0)]);
    look(&mut guest);
    assert_eq!(read(&mut second), b"for the second");
    // A driver leaves, and another one comes.
    guest.up_console();
    guest.post(1, 64);
    second.write_all(b"again").unwrap();
    guest.send(&[(b"and again", 0)]);
    look(&mut guest);
    assert_eq!(read(&mut second), b"and again");
    assert_eq!(guest.received()[0].0, b"again");
}

#[test]
fn what_a_client_wrote_before_it_left_reaches_the_guest() {
    let (mut guest, place) = guest();
    let mut client = place.connect();
    look(&mut guest);
    let bytes: Vec<u8> = (0..3072u32).map(|n| n.to_le_bytes()[0]).collect();
    client.write_all(&bytes).unwrap();
    // A child that another test starts just now may have a copy of the descriptor.
    client.shutdown(Shutdown::Both).unwrap();
    drop(client);
    // The bridge learns of its end by a write first.
    guest.send(&[(b"for the next one", 0)]);
    look(&mut guest);
    assert_eq!(taken(&mut guest), 0, "nobody has these bytes");
    let mut second = place.connect();
    let mut came = Vec::new();
    for _ in 0..3 {
        guest.post(4, 256);
        guest.work(1);
        came.extend(guest.received().into_iter().flat_map(|one| one.0));
    }
    assert!(came == bytes, "{} of {} bytes", came.len(), bytes.len());
    look(&mut guest);
    assert_eq!(read(&mut second), b"for the next one");
    assert_eq!(taken(&mut guest), 1);
}

/// Set in a process that has too few descriptors.
const FEW: &str = "PARAVANE_TEST_FEW_DESCRIPTORS";

#[test]
fn without_a_descriptor_a_client_waits_and_keeps_nobody_busy() {
    if env::var_os(FEW).is_none() {
        // The limit is one of the whole process.
        let mut command = Command::new(env::current_exe().unwrap());
        let name = "console_tests::without_a_descriptor_a_client_waits_and_keeps_nobody_busy";
        let run = command.args(["--exact", name]).env(FEW, "1").output();
        let run = run.unwrap();
        let output = String::from_utf8_lossy(&run.stdout);
        assert!(
            run.status.success() && output.contains("1 passed"),
            "{output}"
        );
        return;
    }
    let (mut guest, place) = guest();
    let (mut other, ready) = UnixStream::pair().unwrap();
    other.write_all(b"x").unwrap();
    let mut client = place.connect();
    let before = getrlimit(Resource::Nofile);
    let free = u64::try_from(dup(&client).unwrap().as_raw_fd()).unwrap();
    let few = Rlimit {
        current: Some(free),
        ..before
    };
    setrlimit(Resource::Nofile, few).unwrap();
    look(&mut guest);
    guest.send(&[(b"first", 0)]);
    look(&mut guest);
    setrlimit(Resource::Nofile, before).unwrap();
    // Would be reported after the console's socket.
    let waker = guest.reactor.waker(1, Arc::new(Nobody));
    waker.arm(&ready, EventFlags::IN).unwrap();
    let mut reported = Vec::new();
    let reactor = Arc::clone(&guest.reactor);
    let run = reactor.run(|device| {
        reported.push(device);
        reactor.stop();
    });
    run.unwrap();
    assert_eq!(reported, [1], "the socket is still waited for");
    assert!(read(&mut client).is_empty());
    // The guest's next packet is an occasion.
    guest.send(&[(b", second", 0)]);
    assert!(guest.tx.as_ref().unwrap().there.inject(), "it is not asked");
    guest.work(1);
    assert_eq!(read(&mut client), b"first, second");
}

#[test]
fn a_driver_that_breaks_a_rule_loses_the_connection() {
    let outside = u64::MAX - 100;
    for (ptr, len) in [(outside, 10), (crate::test_guest::BUFFERS, 4097)] {
        let (mut guest, place) = guest();
        let _client = place.connect();
        let tx = guest.tx.as_mut().unwrap();
        let buffer = Buffer {
            cookie: 0,
            ptr,
            len,
            flags: 0,
        };
        tx.north.post(buffer).unwrap();
        look(&mut guest);
        let event = guest.ask(layout::VBUS_COMMAND_EVENT, Ask::default());
        assert_eq!(u64::from(event.number), layout::VBUS_EVENT_CLOSED);
    }
}

#[test]
fn an_idle_console_waits() {
    let (mut guest, place) = guest();
    let mut client = place.connect();
    look(&mut guest);
    client.write_all(b"x").unwrap();
    // `work` panics if the bridge never waits: a byte for which there is no buffer, a client that
    // has left.
    look(&mut guest);
    drop(client);
    look(&mut guest);
    guest.post(1, 8);
    guest.work(1);
    assert_eq!(guest.received()[0].0, b"x");
    look(&mut guest);
}

/// A client sends a file, whose close the console's thread could wait for.
#[test]
fn a_client_cannot_send_files() {
    let (mut guest, place) = guest();
    let client = place.connect();
    look(&mut guest);
    let other = UnixStream::pair().unwrap().0;
    if !paravane_confine::pass_files(&other, true).unwrap() {
        eprintln!("this kernel is older than Linux 6.16: not tested");
        return;
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let file = [other.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&file)));
    let parts = [IoSlice::new(b"x")];
    let sent = sendmsg(&client, &parts, &mut control, SendFlags::NOSIGNAL);
    assert_eq!(sent, Err(Errno::PERM));
    // Bytes still come.
    (&client).write_all(b"y").unwrap();
    guest.post(1, 64);
    look(&mut guest);
    assert_eq!(guest.received(), [(b"y".to_vec(), 0)]);
}
