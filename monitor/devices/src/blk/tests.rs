// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests that drivers make, and requests that none should make.

use super::*;
use crate::test_guest::{FREE, Guest, MEMORY};
use crate::{Reactor, Wake};
use proptest::prelude::*;
use std::io::Write;
use std::time::{Duration, Instant};

const SECTORS: u64 = 256;
const HEADER: u64 = FREE;
const STATUS: u64 = FREE + 16;
const DATA: u64 = FREE + 0x1000;

struct Nobody;

impl Wake for Nobody {
    fn wake(&self) {}
}

struct Machine {
    guest: Guest,
    driver: Driver,
    disk: Block,
    file: tempfile::NamedTempFile,
}

fn machine(mode: Mode) -> Machine {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let content: Vec<u8> = (0..SECTORS)
        .flat_map(|s| [u8::try_from(s).unwrap(); 512])
        .collect();
    file.write_all(&content).unwrap();
    let mut disk = Block::new(file.path(), mode, "a serial number that is too long").unwrap();
    let waker = Reactor::new().unwrap().waker(0, Arc::new(Nobody));
    disk.start(&waker).unwrap();
    let guest = Guest::new(1);
    let driver = guest.driver(disk.features());
    Machine {
        guest,
        driver,
        disk,
        file,
    }
}

impl Machine {
    /// Makes a request and waits for it. Returns its status and the bytes written.
    fn request(&mut self, kind: u32, sector: u64, buffers: &[(u64, u32, bool)]) -> (u8, u32) {
        self.guest.write(HEADER, kind);
        self.guest.write(HEADER + 8, sector);
        self.guest.write(STATUS, 0xffu8);
        let mut chain = vec![(HEADER, 16, false)];
        chain.extend_from_slice(buffers);
        chain.push((STATUS, 1, true));
        let head = self.guest.offer(0, &chain);
        self.disk.notified(&mut self.driver, 0).unwrap();
        self.driver.end_round();
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some((used, written)) = self.guest.used(0).pop() {
                assert_eq!(used, head);
                return (self.guest.read(STATUS), written);
            }
            assert!(Instant::now() < end);
            std::thread::yield_now();
            self.disk.woken(&mut self.driver).unwrap();
            self.driver.end_round();
        }
    }

    fn on_host(&self, sector: u64) -> Vec<u8> {
        let content = std::fs::read(self.file.path()).unwrap();
        let at = usize::try_from(sector * 512).unwrap();
        content[at..at + 512].to_vec()
    }
}

#[test]
fn sectors_are_read_and_written_in_pieces() {
    let mut m = machine(Mode::Write);
    let pieces = [(DATA, 100, true), (DATA + 0x1000, 924, true)];
    assert_eq!(m.request(blk::VIRTIO_BLK_T_IN, 7, &pieces), (0, 1025));
    assert_eq!(m.guest.get(DATA, 100), [7; 100]);
    assert_eq!(m.guest.get(DATA + 0x1000, 412), [7; 412]);
    assert_eq!(m.guest.get(DATA + 0x1000 + 412, 512), [8; 512]);
    m.guest.put(DATA, &[0xaa; 1024]);
    let pieces = [(DATA, 1, false), (DATA, 1022, false), (DATA, 1, false)];
    assert_eq!(
        m.request(blk::VIRTIO_BLK_T_OUT, SECTORS - 2, &pieces),
        (0, 1)
    );
    assert_eq!(m.on_host(SECTORS - 1), [0xaa; 512]);
    assert_eq!(m.request(blk::VIRTIO_BLK_T_FLUSH, 0, &[]), (0, 1));
    assert_eq!(
        m.request(blk::VIRTIO_BLK_T_GET_ID, 0, &[(DATA, 20, true)]),
        (0, 21)
    );
    assert_eq!(m.guest.get(DATA, 20), b"a serial number that");
}

#[test]
fn nothing_behind_the_end_nor_in_half_sectors() {
    let mut m = machine(Mode::Write);
    for (kind, write) in [(blk::VIRTIO_BLK_T_IN, true), (blk::VIRTIO_BLK_T_OUT, false)] {
        for (sector, length) in [
            (SECTORS, 512),
            (SECTORS - 1, 1024),
            (u64::MAX, 512),
            (1 << 55, 512),
            (0, 511),
        ] {
            let (status, _) = m.request(kind, sector, &[(DATA, length, write)]);
            assert_eq!(status, 1, "{kind} {sector} {length}");
        }
    }
    assert_eq!(m.request(99, 0, &[]).0, 2);
    assert_eq!(m.file.as_file().metadata().unwrap().len(), SECTORS * 512);
}

