// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much a guest can make a disk do: endlessly, at a time, with one request.

use super::storage::{is_stopped, write_zeroes};
use super::test_storage::Fake;
use super::*;
use crate::test_guest::{FREE, Guest, RING, SIZE};
use crate::{Ending, Reactor, Wake};
use std::cell::Cell;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

const HEADER: u64 = FREE;
const STATUS: u64 = FREE + 64;
const REST: u64 = FREE + 0x1000;
const DATA: u64 = FREE + 0x2000;

#[derive(Default)]
struct Machine(Ending);

impl Wake for Machine {
    fn wake(&self) {}

    fn ending(&self) -> Ending {
        self.0.clone()
    }
}

fn start(disk: &mut Block, ending: &Ending) {
    let machine = Arc::new(Machine(ending.clone()));
    disk.start(&Reactor::new().unwrap().waker(0, machine))
        .unwrap();
}

/// The device reads sector n over the ring's index and the request's sector. That makes 255 other
/// requests and the read of the next sector available.
#[test]
fn a_queue_that_feeds_itself_is_left_now_and_then() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for sector in 0..256u64 {
        let index = u16::try_from((256 * (sector + 1) + 1) & 0xffff).unwrap();
        let mut bytes = vec![0; 2];
        bytes.extend(index.to_le_bytes());
        bytes.extend(((sector + 1) % 256).to_le_bytes());
        bytes.resize(512, 0);
        file.write_all(&bytes).unwrap();
    }
    let mut disk = Block::new(file.path(), Mode::ReadOnly, "").unwrap();
    let ending = Ending::default();
    start(&mut disk, &ending);
    let mut guest = Guest::new(1);
    let mut driver = guest.driver(0).until(ending.clone());
    guest.write(HEADER, blk::VIRTIO_BLK_T_IN);
    guest.write(HEADER + 8, 0u64);
    guest.write(HEADER + 16, blk::VIRTIO_BLK_T_GET_ID);
    let read = [
        (HEADER, 16, false),
        (RING, 4, true),
        (HEADER + 8, 8, true),
        (REST, 500, true),
        (STATUS, 1, true),
    ];
    let head = guest.offer(0, &read);
    let other = [
        (HEADER + 16, 16, false),
        (REST, 20, true),
        (STATUS, 1, true),
    ];
    let other = guest.offer(0, &other);
    for index in 0..SIZE {
        guest.entry(0, index, if index == 0 { head } else { other });
    }
    guest.write(RING + 2, 1u16);
    let deadline = Instant::now() + Duration::from_secs(60);
    let (mut done, mut rounds) = (0, 0);
    disk.notified(&mut driver, 0).unwrap();
    // Three times round the index, without the guest.
    while done < 3 << 16 {
        rounds += 1;
        done += guest.used(0).len();
        if driver.end_round() == 0 {
            // The disk was not in the page cache: a worker thread reads it.
            std::thread::yield_now();
            assert!(
                Instant::now() < deadline,
                "it does not feed itself: {done} requests"
            );
        }
        disk.woken(&mut driver).unwrap();
    }
    assert!(rounds > 300, "{rounds} rounds");
    // It would go on forever.
    ending.begin();
    guest.used(0);
    // A read that a worker thread has begun may finish.
    for _ in 0..3 {
        driver.end_round();
        disk.woken(&mut driver).unwrap();
    }
    assert!(guest.used(0).len() <= 1);
    assert_eq!(driver.end_round(), 0);
}

/// Opens once.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
}

