// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk with a guest that the test plays: valid requests, and requests that no driver should
//! make.

use super::*;
use crate::Bridge;
use crate::test_guest::{Ask, BUFFERS, COUNT, Guest, MEMORY};
use paravane_devices::OwnDevice;
use paravane_devices::blk::Mode;
use paravane_vbus_shm::layout::BlockRequest;
use paravane_vbus_shm::north::Buffer;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use vm_memory::{Bytes, GuestAddress};

const SECTORS: u64 = 256;
const HEADERS: u64 = BUFFERS;
const BYTES: u64 = BUFFERS + 0x10000;
const READ: u64 = layout::VBUS_BLOCK_READ;
const WRITE: u64 = layout::VBUS_BLOCK_WRITE;
const DONE: u64 = layout::VBUS_BLOCK_DONE;
const FAILED: u64 = layout::VBUS_BLOCK_FAILED;
const UNSUPPORTED: u64 = layout::VBUS_BLOCK_UNSUPPORTED;

struct Machine {
    guest: Guest,
    file: tempfile::NamedTempFile,
    headers: u64,
}

/// What a driver should not do.
type Breach = dyn Fn(&mut Machine);

/// A request without its data.
#[derive(Clone, Copy, Default)]
struct What {
    operation: u64,
    sector: u64,
    sectors: u32,
    flags: u32,
}

fn machine(mode: Mode) -> Machine {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let content: Vec<u8> = (0..SECTORS)
        .flat_map(|s| [u8::try_from(s).unwrap(); 512])
        .collect();
    file.write_all(&content).unwrap();
    let disk = Disk::new(Store::open(file.path(), mode).unwrap(), "a name");
    let mut machine = Machine {
        guest: Guest::new(Bridge::disk(disk).unwrap()),
        file,
        headers: 0,
    };
    machine
        .guest
        .ask(layout::VBUS_COMMAND_START, Ask::default());
    machine.open();
    machine
}

impl Machine {
    fn open(&mut self) {
        self.guest.open_disk();
        self.rest();
    }

    /// The guest wants to be notified.
    fn rest(&mut self) {
        let _ = self.guest.tx.as_ref().unwrap().here.rest();
    }

    /// Takes descriptors back.
    fn take(&mut self) {
        while self
            .guest
            .tx
            .as_mut()
            .unwrap()
            .north
            .take()
            .unwrap()
            .is_some()
        {}
    }

    /// Posts a descriptor.
    fn post(&mut self, ptr: u64, len: u32, more: bool) {
        let buffer = Buffer {
            cookie: 0,
            ptr,
            len,
            flags: u32::from(more),
        };
        self.guest.tx.as_mut().unwrap().north.post(buffer).unwrap();
    }

    /// Writes and posts a header, and returns where it lies.
    fn header(&mut self, what: What, more: bool) -> u64 {
        let at = HEADERS + self.headers % 64 * 32;
        self.headers += 1;
        let write = |offset: usize, value: u32| {
            let at = GuestAddress(at + offset as u64);
            self.guest.memory.write_obj(value, at).unwrap();
        };
        write(offset_of!(BlockRequest, operation), word(what.operation));
        write(offset_of!(BlockRequest, status), 0);
        write(offset_of!(BlockRequest, sectors), what.sectors);
        write(offset_of!(BlockRequest, flags), what.flags);
        let sector = GuestAddress(at + offset_of!(BlockRequest, sector) as u64);
        self.guest.memory.write_obj(what.sector, sector).unwrap();
        self.post(at, 32, more);
        at
    }

    fn status(&self, header: u64) -> u64 {
        let at = GuestAddress(header + offset_of!(BlockRequest, status) as u64);
        let status: u32 = self.guest.memory.read_obj(at).unwrap();
        u64::from(status)
    }

    /// Posts a request with its data.
    fn submit(&mut self, what: What, data: &[(u64, u32)]) -> u64 {
        let header = self.header(what, !data.is_empty());
        for (index, &(ptr, len)) in data.iter().enumerate() {
            self.post(ptr, len, index + 1 < data.len());
        }
        header
    }

    /// Makes a request, and waits for its status.
    fn request(&mut self, what: What, data: &[(u64, u32)]) -> u64 {
        let header = self.submit(what, data);
        self.wait(header)
    }