fn segment(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    let mut bytes = sector.to_le_bytes().to_vec();
    bytes.extend(sectors.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes
}

#[test]
fn zeroes_and_discards() {
    let mut m = machine(Mode::Write);
    m.guest.put(DATA, &segment(9, 3, 0));
    m.guest.put(DATA + 16, &segment(20, 1, 1));
    assert_eq!(
        m.request(blk::VIRTIO_BLK_T_WRITE_ZEROES, 0, &[(DATA, 32, false)]),
        (0, 1)
    );
    for (sector, expected) in [(8, 8), (9, 0), (11, 0), (12, 12), (20, 0), (21, 21)] {
        assert_eq!(m.on_host(sector), [expected; 512], "{sector}");
    }
    m.guest.put(DATA, &segment(32, 8, 0));
    assert_eq!(
        m.request(blk::VIRTIO_BLK_T_DISCARD, 0, &[(DATA, 16, false)]),
        (0, 1)
    );
    for (bytes, length, expected) in [
        (segment(SECTORS, 1, 0), 16, 1),
        (segment(u64::MAX, 1, 0), 16, 1),
        (segment(0, u32::MAX, 0), 16, 1),
        (segment(0, 1, 2), 16, 2),
        (segment(0, 1, 0), 15, 1),
    ] {
        m.guest.put(DATA, &bytes);
        let (status, _) = m.request(blk::VIRTIO_BLK_T_WRITE_ZEROES, 0, &[(DATA, length, false)]);
        assert_eq!(status, expected, "{bytes:?}");
    }
}

#[test]
fn a_read_only_disk_refuses_writes() {
    let mut m = machine(Mode::ReadOnly);
    assert_ne!(m.disk.features() & 1 << blk::VIRTIO_BLK_F_RO, 0);
    assert_eq!(
        m.request(blk::VIRTIO_BLK_T_IN, 3, &[(DATA, 512, true)]).0,
        0
    );
    assert_eq!(
        m.request(blk::VIRTIO_BLK_T_OUT, 3, &[(DATA, 512, false)]).0,
        1
    );
    m.guest.put(DATA, &segment(3, 1, 0));
    assert_eq!(
        m.request(blk::VIRTIO_BLK_T_WRITE_ZEROES, 0, &[(DATA, 16, false)])
            .0,
        1
    );
    assert_eq!(m.on_host(3), [3; 512]);
}

#[test]
fn a_snapshot_shows_what_was_written_and_keeps_nothing() {
    let mut m = machine(Mode::Snapshot);
    let before = std::fs::read(m.file.path()).unwrap();
    let mut expected = before.clone();
    m.guest.put(DATA, &[0xbb; 8192]);
    // In the middle of blocks, over several, and up to the end.
    for (sector, sectors) in [(3u64, 1u64), (7, 2), (17, 16), (SECTORS - 1, 1)] {
        let length = u32::try_from(sectors * 512).unwrap();
        assert_eq!(
            m.request(blk::VIRTIO_BLK_T_OUT, sector, &[(DATA, length, false)])
                .0,
            0
        );
        let at = usize::try_from(sector * 512).unwrap();
        expected[at..at + usize::try_from(length).unwrap()].fill(0xbb);
    }
    m.guest.put(DATA, &segment(20, 9, 1));
    assert_eq!(
        m.request(blk::VIRTIO_BLK_T_WRITE_ZEROES, 0, &[(DATA, 16, false)])
            .0,
        0
    );
    expected[20 * 512..29 * 512].fill(0);
    assert_eq!(m.request(blk::VIRTIO_BLK_T_FLUSH, 0, &[]).0, 0);
    let all = u32::try_from(SECTORS * 512).unwrap();
    assert_eq!(
        m.request(blk::VIRTIO_BLK_T_IN, 0, &[(DATA, all, true)]).0,
        0
    );
    assert!(m.guest.get(DATA, expected.len()) == expected);
    assert!(std::fs::read(m.file.path()).unwrap() == before);
}

#[test]
fn a_disk_that_is_cut_has_what_was_flushed_and_nothing_else() {
    for flush in [Flush::Honoured, Flush::Ignored] {
        let mut m = machine(Mode::Cut(flush));
        let mut on_disk = std::fs::read(m.file.path()).unwrap();
        let mut seen = on_disk.clone();
        let all = u32::try_from(SECTORS * 512).unwrap();
        for round in 0..3u8 {
            m.guest.put(DATA, &[0xb0 + round; 8192]);
            // In the middle of blocks, over several, up to the end, and what the previous round
            // wrote.
            for (sector, sectors) in [
                (3u64 + u64::from(round), 2u64),
                (17, 16),
                (100 * u64::from(round), 1),
                (SECTORS - 1, 1),
            ] {
                let length = u32::try_from(sectors * 512).unwrap();
                assert_eq!(
                    m.request(blk::VIRTIO_BLK_T_OUT, sector, &[(DATA, length, false)])
                        .0,
                    0
                );
                let at = usize::try_from(sector * 512).unwrap();
                seen[at..at + usize::try_from(length).unwrap()].fill(0xb0 + round);
            }
            m.guest.put(DATA, &segment(20, 9, 1));
            assert_eq!(
                m.request(blk::VIRTIO_BLK_T_WRITE_ZEROES, 0, &[(DATA, 16, false)])
                    .0,
                0
            );
            seen[20 * 512..29 * 512].fill(0);
            assert_eq!(
                m.request(blk::VIRTIO_BLK_T_IN, 0, &[(DATA, all, true)]).0,
                0
            );
            assert!(m.guest.get(DATA, seen.len()) == seen, "{flush:?}: {round}");
            assert!(
                std::fs::read(m.file.path()).unwrap() == on_disk,
                "{flush:?}: {round}"
            );
            assert_eq!(m.request(blk::VIRTIO_BLK_T_FLUSH, 0, &[]).0, 0);
            if flush == Flush::Honoured {
                on_disk.clone_from(&seen);
            }
            assert!(
                std::fs::read(m.file.path()).unwrap() == on_disk,
                "{flush:?}: {round}"
            );
            assert_eq!(
                m.request(blk::VIRTIO_BLK_T_IN, 0, &[(DATA, all, true)]).0,
                0
            );
            assert!(m.guest.get(DATA, seen.len()) == seen, "{flush:?}: {round}");
        }
    }
}

#[test]
fn two_machines_do_not_write_one_disk() {
    let m = machine(Mode::Write);
    for mode in [Mode::Write, Mode::ReadOnly] {
        let error = Block::new(m.file.path(), mode, "").err().unwrap();
        assert!(
            format!("{error:#}").contains("another virtual machine uses it"),
            "{error:#}"
        );
    }
    let m = machine(Mode::ReadOnly);
    assert!(Block::new(m.file.path(), Mode::Snapshot, "").is_ok());
}

#[test]
fn what_is_no_disk_is_refused() {
    let refused = |path: &Path| format!("{:#}", Block::new(path, Mode::Write, "").err().unwrap());
    for length in [0, 513] {
        // A file for each mode: a child that another test forks inherits this test's
        // files, and with them the lock, until it executes or ends.
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(length).unwrap();
        assert!(refused(file.path()).contains(&format!("{length} bytes")));
    }
    assert!(refused(Path::new("/dev/null")).contains("neither a file nor a block device"));
    assert!(refused(Path::new("/nonexistent")).starts_with("/nonexistent: "));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn no_chain_is_too_odd(
        chains in prop::collection::vec(prop::collection::vec(
            (prop_oneof![Just(HEADER), Just(DATA), 0..MEMORY as u64 + 4096, any::<u64>()],
             prop_oneof![0u32..2000, any::<u32>()], any::<u16>(), any::<u16>()), 1..6), 1..20),
        kind in 0u32..16, sector in prop_oneof![0..SECTORS, any::<u64>()],
    ) {
        let mut m = machine(Mode::Snapshot);
        m.guest.write(HEADER, kind);
        m.guest.write(HEADER + 8, sector);
        for chain in chains {
            let head = m.guest.offer(0, &[(HEADER, 16, false)]);
            for (index, (address, length, flags, next)) in (0u16..).zip(chain) {
                m.guest.descriptor(0, head.wrapping_add(index) % 256, address, length, flags, next);
            }
            if m.disk.notified(&mut m.driver, 0).is_err() {
                break;
            }
            m.driver.end_round();
        }
        m.disk.reset();
    }
}
