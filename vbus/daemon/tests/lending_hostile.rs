// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients that make invalid loans, write to memory that others lend, or leave files unread.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/sharing.rs"]
mod sharing;

use common::{Daemon, name, soon};
use paravane_vbus_client::bus::{ConnectionId, Event, Kind};
use paravane_vbus_client::protocol::{Reply, Request};
use paravane_vbus_client::{Control, Error};
use paravane_vbus_shm::loans;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{Errno, pwrite};
use sharing::{acquaint, sharing, switch};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A client that speaks to vbusd itself.
struct Raw {
    control: Control,
    connection: ConnectionId,
    memory: OwnedFd,
}

/// Bytes of its memory, and of its slots.
const MEMORY: u64 = 1 << 16;
const SLOTS: u32 = 16;
const SIZE: u32 = 2048;

fn memfd(len: u64, seals: SealFlags) -> OwnedFd {
    let file = memfd_create(c"raw", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, len).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

fn fixed() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

fn slots() -> OwnedFd {
    let len = u64::from(SLOTS) * u64::from(SIZE);
    memfd(len, fixed() | SealFlags::FUTURE_WRITE)
}

impl Raw {
    fn open(daemon: &Daemon) -> Self {
        let mut control = daemon.control();
        control.ask(&Request::Join { bus: name("lan") }).unwrap();
        let (connection, memory) = Raw::connect(&mut control);
        Raw {
            control,
            connection,
            memory,
        }
    }

    fn connect(control: &mut Control) -> (ConnectionId, OwnedFd) {
        let memory = memfd(MEMORY, fixed());
        let request = Request::Open {
            interface: 1,
            version: 1,
        };
        let (reply, _) = control.ask_with(&request, &[memory.as_fd()]).unwrap();
        let Reply::Opened(connection) = reply else {
            unreachable!("{reply:?}");
        };
        (connection, memory)
    }

    fn lend(&mut self, words: (u64, u32, u32), files: &[BorrowedFd<'_>]) -> Result<(), Kind> {
        let (table, slots, size) = words;
        let request = Request::Lend {
            connection: self.connection,
            table,
            slots,
            size,
        };
        match self.control.ask_with(&request, files) {
            Ok((Reply::Done, _)) => Ok(()),
            Err(Error::Refused(why)) => Err(why.kind()),
            other => unreachable!("{other:?}"),
        }
    }

    /// Says that it has handled `number` announcements.
    fn handled(&self, number: u32) {
        pwrite(&self.memory, &number.to_le_bytes(), 0).unwrap();
    }
}

#[test]
fn what_makes_no_sense_of_memory_that_is_lent_is_refused() {
    let daemon = switch();
    let mut raw = Raw::open(&daemon);
    let good = (0, SLOTS, SIZE);
    let file = slots();
    let files = [file.as_fd()];
    let bytes = loans::words(SLOTS) as u64 * 4;
    // The memory: not sealed, one that others can write, another kind of file, none, two.
    let len = u64::from(SLOTS) * u64::from(SIZE);
    let unsealed = memfd(len, SealFlags::FUTURE_WRITE);
    let writable = memfd(len, fixed());
    let short = memfd(len - 1, fixed() | SealFlags::FUTURE_WRITE);
    let empty = memfd(0, fixed() | SealFlags::FUTURE_WRITE);
    let large = memfd(loans::BYTES + 1, fixed() | SealFlags::FUTURE_WRITE);
    let other = OwnedFd::from(std::fs::File::open("/dev/zero").unwrap());
    for bad in [&unsealed, &writable, &short, &empty, &large, &other] {
        assert_eq!(
            raw.lend(good, &[bad.as_fd()]),
            Err(Kind::Invalid),
            "{bad:?}"
        );
    }
    assert_eq!(raw.lend(good, &[]), Err(Kind::Invalid));
    assert_eq!(raw.lend(good, &[files[0]; 2]), Err(Kind::Invalid));
    // The slots, and the place of the words.
    for (slots, size) in [
        (0, SIZE),
        (SLOTS, 0),
        (SLOTS + 1, SIZE),
        (4097, 1),
        (u32::MAX, u32::MAX),
    ] {
        assert_eq!(
            raw.lend((0, slots, size), &files),
            Err(Kind::Invalid),
            "{slots} {size}"
        );
    }
    for table in [2, MEMORY, MEMORY - bytes + 4, u64::MAX] {
        assert_eq!(
            raw.lend((table, SLOTS, SIZE), &files),
            Err(Kind::Broken),
            "{table}"
        );
    }
    // Another's connection, and one that there is not.
    let mut spy = Raw::open(&daemon);
    let own = std::mem::replace(&mut spy.connection, raw.connection);
    assert_eq!(spy.lend(good, &files), Err(Kind::NotFound));
    spy.connection = ConnectionId(own.0 + 1);
    assert_eq!(spy.lend(good, &files), Err(Kind::NotFound));
    assert_eq!(daemon.attribute("dev", "sharing"), 0);
    assert_eq!(raw.lend(good, &files), Ok(()));
    assert_eq!(raw.lend(good, &files), Err(Kind::Exists));
    assert_eq!(daemon.attribute("dev", "sharing"), 1);
}

/// The file that a client gets of another cannot be written, whatever it does with it.
#[test]
fn what_others_lend_can_only_be_read() {
    let daemon = switch();
    let _lender = sharing(&daemon);
    let mut raw = Raw::open(&daemon);
    let file = slots();
    assert_eq!(raw.lend((0, SLOTS, SIZE), &[file.as_fd()]), Ok(()));
    let mut found = None;
    soon("nobody lends", || {
        found = raw.control.event_with().unwrap();
        found.is_some()
    });
    let (event, file) = found.unwrap();
    let connection = raw.connection;
    assert!(matches!(event, Event::Lends { connection: own, .. } if own == connection));
    let file = file.unwrap();
    assert_eq!(pwrite(&file, &[1], 0), Err(Errno::PERM));
    assert_eq!(ftruncate(&file, 0), Err(Errno::PERM));
    let map = memmap2::MmapOptions::new().len(4096).map_raw(&file);
    assert_eq!(
        map.unwrap_err().raw_os_error(),
        Some(Errno::PERM.raw_os_error())
    );
    // A write by a newly opened descriptor fails, too.
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let again = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path);
    if let Ok(again) = again {
        assert_eq!(pwrite(&again, &[1], 0), Err(Errno::PERM));
    }
}

/// A client claims to have taken events that it leaves in its socket. It gets no more files, since
/// each would hold memory of another client.
#[test]
fn files_are_not_left_unread_without_end() {
    let daemon = switch();
    let mut raw = Raw::open(&daemon);
    let file = slots();
    assert_eq!(raw.lend((0, SLOTS, SIZE), &[file.as_fd()]), Ok(()));
    for number in 1..60 {
        let lender = sharing(&daemon);
        raw.handled(2 * number - 1);
        drop(lender);
        soon("it has not gone", || {
            daemon.attribute("dev", "sharing") <= 1
        });
        raw.handled(2 * number);
    }
    let mut files = 0;
    let end = loop {
        match raw.control.event_with() {
            Ok(Some((_, file))) => files += u32::from(file.is_some()),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    assert!(files < 8, "{files} files");
    assert!(matches!(end, Some(Error::Lost(_))), "{end:?} {files}");
    // The others are served.
    let (mut a, mut b) = (sharing(&daemon), sharing(&daemon));
    acquaint(&daemon, &mut a, &mut b);
}
