// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients of a disk in vbusd that break the rules.
#![allow(clippy::unwrap_used)]

mod common;

use common::disks::{content, daemon, disk};
use common::{Daemon, name, soon};
use paravane_vbus_client::bus::{ConnectionId, Event};
use paravane_vbus_client::protocol::{Reply, Request, Shared};
use paravane_vbus_client::{Control, SECTOR};
use paravane_vbus_shm::layout::{self, BlockRequest, Descriptor, Ioq, Side, Signal};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::fs::File;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

with_engines!(
    what_makes_no_sense_fails_and_breaches_end_the_connection,
    random_requests_harm_nobody,
);

/// What a hostile client puts into its memory: a ring of four descriptors, and buffers.
struct Hostile {
    control: Control,
    memory: File,
    connection: Option<ConnectionId>,
}

const COUNT: u32 = 4;
const MEMORY: u64 = 64 << 10;
const HEADER: u64 = 0x8000;
const DATA: u64 = 0x9000;

impl Hostile {
    fn new(daemon: &Daemon) -> Self {
        let mut control = daemon.control();
        control.ask(&Request::Join { bus: name("lan") }).unwrap();
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = File::from(memfd_create("test", flags).unwrap());
        memory.set_len(MEMORY).unwrap();
        fcntl_add_seals(
            &memory,
            SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
        )
        .unwrap();
        Hostile {
            control,
            memory,
            connection: None,
        }
    }

    fn put(&self, at: usize, value: u64) {
        let value = u32::try_from(value).unwrap().to_le_bytes();
        self.memory.write_all_at(&value, at as u64).unwrap();
    }

    /// A ring with these descriptors: address, length, flags.
    fn ring(&self, descriptors: &[(u64, u32, u32)]) {
        self.memory.write_all_at(&[0; 0x1000], 0).unwrap();
        let signal = offset_of!(Ioq, signal);
        let count = descriptors.len() as u64;
        for (at, value) in [
            (offset_of!(Ioq, magic), layout::VBUS_IOQ_MAGIC),
            (offset_of!(Ioq, version), layout::VBUS_IOQ_VERSION),
            (offset_of!(Ioq, count), COUNT.into()),
            (offset_of!(Ioq, role), layout::VBUS_ROLE_TRANSMIT),
            (
                signal + offset_of!(Signal, magic),
                layout::VBUS_SIGNAL_MAGIC,
            ),
            (
                signal + offset_of!(Signal, version),
                layout::VBUS_SIGNAL_VERSION,
            ),
            (
                signal + offset_of!(Signal, sides) + offset_of!(Side, enabled),
                1,
            ),
            (offset_of!(Ioq, valid_tail), count),
            (offset_of!(Ioq, inuse_tail), count),
        ] {
            self.put(at, value);
        }
        for (index, &(ptr, len, flags)) in descriptors.iter().enumerate() {
            let at = size_of::<Ioq>() + index * size_of::<Descriptor>();
            let place = (at + offset_of!(Descriptor, ptr)) as u64;
            self.memory.write_all_at(&ptr.to_le_bytes(), place).unwrap();
            self.put(at + offset_of!(Descriptor, len), len.into());
            self.put(at + offset_of!(Descriptor, flags), flags.into());
            self.put(at + offset_of!(Descriptor, owner), layout::VBUS_SOUTH);
        }
    }

    fn header(&self, operation: u32, sector: u64, sectors: u32, flags: u32) {
        let header = [
            &operation.to_le_bytes()[..],
            &[0; 4],
            &sector.to_le_bytes(),
            &sectors.to_le_bytes(),
            &flags.to_le_bytes(),
            &[0; 8],
        ];
        self.memory.write_all_at(&header.concat(), HEADER).unwrap();
    }

    /// Shares the ring with a new connection.
    fn begin(&mut self) -> ConnectionId {
        if let Some(connection) = self.connection.take() {
            // It may have been reset.
            let _ = self.control.ask(&Request::Close { connection });
        }
        let open = Request::Open {
            interface: 1,
            version: 1,
        };
        let opened = self.control.ask_with(&open, &[self.memory.as_fd()]);
        let (Reply::Opened(connection), _files) = opened.unwrap() else {
            unreachable!();
        };
        self.connection = Some(connection);
        let shared = Shared {
            queue: 1,
            offset: 0,
            count: COUNT,
        };
        // A ring that makes no sense is refused.
        let _ = self.control.ask(&Request::Share { connection, shared });
        connection
    }

    /// Waits until vbusd has looked at what it was notified of.
    fn settle(&mut self) {
        for _ in 0..2 {
            self.control.ask(&Request::Interfaces).unwrap();
        }
        while self.control.event().unwrap().is_some() {}
    }

