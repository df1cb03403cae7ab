// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was written to a disk, kept apart from it.

use super::storage::{Stop, Storage, write_zeroes};
use crate::buffers::{Buffers, Part};
use anyhow::Context;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex, PoisonError};

/// What is kept track of: smaller writes copy the rest.
const BLOCK: u64 = 4096;
const BLOCK_SIZE: usize = 4096;
/// Room that may be kept for what is not needed any more, bytes.
const KEPT_MAX: u64 = 64 << 20;
/// Blocks that are copied at a time.
const PIECE_BLOCKS: u64 = 256;

/// A disk that is only read, with what was written in a file that has no name and goes with the machine.
pub struct Overlay {
    base: Arc<dyn Storage>,
    written: File,
    /// A bit for each block that is in `written`.
    map: Mutex<Vec<u64>>,
}

impl Overlay {
    /// Nothing written yet.
    pub fn new(base: Arc<dyn Storage>) -> anyhow::Result<Self> {
        let written =
            tempfile::tempfile().context("cannot make a file for what the guest writes")?;
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
            let length =
                usize::try_from((self.base.len() - offset).min(BLOCK)).unwrap_or(BLOCK_SIZE);
            self.base.read_bytes(offset, &mut bytes[..length])?;
            self.written.write_all_at(&bytes, offset)?;
            set(map, block);
        }
        Ok(())
    }

    /// Gives what was written to `to`, in pieces in their order, and forgets it. Nobody may read or write meanwhile.
    pub fn drain(&self, to: &dyn Storage) -> io::Result<()> {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let blocks = self.base.len().div_ceil(BLOCK);
        let mut block = 0;
        while block < blocks {
            if !is_set(&map, block) {
                // Most words have no other blocks.
                let rest = word(&map, block) >> (block % 64);
                block += u64::from(rest.trailing_zeros()).min(64 - block % 64);
                continue;
            }
            let first = block;
            while block < blocks && block - first < PIECE_BLOCKS && is_set(&map, block) {
                block += 1;
            }
            let offset = first * BLOCK;
            let length = (block * BLOCK).min(self.base.len()) - offset;
            let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
            self.written.read_exact_at(&mut bytes, offset)?;
            to.write_bytes(offset, &bytes)?;
        }
        map.fill(0);
        // It costs the host's file system a transaction.
        let kept = self.written.metadata()?.blocks() * 512;
        if kept < KEPT_MAX {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.written, flags, 0, blocks * BLOCK) {
            // Room that is kept: what is in it is not read again.
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
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

/// The word with a block's bit.
fn word(map: &[u64], block: u64) -> u64 {
    let word = usize::try_from(block / 64)
        .ok()
        .and_then(|index| map.get(index));
    word.copied().unwrap_or(0)
}

fn is_set(map: &[u64], block: u64) -> bool {
    word(map, block) >> (block % 64) & 1 == 1
}

fn set(map: &mut [u64], block: u64) {
    if let Some(word) = usize::try_from(block / 64)
        .ok()
        .and_then(|index| map.get_mut(index))
    {
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
        for (at, part) in (offset..)
            .step_by(BLOCK_SIZE)
            .zip(bytes.chunks_mut(BLOCK_SIZE))
        {
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

    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.prepare(offset, bytes.len() as u64)?;
        self.written.write_all_at(bytes, offset)
    }

    /// Nothing of it is to survive.
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn zero(&self, offset: u64, length: u64, _free: bool, stop: Stop<'_>) -> io::Result<()> {
        if length == 0 {
            return Ok(());
        }
        self.prepare(offset, length)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.written, flags, offset, length) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP) => write_zeroes(&self.written, offset, length, stop),
            Err(error) => Err(error.into()),
        }
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.zero(offset, length, true, &|| false)
    }
}
