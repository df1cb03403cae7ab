// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which writes go to the host's disk before a flush.

use super::test_storage::Fake;
use super::*;
use crate::test_guest::{FREE, Guest};
use std::sync::atomic::Ordering;

const HEADER: u64 = FREE;
const STATUS: u64 = FREE + 64;
const DATA: u64 = FREE + 0x1000;
const SMALL: u32 = 4096;

/// A disk and its driver.
struct Used {
    storage: Arc<Fake>,
    disk: Block,
    guest: Guest,
    driver: Driver,
}

impl Used {
    fn new(tune: fn(Block) -> Block) -> Self {
        let storage = Arc::new(Fake::default());
        let guest = Guest::new(1);
        Used {
            disk: tune(Block::on(Disk::on(Arc::clone(&storage) as _, false), "")),
            driver: guest.driver(0),
            storage,
            guest,
        }
    }

    fn offer(&mut self, kind: u32, data: &[(u64, u32, bool)]) {
        self.guest.write(HEADER, kind);
        self.guest.write(HEADER + 8, 8u64);
        let mut chain = vec![(HEADER, 16, false)];
        chain.extend(data);
        chain.push((STATUS, 1, true));
        self.guest.offer(0, &chain);
    }

    /// Writes, a number of writes at a time. Returns how many bytes the disk has begun to write.
    fn write(&mut self, bytes: u32, count: u32) -> u64 {
        for _ in 0..count {
            self.offer(blk::VIRTIO_BLK_T_OUT, &[(DATA, bytes, false)]);
        }
        self.work()
    }

    fn flush(&mut self) -> u64 {
        self.offer(blk::VIRTIO_BLK_T_FLUSH, &[]);
        self.work()
    }

    fn work(&mut self) -> u64 {
        self.disk.notified(&mut self.driver, 0).unwrap();
        assert_eq!(self.guest.read::<u8>(STATUS), 0);
        self.storage.started.swap(0, Ordering::SeqCst)
    }
}

#[test]
fn a_flush_brings_one_early_write() {
    let mut used = Used::new(|disk| disk);
    for _ in 0..3 {
        assert_eq!(used.write(SMALL, 1), u64::from(SMALL));
        for _ in 0..3 {
            assert_eq!(used.write(SMALL, 1), 0);
        }
        assert_eq!(used.flush(), 0);
    }
}

#[test]
fn only_small_writes_are_early() {
    let mut used = Used::new(|disk| disk);
    assert_eq!(used.write((64 << 10) + 512, 1), 0);
    used.flush();
    assert_eq!(used.write(64 << 10, 1), 64 << 10);
}

/// The driver's other requests would wait for the host call.
#[test]
fn of_several_writes_none_is_early() {
    let mut used = Used::new(|disk| disk);
    assert_eq!(used.write(SMALL, 2), 0);
}

#[test]
fn a_write_that_failed_is_not_early() {
    let mut used = Used::new(|disk| disk);
    used.guest.write(HEADER, blk::VIRTIO_BLK_T_OUT);
    used.guest.write(HEADER + 8, u64::MAX);
    let chain = [(HEADER, 16, false), (DATA, SMALL, false), (STATUS, 1, true)];
    used.guest.offer(0, &chain);
    used.disk.notified(&mut used.driver, 0).unwrap();
    assert_eq!(used.guest.read::<u8>(STATUS), 1);
    assert_eq!(used.storage.started.load(Ordering::SeqCst), 0);
}

#[test]
fn without_the_heuristic_no_write_is_early() {
    let mut used = Used::new(|disk| {
        disk.with(Heuristics {
            early_writes: false,
            ..Heuristics::default()
        })
    });
    assert_eq!(used.write(SMALL, 1), 0);
    used.flush();
    assert_eq!(used.write(SMALL, 1), 0);
}
