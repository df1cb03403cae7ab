// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a block device keeps its data in.

use super::buffers::{Buffers, Part};
use super::qcow2::{self, Qcow2};
use anyhow::{Context, bail};
use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom, fallocate, flock, seek};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Bytes of a sector, in which everything is counted.
pub const SECTOR: u64 = 512;
/// What the overlay keeps track of: smaller writes copy the rest.
const BLOCK: u64 = 4096;
const BLOCK_SIZE: usize = 4096;

/// How a disk is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The guest reads and writes the file.
    Write,
    /// The guest only reads it.
    ReadOnly,
    /// The guest reads and writes; what it writes is thrown away at the end.
    Snapshot,
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

    /// All that was written stays, whatever happens to the host.
    fn flush(&self) -> io::Result<()>;

    /// The bytes become zero. `free`: room on the host may be given back.
    fn zero(&self, offset: u64, length: u64, free: bool) -> io::Result<()>;

    /// What the bytes are does not matter any more.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()>;
}

/// Opens a file or block device as a disk.
pub fn open(path: &Path, mode: Mode) -> anyhow::Result<Box<dyn Storage>> {
    let complain = || path.display().to_string();
    let raw = Raw::open(path, mode == Mode::Write).with_context(complain)?;
    let storage: Box<dyn Storage> = if qcow2::is_one(&raw.file) {
        Box::new(Qcow2::open(&raw.file, mode == Mode::Write).with_context(complain)?)
    } else {
        Box::new(raw.whole_sectors().with_context(complain)?)
    };
    Ok(match mode {
        Mode::Snapshot => Box::new(Overlay::new(storage)?),
        _ => storage,
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
                bail!("another virtual machine uses it; use it read-only in both, or give one of them a copy")
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

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn zero(&self, offset: u64, length: u64, free: bool) -> io::Result<()> {
        let flags = if free {
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE
        } else {
            FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE
        };
        match fallocate(&self.file, flags, offset, length) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::INVAL) => write_zeroes(&self.file, offset, length),
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

fn write_zeroes(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let zeroes = [0u8; 64 << 10];
    let mut done = 0;
    while done < length {
        let part = usize::try_from(length - done).map_or(zeroes.len(), |left| left.min(zeroes.len()));
        file.write_all_at(&zeroes[..part], offset + done)?;
        done += part as u64;
    }
    Ok(())
}

/// A disk that is only read, with what was written in a file that has no name and goes with the machine.
pub struct Overlay {
    base: Box<dyn Storage>,
    written: File,
    /// A bit for each block that is in `written`.
    map: Mutex<Vec<u64>>,
}

impl Overlay {
    fn new(base: Box<dyn Storage>) -> anyhow::Result<Self> {
        let written = tempfile::tempfile().context("cannot make a file for what the guest writes")?;
        written
            .set_len(base.len().next_multiple_of(BLOCK))
            .context("cannot make a file for what the guest writes")?;
        let words = usize::try_from(base.len().div_ceil(BLOCK * 64))?;
        Ok(Overlay {
            base,
            written,
            map: Mutex::new(vec![0; words]),
        })
    }

    /// Copies a block to the overlay unless it is there. Under the lock of the map.
    fn copy_up(&self, map: &mut [u64], block: u64) -> io::Result<()> {
        if !is_set(map, block) {
            let mut bytes = [0; BLOCK_SIZE];
            let offset = block * BLOCK;
            let length = usize::try_from((self.base.len() - offset).min(BLOCK)).unwrap_or(BLOCK_SIZE);
            self.base.read_bytes(offset, &mut bytes[..length])?;
            self.written.write_all_at(&bytes, offset)?;
            set(map, block);
        }
        Ok(())
    }

    /// Has the first and last blocks of a range in the overlay if they are not all of the range's, and marks the others.
    fn prepare(&self, offset: u64, length: u64) -> io::Result<()> {
        let end = offset + length;
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        for edge in [offset, end] {
            if edge % BLOCK != 0 {
                self.copy_up(&mut map, edge / BLOCK)?;
            }
        }
        (offset / BLOCK..end.div_ceil(BLOCK)).for_each(|block| set(&mut map, block));
        Ok(())
    }
}

fn is_set(map: &[u64], block: u64) -> bool {
    let word = usize::try_from(block / 64).ok().and_then(|index| map.get(index));
    word.is_some_and(|word| word >> (block % 64) & 1 == 1)
}

fn set(map: &mut [u64], block: u64) {
    if let Some(word) = usize::try_from(block / 64).ok().and_then(|index| map.get_mut(index)) {
        *word |= 1 << (block % 64);
    }
}

impl Storage for Overlay {
    fn len(&self) -> u64 {
        self.base.len()
    }

    fn read(&self, offset: u64, buffers: &Buffers, wait: bool) -> io::Result<()> {
        let end = offset + buffers.len();
        let mut at = offset;
        while at < end {
            // A run of blocks that are in the same file.
            let (upper, next) = {
                let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
                let upper = is_set(&map, at / BLOCK);
                let mut block = at / BLOCK + 1;
                while block * BLOCK < end && is_set(&map, block) == upper {
                    block += 1;
                }
                (upper, end.min(block * BLOCK))
            };
            let part = buffers.part(Part::of(at - offset, next - at));
            if upper {
                part.read_from(&self.written, at, wait)?;
            } else {
                self.base.read(at, &part, wait)?;
            }
            at = next;
        }
        Ok(())
    }

    fn read_bytes(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        for (at, part) in (offset..).step_by(BLOCK_SIZE).zip(bytes.chunks_mut(BLOCK_SIZE)) {
            let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
            self.copy_up(&mut map, at / BLOCK)?;
            self.copy_up(&mut map, (at + part.len() as u64 - 1) / BLOCK)?;
            self.written.read_exact_at(part, at)?;
        }
        Ok(())
    }

    fn write(&self, offset: u64, buffers: &Buffers) -> io::Result<()> {
        if buffers.len() == 0 {
            return Ok(());
        }
        // A read of the same bytes meanwhile may see old data, new data or zeroes: it is the guest's race.
        self.prepare(offset, buffers.len())?;
        buffers.write_to(&self.written, offset)
    }

    /// Nothing of it is to survive.
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn zero(&self, offset: u64, length: u64, _free: bool) -> io::Result<()> {
        if length == 0 {
            return Ok(());
        }
        self.prepare(offset, length)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.written, flags, offset, length) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP) => write_zeroes(&self.written, offset, length),
            Err(error) => Err(error.into()),
        }
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.zero(offset, length, true)
    }
}