    /// Shares the ring. Returns the status, or `None` if the connection was reset.
    fn play(&mut self) -> Option<u32> {
        let connection = self.begin();
        let mut result = None;
        soon("neither done nor reset", || {
            while let Some(event) = self.control.event().unwrap() {
                if matches!(event, Event::Closed { connection: it, .. } if it == connection) {
                    result = Some(None);
                    self.connection = None;
                }
            }
            let mut status = [0; 4];
            let at = HEADER + offset_of!(BlockRequest, status) as u64;
            self.memory.read_exact_at(&mut status, at).unwrap();
            let status = u32::from_le_bytes(status);
            if result.is_none() && status != 0 {
                result = Some(Some(status));
            }
            result.is_some()
        });
        result.unwrap()
    }
}

fn what_makes_no_sense_fails_and_breaches_end_the_connection(engine: &str) {
    let daemon = daemon(engine);
    let mut beside = disk(&daemon);
    let mut hostile = Hostile::new(&daemon);
    let sector = u32::try_from(SECTOR).unwrap();
    let one = [(HEADER, 32, 1), (DATA, sector, 0)];
    // Operation, sector, sectors, flags, and the result with a buffer of one sector.
    for (request, expected) in [
        ((0, 0, 1, 0), Some(1)),
        ((0, 2047, 1, 0), Some(1)),
        ((0, 2048, 1, 0), Some(2)),
        ((0, u64::MAX, 1, 0), Some(2)),
        ((0, 0, 2, 0), Some(2)),
        ((0, 0, 0, 0), Some(2)),
        ((0, 0, u32::MAX, 0), Some(2)),
        ((1, 2048, 1, 0), Some(2)),
        ((2, 0, 1, 0), Some(2)),
        ((3, 0, 1, 0), Some(3)),
        ((4, 0, 1, 1), Some(3)),
        ((u32::MAX, 0, 1, 0), Some(3)),
        ((0, 0, 1, 1), Some(3)),
    ] {
        let (operation, sector, sectors, flags) = request;
        hostile.header(operation, sector, sectors, flags);
        hostile.ring(&one);
        assert_eq!(hostile.play(), expected, "{request:?}");
    }
    for broken in [
        &[(HEADER, 31, 0)][..],
        &[(HEADER + 4, 32, 0)],
        &[(MEMORY - 16, 32, 0)],
        &[(u64::MAX - 7, 32, 0)],
        &[(HEADER, 32, 1), (DATA, 0, 0)],
        &[(HEADER, 32, 1), (MEMORY - 8, sector, 0)],
        &[(HEADER, 32, 1), (u64::MAX - 100, sector, 0)],
    ] {
        for operation in [0, 1] {
            hostile.header(operation, 0, 1, 0);
            hostile.ring(broken);
            assert_eq!(hostile.play(), None, "{broken:?}");
        }
    }
    // Another client has noticed nothing, and nothing was written.
    beside.read(0, &mut [0; SECTOR]).unwrap();
    assert!(content(&daemon).iter().all(|&byte| byte == 0x5a));
    assert_eq!(daemon.attribute("disk", "resets-broken"), 14);
}

/// Requests of random content: each is done, refused, or ends its connection. No other client
/// notices, and the file has changed only where a request says so.
fn random_requests_harm_nobody(engine: &str) {
    let daemon = daemon(engine);
    let mut beside = disk(&daemon);
    beside.write(100, &[7; SECTOR]).unwrap();
    let mut hostile = Hostile::new(&daemon);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    };
    for _ in 0..400 {
        // Only the first 64 sectors may be written.
        let sector = match next(4) {
            0 => next(u64::MAX),
            1 => 2040 + next(16),
            _ => next(64),
        };
        let operation = if sector < 64 { next(7) } else { next(2) * 2 };
        let word = |value: u64| u32::try_from(value).unwrap();
        let (sectors, flags) = (word(next(3)), word(next(8) / 7));
        hostile.header(word(operation), sector, sectors, flags);
        let count = 1 + next(4);
        let descriptors: Vec<_> = (0..count)
            .map(|index| {
                let ptr = match next(8) {
                    0 => next(MEMORY + 64),
                    1 => next(u64::MAX),
                    _ if index == 0 => HEADER,
                    _ => DATA,
                };
                let len = match next(8) {
                    0 => next(1 << 32),
                    1 => next(64),
                    _ if index == 0 => 32,
                    _ => 512,
                };
                let more = u32::from(index + 1 < count || next(8) == 0);
                (ptr, word(len), more)
            })
            .collect();
        hostile.ring(&descriptors);
        hostile.begin();
        hostile.settle();
    }
    let mut sector = [0; SECTOR];
    beside.read(100, &mut sector).unwrap();
    assert_eq!(sector, [7; SECTOR]);
    beside.flush().unwrap();
    let file = content(&daemon);
    let expected = |at: usize| if at / SECTOR == 100 { 7 } else { 0x5a };
    for (at, &byte) in file.iter().enumerate().skip(66 * SECTOR) {
        assert_eq!(byte, expected(at), "{at}");
    }
    assert!(daemon.attribute("disk", "resets-broken") > 20);
    assert!(daemon.attribute("disk", "requests") > 100);
}
