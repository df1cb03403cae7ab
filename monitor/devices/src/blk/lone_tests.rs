// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where reads and flushes wait for the disk.

use super::test_storage::Fake;
use super::*;
use crate::test_guest::{FREE, Guest};
use crate::{Reactor, Wake};
use std::io;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, ThreadId};
use std::time::Duration;

const HEADER: u64 = FREE;
const STATUS: u64 = FREE + 64;
const DATA: u64 = FREE + 0x1000;
const PATIENCE: Duration = Duration::from_secs(20);

struct Tell(Mutex<Sender<()>>);

impl Wake for Tell {
    fn wake(&self) {
        let _ = self.0.lock().unwrap().send(());
    }
}

fn read(guest: &mut Guest) {
    read_bytes(guest, 512);
}

fn read_bytes(guest: &mut Guest, bytes: u32) {
    request(guest, blk::VIRTIO_BLK_T_IN, &[(DATA, bytes, true)]);
}

fn write_bytes(guest: &mut Guest, bytes: u32) {
    request(guest, blk::VIRTIO_BLK_T_OUT, &[(DATA, bytes, false)]);
}

fn flush(guest: &mut Guest) {
    request(guest, blk::VIRTIO_BLK_T_FLUSH, &[]);
}

fn request(guest: &mut Guest, kind: u32, data: &[(u64, u32, bool)]) {
    guest.write(HEADER, kind);
    guest.write(HEADER + 8, 0u64);
    let mut chain = vec![(HEADER, 16, false)];
    chain.extend(data);
    chain.push((STATUS, 1, true));
    guest.offer(0, &chain);
}

/// A disk whose every read and flush has to wait. Each says on which thread it waits, and then
/// waits for a word.
struct Slow {
    disk: Block,
    reads: Receiver<ThreadId>,
    go: Sender<()>,
    done: Receiver<()>,
}

impl Slow {
    fn new(tune: fn(Block) -> Block) -> Self {
        let (tell_read, reads) = channel();
        let (go, words) = channel();
        let (tell_done, done) = channel();
        let words = Mutex::new(words);
        let slowly = Arc::new(move |wait: bool| {
            if !wait {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            tell_read.send(thread::current().id()).unwrap();
            words.lock().unwrap().recv().unwrap();
            Ok(())
        });
        let flush_slowly = Arc::clone(&slowly);
        let storage = Fake {
            read: Box::new(move |wait| slowly(wait)),
            flush: Box::new(move |()| flush_slowly(true)),
            ..Fake::default()
        };
        let mut disk = tune(Block::on(Disk::on(Arc::new(storage), false), ""));
        let wake = Arc::new(Tell(Mutex::new(tell_done)));
        disk.start(&Reactor::new().unwrap().waker(0, wake)).unwrap();
        Slow {
            disk,
            reads,
            go,
            done,
        }
    }
}

#[test]
fn a_lone_read_waits_on_the_devices_thread_and_one_of_several_does_not() {
    let mut slow = Slow::new(|disk| disk);
    let mut guest = Guest::new(1);
    let mut driver = guest.driver(0);
    let here = thread::current().id();
    for _ in 0..3 {
        read(&mut guest);
        slow.go.send(()).unwrap();
        slow.disk.notified(&mut driver, 0).unwrap();
        assert_eq!(slow.reads.try_recv().unwrap(), here);
        assert_eq!(guest.used(0).len(), 1);
    }
    // Two at a time: both wait elsewhere, at the same time.
    read(&mut guest);
    read(&mut guest);
    slow.disk.notified(&mut driver, 0).unwrap();
    for _ in 0..2 {
        assert_ne!(slow.reads.recv_timeout(PATIENCE).unwrap(), here);
    }
    assert_eq!(guest.used(0).len(), 0);
    for _ in 0..2 {
        slow.go.send(()).unwrap();
    }
    for _ in 0..2 {
        slow.done.recv_timeout(PATIENCE).unwrap();
    }
    slow.disk.woken(&mut driver).unwrap();
    assert_eq!(guest.used(0).len(), 2);
}

/// A disk whose thread waits for nothing.
fn without(disk: Block) -> Block {
    disk.with(Heuristics {
        lone_reads: false,
        ..Heuristics::default()
    })
}

#[test]
fn without_the_heuristic_a_lone_read_waits_elsewhere() {
    waits_elsewhere(Slow::new(without), |_, _, _| {}, read);
}

/// A reset would wait for a large read.
#[test]
fn a_large_lone_read_waits_elsewhere() {
    let large = |guest: &mut Guest| read_bytes(guest, (1 << 20) + 512);
    waits_elsewhere(Slow::new(|disk| disk), |_, _, _| {}, large);
}

#[test]
fn a_lone_flush_of_little_waits_on_the_devices_thread() {
    let mut slow = Slow::new(|disk| disk);
    let mut guest = Guest::new(1);
    let mut driver = guest.driver(0);
    for _ in 0..3 {
        write_bytes(&mut guest, 8192);
        slow.disk.notified(&mut driver, 0).unwrap();
        flush(&mut guest);
        slow.go.send(()).unwrap();
        slow.disk.notified(&mut driver, 0).unwrap();
        assert_eq!(slow.reads.try_recv().unwrap(), thread::current().id());
        assert_eq!(guest.used(0).len(), 2);
    }
}

#[test]
fn a_flush_of_much_waits_elsewhere() {
    let much = |guest: &mut Guest, disk: &mut Block, driver: &mut Driver| {
        for _ in 0..2 {
            write_bytes(guest, 1 << 20);
            disk.notified(driver, 0).unwrap();
        }
        assert_eq!(guest.used(0).len(), 2);
    };
    waits_elsewhere(Slow::new(|disk| disk), much, flush);
}

#[test]
fn without_the_heuristic_a_lone_flush_waits_elsewhere() {
    waits_elsewhere(Slow::new(without), |_, _, _| {}, flush);
}

fn waits_elsewhere(
    mut slow: Slow,
    before: impl FnOnce(&mut Guest, &mut Block, &mut Driver),
    request: impl FnOnce(&mut Guest),
) {
    let mut guest = Guest::new(1);
    let mut driver = guest.driver(0);
    before(&mut guest, &mut slow.disk, &mut driver);
    request(&mut guest);
    // It does not wait for long, so that a wait here fails the test and does not stop it.
    slow.go.send(()).unwrap();
    slow.disk.notified(&mut driver, 0).unwrap();
    let thread = slow.reads.recv_timeout(PATIENCE).unwrap();
    assert_ne!(thread, thread::current().id());
    slow.done.recv_timeout(PATIENCE).unwrap();
    slow.disk.woken(&mut driver).unwrap();
    assert_eq!(guest.used(0).len(), 1);
}