    fn wait(&mut self, header: u64) -> u64 {
        let end = Instant::now() + Duration::from_secs(20);
        self.guest.work(1);
        while self.status(header) == 0 {
            assert!(Instant::now() < end, "no status");
            std::thread::yield_now();
            self.guest.bridge.serve(true, 0);
        }
        while self
            .guest
            .tx
            .as_mut()
            .unwrap()
            .north
            .take()
            .unwrap()
            .is_some()
        {}
        self.status(header)
    }

    /// The event that the connection has ended; its number is free after that.
    fn is_closed(&mut self) -> bool {
        let event = self.guest.ask(layout::VBUS_COMMAND_EVENT, Ask::default());
        self.guest.ask(layout::VBUS_COMMAND_CLOSE, Ask::default());
        u64::from(event.number) == layout::VBUS_EVENT_CLOSED
    }

    fn on_host(&self, sector: u64) -> Vec<u8> {
        let content = std::fs::read(self.file.path()).unwrap();
        let at = usize::try_from(sector * 512).unwrap();
        content[at..at + 512].to_vec()
    }

    fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.guest
            .memory
            .read_slice(&mut bytes, GuestAddress(at))
            .unwrap();
        bytes
    }
}

fn what(operation: u64, sector: u64, sectors: u32) -> What {
    What {
        operation,
        sector,
        sectors,
        flags: 0,
    }
}

#[test]
fn a_driver_learns_the_geometry() {
    for (mode, flags) in [(Mode::Write, 7), (Mode::ReadOnly, 9)] {
        let mut m = machine(mode);
        let geometry = m.guest.call(layout::VBUS_BLOCK_GEOMETRY, &[]).unwrap();
        assert_eq!(geometry.len(), 64);
        let word = |at: usize| u32::from_le_bytes(geometry[at..at + 4].try_into().unwrap());
        assert_eq!(u64::from(word(0)), SECTORS);
        assert_eq!((word(4), word(8)), (0, flags));
        assert_eq!([word(12), word(16), word(20)], [512, 4096, SEGMENTS]);
        assert_eq!(&geometry[40..48], b"a name\0\0");
        assert!(m.guest.call(1, &[]).is_err());
    }
}

#[test]
fn sectors_are_read_and_written_in_pieces() {
    let mut m = machine(Mode::Write);
    let pieces = [(BYTES, 100), (BYTES + 0x1000, 924)];
    assert_eq!(m.request(what(READ, 7, 2), &pieces), DONE);
    assert_eq!(m.bytes(BYTES, 100), [7; 100]);
    assert_eq!(m.bytes(BYTES + 0x1000, 412), [7; 412]);
    assert_eq!(m.bytes(BYTES + 0x1000 + 412, 512), [8; 512]);
    let data = GuestAddress(BYTES);
    m.guest.memory.write_slice(&[0xaa; 1024], data).unwrap();
    let pieces = [(BYTES, 1), (BYTES, 1022), (BYTES, 1)];
    assert_eq!(m.request(what(WRITE, SECTORS - 2, 2), &pieces), DONE);
    assert_eq!(m.on_host(SECTORS - 1), [0xaa; 512]);
    assert_eq!(m.request(what(layout::VBUS_BLOCK_FLUSH, 0, 0), &[]), DONE);
    assert_eq!(m.request(what(layout::VBUS_BLOCK_DISCARD, 8, 8), &[]), DONE);
    let zero = What {
        flags: word(layout::VBUS_BLOCK_UNMAP),
        ..what(layout::VBUS_BLOCK_ZERO, 3, 2)
    };
    assert_eq!(m.request(zero, &[]), DONE);
    assert_eq!([m.on_host(2), m.on_host(3)], [vec![2; 512], vec![0; 512]]);
    assert_eq!([m.on_host(4), m.on_host(5)], [vec![0; 512], vec![5; 512]]);
}