/// Requests that wait for the disk are as many as the queue has entries.
#[test]
fn no_more_requests_wait_than_the_queue_has_room_for() {
    let gate = Arc::new(Gate::default());
    let flush = {
        let gate = Arc::clone(&gate);
        move |()| {
            let open = gate.open.lock().unwrap();
            drop(gate.changed.wait_while(open, |open| !*open).unwrap());
            Ok(())
        }
    };
    let storage = Fake {
        flush: Box::new(flush),
        ..Fake::default()
    };
    let mut disk = Block::on(Disk::on(Arc::new(storage), false), "");
    start(&mut disk, &Ending::default());
    let mut guest = Guest::new(1);
    let mut driver = guest.driver(0);
    guest.write(HEADER, blk::VIRTIO_BLK_T_FLUSH);
    let head = guest.offer(0, &[(HEADER, 16, false), (STATUS, 1, true)]);
    for index in 0..SIZE {
        guest.entry(0, index, head);
    }
    guest.bump(0, SIZE - 1);
    // The most that a driver can have in flight. A slow disk is not the driver's fault.
    disk.notified(&mut driver, 0).unwrap();
    assert_eq!(guest.used(0), []);
    driver.end_round();
    disk.notified(&mut driver, 0).unwrap();
    guest.bump(0, 1);
    let broken = disk.notified(&mut driver, 0);
    *gate.open.lock().unwrap() = true;
    gate.changed.notify_all();
    disk.reset();
    assert!(broken.unwrap_err().to_string().contains("at a time"));
}

/// Of 64 segments of 2 GiB, no further one is begun when the result is no longer needed.
#[test]
fn zeroes_of_many_segments_are_left_between_two() {
    let fake = Arc::new(Fake::default());
    let disk = Disk::on(Arc::clone(&fake) as _, false);
    let mut guest = Guest::new(1);
    let mut driver = guest.driver(0);
    guest.write(HEADER, blk::VIRTIO_BLK_T_WRITE_ZEROES);
    for segment in 0..u64::from(SEGMENTS_MAX) {
        guest.write(DATA + 16 * segment, u64::from(RANGE_MAX) * segment);
        guest.write(DATA + 16 * segment + 8, RANGE_MAX);
    }
    let data = (DATA, 16 * SEGMENTS_MAX, false);
    guest.offer(0, &[(HEADER, 16, false), data, (STATUS, 1, true)]);
    let memory = Arc::clone(driver.memory());
    let request = Request::parse(&memory, driver.pop(0).unwrap().unwrap(), &"".into()).unwrap();
    let looks = Cell::new(0);
    let stop = || {
        looks.set(looks.get() + 1);
        looks.get() > 3
    };
    assert_eq!(request.execute(&disk, true, &stop), Err(Failure::Io));
    assert_eq!(fake.zeroed.load(Ordering::SeqCst), 3 << 31);
}

/// Where the host has to write zeroes, the device writes them in pieces.
#[test]
fn zeroes_that_are_written_are_left_between_two_pieces() {
    let file = tempfile::tempfile().unwrap();
    let looks = Cell::new(0);
    let stop = || {
        looks.set(looks.get() + 1);
        looks.get() > 3
    };
    let error = write_zeroes(&file, 0, 64 << 20, &stop).unwrap_err();
    assert!(is_stopped(&error), "{error}");
    assert_eq!(file.metadata().unwrap().len(), 3 * (64 << 10));
}

/// A read of more than a driver asks for at once. All its buffers may be the same memory.
#[test]
fn a_large_transfer_is_left_between_two_pieces() {
    let mut guest = Guest::new(1);
    let mut driver = guest.driver(0);
    guest.write(HEADER, blk::VIRTIO_BLK_T_IN);
    let megabytes: Vec<_> = (0..200)
        .map(|_| (FREE + (1 << 20), 1 << 20, true))
        .collect();
    let mut chain = vec![(HEADER, 16, false)];
    chain.extend(megabytes);
    chain.push((STATUS, 1, true));
    guest.offer(0, &chain);
    let memory = Arc::clone(driver.memory());
    let request = Request::parse(&memory, driver.pop(0).unwrap().unwrap(), &"".into()).unwrap();
    let stop = || true;
    let disk = Disk::on(Arc::new(Fake::default()), false);
    assert_eq!(request.execute(&disk, true, &stop), Err(Failure::Io));
    assert_eq!(request.execute(&disk, true, &|| false), Ok(()));
}
