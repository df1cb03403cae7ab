// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data that was written to a disk, kept apart from it.

use super::heuristics::Heuristics;
use super::storage::{Stop, Storage, write_zeroes};
use crate::buffers::{Buffers, Part};
use anyhow::Context;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex, PoisonError};

/// The granularity. Smaller writes copy the rest of the block.
const BLOCK: u64 = 4096;
const BLOCK_SIZE: usize = 4096;
/// The most room in bytes that is kept for data that is no longer needed.
const KEPT_MAX: u64 = 64 << 20;
/// Blocks that are copied at a time.
const PIECE_BLOCKS: u64 = 256;

/// A read-only disk, with what was written to it in a file without a name that disappears with the
/// machine.
pub struct Overlay {
    base: Arc<dyn Storage>,
    written: File,
    /// A bit for each block that is in `written`.
    map: Mutex<Vec<u64>>,
}

/// A file without a name. In /tmp it would be in the host's memory on many hosts, and a guest may
/// write as much as the disk is large. So it is in /var/tmp, unless the user has named another
/// folder (`TMPDIR`) or there is none.
fn file() -> io::Result<File> {
    if std::env::var_os("TMPDIR").is_none()
        && let Ok(file) = tempfile::tempfile_in("/var/tmp")
    {
        return Ok(file);
    }
    tempfile::tempfile()
}

impl Overlay {
    /// An overlay without written blocks.
    ///
    /// # Errors
    /// The host gives no temporary file.
    pub fn new(base: Arc<dyn Storage>) -> anyhow::Result<Self> {
        let written = file().context("cannot make a file for what the guest writes")?;
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

    /// Copies a block to the overlay unless it is there. Called under the lock of the map.
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

    /// Writes all written blocks to `to`, in pieces in their order, and forgets them. No other
    /// thread may read or write during this.
    ///
    /// # Errors
    /// The host's error.
    pub fn drain(&self, to: &dyn Storage) -> io::Result<()> {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let blocks = self.base.len().div_ceil(BLOCK);
        let mut block = 0;
        while block < blocks {
            if !is_set(&map, block) {
                // The rest of most words is empty.
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
        // Punching a hole costs the host's file system a transaction.
        let kept = self.written.metadata()?.blocks() * 512;
        if kept < KEPT_MAX {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.written, flags, 0, blocks * BLOCK) {
            // The room is kept; its content is not read again.
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Does something that writes a range of the overlay. Copies the first and the last block to it
    /// before if they are only partly in the range, and marks all blocks.
    ///
    /// # Errors
    /// That of `write`, or of a copy. Blocks that were written before are unchanged, or have new
    /// data.
    fn change(
        &self,
        offset: u64,
        length: u64,
        write: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let end = offset + length;
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        for edge in [offset, end] {
            if edge % BLOCK != 0 {
                self.copy_up(&mut map, edge / BLOCK)?;
            }
        }
        let blocks = offset / BLOCK..end.div_ceil(BLOCK);
        let words = blocks.start / 64..end.div_ceil(BLOCK * 64);
        let before: Vec<u64> = words.map(|index| word(&map, index * 64)).collect();
        blocks.clone().for_each(|block| set(&mut map, block));
        drop(map);
        write().inspect_err(|_| {
            // A block that is only in the base would be read as zeroes.
            let first = blocks.start / 64 * 64;
            let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
            for block in blocks.filter(|block| !is_set(&before, block - first)) {
                clear(&mut map, block);
            }
        })
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

fn clear(map: &mut [u64], block: u64) {
    let index = usize::try_from(block / 64).ok();
    if let Some(word) = index.and_then(|index| map.get_mut(index)) {
        *word &= !(1 << (block % 64));
    }
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

    fn set_heuristics(&self, used: Heuristics) {
        self.base.set_heuristics(used);
    }

    fn read(&self, offset: u64, buffers: &Buffers, wait: bool) -> io::Result<()> {
        let end = offset + buffers.len();
        let mut at = offset;
        while at < end {
            // A run of blocks in the same file.
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
        if buffers.is_empty() {
            return Ok(());
        }
        // A concurrent read of the same bytes may see old data, new data or zeroes: the race is the
        // guest's.
        self.change(offset, buffers.len(), || {
            buffers.write_to(&self.written, offset)
        })
    }

    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.change(offset, bytes.len() as u64, || {
            self.written.write_all_at(bytes, offset)
        })
    }

    /// Nothing of it has to survive.
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn zero(&self, offset: u64, length: u64, _free: bool, stop: Stop<'_>) -> io::Result<()> {
        if length == 0 {
            return Ok(());
        }
        self.change(offset, length, || {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            match fallocate(&self.written, flags, offset, length) {
                Ok(()) => Ok(()),
                Err(Errno::OPNOTSUPP) => write_zeroes(&self.written, offset, length, stop),
                Err(error) => Err(error.into()),
            }
        })
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.zero(offset, length, true, &|| false)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A failed setup fails the test.
mod tests {
    use super::super::storage::Raw;
    use super::super::test_storage::Fake;
    use super::*;
    use std::os::fd::AsRawFd;

    /// An overlay whose file cannot be written to, as if the host had no room.
    fn full() -> Overlay {
        let mut overlay = Overlay::new(Arc::new(Fake::default())).unwrap();
        let file = &overlay.written;
        overlay.written = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        overlay
    }

    #[test]
    fn the_disk_below_uses_the_heuristics() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let raw = Arc::new(Raw::open(file.path(), false).unwrap());
        let overlay = Overlay::new(Arc::clone(&raw) as _).unwrap();
        for on in [false, true] {
            overlay.set_heuristics(Heuristics {
                direct_reads: on,
                ..Heuristics::default()
            });
            assert_eq!(raw.reads_directly(), on);
        }
    }

    #[test]
    fn a_write_that_fails_leaves_the_disk_as_it_was() {
        let mut overlay = full();
        let writable = Overlay::new(Arc::new(Fake::default())).unwrap().written;
        let read_only = std::mem::replace(&mut overlay.written, writable);
        overlay.write_bytes(70 * BLOCK, &[1; BLOCK_SIZE]).unwrap();
        let map = overlay.map.lock().unwrap().clone();
        overlay.written = read_only;
        for (block, blocks) in [(0, 1), (60, 20), (70, 1), (63, 2), (0, 200)] {
            let bytes = vec![2; BLOCK_SIZE * blocks];
            overlay.write_bytes(block * BLOCK, &bytes).unwrap_err();
            let length = bytes.len() as u64;
            overlay
                .zero(block * BLOCK, length, false, &|| false)
                .unwrap_err();
            assert_eq!(*overlay.map.lock().unwrap(), map, "{block} {blocks}");
        }
        // A part of a block, whose rest would be copied.
        overlay.write_bytes(5 * BLOCK + 512, &[2; 512]).unwrap_err();
        assert_eq!(*overlay.map.lock().unwrap(), map);
    }
}