#[test]
fn what_makes_no_sense_for_the_disk_fails_alone() {
    let mut m = machine(Mode::Write);
    let one = [(BYTES, 512)];
    for operation in [READ, WRITE] {
        for (sector, sectors, len) in [
            (SECTORS, 1, 512),
            (SECTORS - 1, 2, 1024),
            (u64::MAX, 1, 512),
            (1 << 55, 1, 512),
            (0, 1, 511),
            (0, 2, 512),
            (0, u32::MAX, 512),
        ] {
            let status = m.request(what(operation, sector, sectors), &[(BYTES, len)]);
            assert_eq!(status, FAILED, "{operation} {sector} {sectors} {len}");
        }
        assert_eq!(m.request(what(operation, 0, 1), &[]), FAILED);
    }
    for operation in [
        layout::VBUS_BLOCK_FLUSH,
        layout::VBUS_BLOCK_DISCARD,
        layout::VBUS_BLOCK_ZERO,
    ] {
        assert_eq!(m.request(what(operation, 0, 1), &one), FAILED);
        assert_eq!(m.request(what(operation, SECTORS, 1), &[]), FAILED);
        assert_eq!(m.request(what(operation, 0, u32::MAX), &[]), FAILED);
    }
    assert_eq!(m.request(what(5, 0, 0), &[]), UNSUPPORTED);
    assert_eq!(m.request(what(0xffff_ffff, 0, 0), &[]), UNSUPPORTED);
    let flagged = What {
        flags: 2,
        ..what(layout::VBUS_BLOCK_ZERO, 0, 1)
    };
    assert_eq!(m.request(flagged, &[]), UNSUPPORTED);
    // The connection is as good as before.
    assert_eq!(m.request(what(READ, 9, 1), &one), DONE);
    assert_eq!(m.bytes(BYTES, 512), [9; 512]);
    for sector in 0..SECTORS {
        assert_eq!(m.on_host(sector), [u8::try_from(sector).unwrap(); 512]);
    }
}

#[test]
fn a_read_only_disk_is_not_changed() {
    let mut m = machine(Mode::ReadOnly);
    let one = [(BYTES, 512)];
    assert_eq!(m.request(what(WRITE, 7, 1), &one), FAILED);
    for operation in [layout::VBUS_BLOCK_DISCARD, layout::VBUS_BLOCK_ZERO] {
        assert_eq!(m.request(what(operation, 7, 1), &[]), FAILED);
    }
    assert_eq!(m.request(what(READ, 7, 1), &one), DONE);
    assert_eq!(m.bytes(BYTES, 512), [7; 512]);
    assert_eq!(m.on_host(7), [7; 512]);
}

#[test]
fn a_driver_that_breaks_a_rule_loses_the_connection() {
    const END: u64 = MEMORY as u64;
    fn header(m: &mut Machine) {
        m.header(what(READ, 0, 1), true);
    }
    let breaches: [(&str, &Breach); 7] = [
        ("a short header", &|m| m.post(HEADERS, 31, false)),
        ("a long header", &|m| m.post(HEADERS, 33, false)),
        ("a crooked header", &|m| m.post(HEADERS + 4, 32, false)),
        ("a header outside", &|m| m.post(END, 32, false)),
        ("a header beyond", &|m| m.post(u64::MAX - 7, 32, false)),
        ("data outside", &|m| {
            header(m);
            m.post(END - 256, 512, false);
        }),
        ("data without bytes", &|m| {
            header(m);
            m.post(BYTES, 0, true);
        }),
    ];
    for (name, breach) in breaches {
        let mut m = machine(Mode::Write);
        breach(&mut m);
        m.guest.work(1);
        assert!(m.is_closed(), "{name}");
        m.open();
        assert_eq!(m.request(what(READ, 9, 1), &[(BYTES, 512)]), DONE, "{name}");
    }
}

#[test]
fn a_request_has_an_end() {
    let m = machine(Mode::Write);
    let place = |len| paravane_vbus::Place {
        ptr: BYTES,
        len,
        flags: 1,
    };
    let (mut parts, more) = Parts::begin(&m.guest.memory, &place(32)).unwrap();
    assert!(more);
    for _ in 0..SEGMENTS {
        assert_eq!(parts.add(&place(512)), Ok(true));
    }
    assert_eq!(parts.add(&place(512)), Err(Broken::Parts));
    // A ring that one request fills waits for the rest, and keeps no thread busy.
    let mut m = machine(Mode::Write);
    let header = m.header(what(READ, 0, 1), true);
    for _ in 1..COUNT {
        m.post(BYTES, 512, true);
    }
    m.guest.work(1);
    assert_eq!(m.status(header), 0);
}

