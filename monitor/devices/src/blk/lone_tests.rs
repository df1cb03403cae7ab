// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where reads wait for the disk.

use super::test_storage::Fake;
use super::*;
use crate::test_guest::{FREE, Guest};
use crate::{Reactor, Wake};
use std::io;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

const HEADER: u64 = FREE;
const STATUS: u64 = FREE + 64;
const DATA: u64 = FREE + 0x1000;

struct Tell(Mutex<Sender<()>>);

impl Wake for Tell {
    fn wake(&self) {
        let _ = self.0.lock().unwrap().send(());
    }
}

fn read(guest: &mut Guest) {
    guest.write(HEADER, blk::VIRTIO_BLK_T_IN);
    guest.write(HEADER + 8, 0u64);
    let chain = [(HEADER, 16, false), (DATA, 512, true), (STATUS, 1, true)];
    guest.offer(0, &chain);
}

#[test]
fn a_lone_read_waits_on_the_devices_thread_and_one_of_several_does_not() {
    let (tell_read, reads) = channel();
    let (go, words) = channel();
    let (tell_done, done) = channel();
    let words = Mutex::new(words);
    // Every read has to wait. It says on which thread it waits, and then waits for a word.
    let read_slowly = move |wait: bool| {
        if !wait {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        tell_read.send(thread::current().id()).unwrap();
        words.lock().unwrap().recv().unwrap();
        Ok(())
    };
    let storage = Fake {
        read: Box::new(read_slowly),
        ..Fake::default()
    };
    let mut disk = Block::on(Arc::new(storage), true, "");
    let wake = Arc::new(Tell(Mutex::new(tell_done)));
    disk.start(&Reactor::new().unwrap().waker(0, wake)).unwrap();
    let mut guest = Guest::new(1);
    let mut driver = guest.driver(0);
    let here = thread::current().id();
    let patience = Duration::from_secs(20);
    for _ in 0..3 {
        read(&mut guest);
        go.send(()).unwrap();
        disk.notified(&mut driver, 0).unwrap();
        assert_eq!(reads.try_recv().unwrap(), here);
        assert_eq!(guest.used(0).len(), 1);
    }
    // Two at a time: both wait elsewhere, at the same time.
    read(&mut guest);
    read(&mut guest);
    disk.notified(&mut driver, 0).unwrap();
    for _ in 0..2 {
        assert_ne!(reads.recv_timeout(patience).unwrap(), here);
    }
    assert_eq!(guest.used(0).len(), 0);
    for _ in 0..2 {
        go.send(()).unwrap();
    }
    for _ in 0..2 {
        done.recv_timeout(patience).unwrap();
    }
    disk.woken(&mut driver).unwrap();
    assert_eq!(guest.used(0).len(), 2);
}
