// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a block device keeps its data in.

use super::cut::Cut;
use super::overlay::Overlay;
use super::qcow2::{self, Qcow2};
use crate::buffers::Buffers;
use anyhow::{Context, bail};
use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom, fallocate, flock, seek};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Bytes of a sector, in which everything is counted.
pub const SECTOR: u64 = 512;

/// Says whether long work is to be left: its driver has reset the device, or its machine ends.
pub type Stop<'a> = &'a dyn Fn() -> bool;

/// Says that work was left.
#[derive(Debug, thiserror::Error)]
#[error("the machine ends")]
struct Stopped;

/// The error of work that was left.
pub fn stopped() -> io::Error {
    io::Error::other(Stopped)
}

/// Whether an error is that of work that was left.
pub fn is_stopped(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Stopped>())
}

/// How a disk is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The guest reads and writes the file.
    Write,
    /// The guest only reads it.
    ReadOnly,
    /// The guest reads and writes; what it writes is thrown away at the end.
    Snapshot,
    /// The guest reads and writes. The file gets what the guest has flushed, when it does so, and nothing else: each end is
    /// what a power failure is to a disk with a volatile cache. For tests.
    Cut(Flush),
}

/// What a flush does to a disk that is to be cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// The file has what was written before it is answered.
    Honoured,
    /// It is answered, and that is all: what the test of a disk must find out.
    Ignored,
}

/// Data of a disk. Any number of threads at a time; offsets and lengths are in bytes and were checked against
/// [`len`](Storage::len).
pub trait Storage: Send + Sync {
    /// Bytes, a multiple of [`SECTOR`].
    fn len(&self) -> u64;

    /// Fills the buffers. `wait` false: fails with `WouldBlock` where that means waiting for a disk.
    fn read(&self, offset: u64, buffers: &Buffers, wait: bool) -> io::Result<()>;

    /// Fills bytes of ours, however long that takes.
    fn read_bytes(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Writes the buffers.
    fn write(&self, offset: u64, buffers: &Buffers) -> io::Result<()>;

    /// Writes bytes of ours.
    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// All that was written stays, whatever happens to the host.
    fn flush(&self) -> io::Result<()>;

    /// The bytes become zero. `free`: room on the host may be given back. Where zeroes have to be
    /// written, that is left when `stop` says so, and only a part of the bytes is zero.
    fn zero(&self, offset: u64, length: u64, free: bool, stop: Stop<'_>) -> io::Result<()>;

    /// What the bytes are does not matter any more.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()>;
}

/// Opens a file or block device as a disk.
pub fn open(path: &Path, mode: Mode) -> anyhow::Result<Box<dyn Storage>> {
    let complain = || path.display().to_string();
    let write = matches!(mode, Mode::Write | Mode::Cut(_));
    let raw = Raw::open(path, write).with_context(complain)?;
    let storage: Box<dyn Storage> = if qcow2::is_one(&raw.file) {
        Box::new(Qcow2::open(&raw.file, write).with_context(complain)?)
    } else {
        Box::new(raw.whole_sectors().with_context(complain)?)
    };
    Ok(match mode {
        Mode::Snapshot => Box::new(Overlay::new(storage.into())?),
        Mode::Cut(flush) => Box::new(Cut::new(storage, flush)?),
        Mode::Write | Mode::ReadOnly => storage,
    })
}

/// A file whose bytes are those of the disk.
#[derive(Debug)]
pub struct Raw {
    file: File,
    length: u64,
}

impl Raw {
    fn open(path: &Path, write: bool) -> anyhow::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(write)
            // A terminal or a pipe must not become ours, nor make us wait.
            .custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK)
            .open(path)?;
        let kind = file.metadata()?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            bail!("neither a file nor a block device");
        }
        let lock = if write {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        match flock(&file, lock) {
            // A file system without locks.
            Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP) => {}
            Err(Errno::WOULDBLOCK) => {
                bail!(
                    "another virtual machine uses it; use it read-only in both, or give one of them a copy"
                )
            }
            Err(error) => return Err(error).context("cannot lock it"),
        }
        // Works for block devices too, whose metadata do not know.
        let length = seek(&file, SeekFrom::End(0))?;
        Ok(Raw { file, length })
    }

    /// Itself, if it can be a disk.
    fn whole_sectors(self) -> anyhow::Result<Self> {
        if self.length == 0 || self.length % SECTOR != 0 {
            bail!(
                "{} bytes: a disk has a multiple of {SECTOR}, and at least one",
                self.length
            );
        }
        Ok(self)
    }
}

impl Storage for Raw {
    fn len(&self) -> u64 {
        self.length
    }

    fn read(&self, offset: u64, buffers: &Buffers, wait: bool) -> io::Result<()> {
        buffers.read_from(&self.file, offset, wait)
    }

    fn read_bytes(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    fn write(&self, offset: u64, buffers: &Buffers) -> io::Result<()> {
        buffers.write_to(&self.file, offset)
    }

    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn zero(&self, offset: u64, length: u64, free: bool, stop: Stop<'_>) -> io::Result<()> {
        let flags = if free {
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE
        } else {
            FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE
        };
        match fallocate(&self.file, flags, offset, length) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::INVAL) => write_zeroes(&self.file, offset, length, stop),
            Err(error) => Err(error.into()),
        }
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, flags, offset, length) {
            // Where the host cannot give room back it is kept: nobody asked for zeroes.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::INVAL) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Writes zeroes in pieces, and looks at `stop` between them.
pub(super) fn write_zeroes(
    file: &File,
    offset: u64,
    length: u64,
    stop: Stop<'_>,
) -> io::Result<()> {
    let zeroes = [0u8; 64 << 10];
    let mut done = 0;
    while done < length {
        if stop() {
            return Err(stopped());
        }
        let part =
            usize::try_from(length - done).map_or(zeroes.len(), |left| left.min(zeroes.len()));
        file.write_all_at(&zeroes[..part], offset + done)?;
        done += part as u64;
    }
    Ok(())
}