/// The disk answers a request that need not wait before an earlier one that does, and the ring
/// gives descriptors back in its order.
#[test]
fn a_request_does_not_wait_for_an_earlier_one() {
    let mut m = machine(Mode::Write);
    let flush = m.submit(what(layout::VBUS_BLOCK_FLUSH, 0, 0), &[]);
    let read = m.submit(what(READ, 7, 1), &[(BYTES, 512)]);
    m.guest.bridge.serve(false, 1);
    // The flush is with a worker: only the device's thread stores its status.
    assert_eq!((m.status(flush), m.status(read)), (0, DONE));
    assert_eq!(m.bytes(BYTES, 512), [7; 512]);
    assert!(m.guest.tx.as_mut().unwrap().north.take().unwrap().is_none());
    assert_eq!(m.wait(flush), DONE);
    assert_eq!(m.guest.tx.as_ref().unwrap().north.room(), COUNT);
}

#[test]
fn a_request_may_come_in_parts_and_in_any_number() {
    let mut m = machine(Mode::Write);
    let header = m.header(what(READ, 7, 2), true);
    m.guest.work(1);
    m.post(BYTES, 512, true);
    m.guest.work(1);
    assert_eq!(m.status(header), 0);
    m.post(BYTES + 512, 512, false);
    assert_eq!(m.wait(header), DONE);
    assert_eq!(m.bytes(BYTES + 512, 512), [8; 512]);
    for round in 0..100 {
        let all: Vec<u64> = (0..u64::from(COUNT / 2))
            .map(|n| m.submit(what(READ, n + round, 1), &[(BYTES + n * 512, 512)]))
            .collect();
        for (n, &header) in all.iter().enumerate() {
            assert_eq!(m.wait(header), DONE);
            let expected = u8::try_from(n as u64 + round).unwrap();
            assert_eq!(m.bytes(BYTES + n as u64 * 512, 512), [expected; 512]);
        }
    }
}

#[test]
fn one_interrupt_says_that_several_requests_are_done() {
    let mut m = machine(Mode::Write);
    m.guest.work(1);
    let before = m.guest.count.raised.load(Ordering::SeqCst);
    for n in 0..8 {
        m.submit(what(READ, n, 1), &[(BYTES + n * 512, 512)]);
    }
    m.guest.work(1);
    assert_eq!(m.guest.count.raised.load(Ordering::SeqCst), before + 1);
    m.take();
    // The guest looks by itself until it rests again.
    m.submit(what(READ, 9, 1), &[(BYTES, 512)]);
    m.guest.work(1);
    assert_eq!(m.guest.count.raised.load(Ordering::SeqCst), before + 1);
    m.take();
    m.rest();
    m.submit(what(READ, 9, 1), &[(BYTES, 512)]);
    m.guest.work(1);
    assert_eq!(m.guest.count.raised.load(Ordering::SeqCst), before + 2);
}

#[test]
fn a_closed_connection_touches_nothing_and_another_begins_anew() {
    let mut m = machine(Mode::Write);
    // A request of which a part is missing, and one that a worker has.
    m.submit(what(layout::VBUS_BLOCK_FLUSH, 0, 0), &[]);
    let half = m.header(what(READ, 7, 1), true);
    m.guest.bridge.serve(false, 1);
    m.guest.ask(layout::VBUS_COMMAND_CLOSE, Ask::default());
    m.guest.bridge.serve(true, 1);
    assert_eq!(m.status(half), 0);
    m.open();
    // Another driver of the machine.
    m.guest.up_disk();
    assert_eq!(m.request(what(READ, 9, 1), &[(BYTES, 512)]), DONE);
    let again = Ask {
        interface: 1,
        number: 1,
        ..Ask::default()
    };
    let second = m.guest.ask(layout::VBUS_COMMAND_OPEN, again);
    assert_eq!(u64::from(second.status), layout::VBUS_ERROR_BUSY);
    for (queue, role, status) in [
        (0, Role::Receive, layout::VBUS_ERROR_NOT_FOUND),
        (1, Role::Transmit, layout::VBUS_ERROR_EXISTS),
    ] {
        assert_eq!(u64::from(m.guest.share(queue, role)), status);
    }
}
