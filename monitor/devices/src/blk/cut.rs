// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk that loses what its driver did not flush. The file has only flushed data. So after any
//! end of the monitor, the disk is as after a power failure. Killing the monitor alone would prove
//! nothing, because the host's page cache has everything that it wrote.
//!
//! If the monitor is killed in the middle of a flush, a part of it is written, as in a power
//! failure.

use super::heuristics::Heuristics;
use super::overlay::Overlay;
use super::storage::{Flush, Stop, Storage};
use crate::buffers::Buffers;
use std::io;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, TryLockError};

/// The disk.
pub struct Cut {
    disk: Arc<dyn Storage>,
    /// What was not flushed.
    held: Overlay,
    flush: Flush,
    /// A flush excludes everything else.
    order: RwLock<()>,
}

impl Cut {
    /// Wraps a writable disk.
    pub fn new(disk: Box<dyn Storage>, flush: Flush) -> anyhow::Result<Self> {
        let disk: Arc<dyn Storage> = disk.into();
        Ok(Cut {
            held: Overlay::new(Arc::clone(&disk))?,
            disk,
            flush,
            order: RwLock::new(()),
        })
    }

    fn with_others(&self) -> RwLockReadGuard<'_, ()> {
        self.order.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for Cut {
    fn len(&self) -> u64 {
        self.disk.len()
    }

    fn read(&self, offset: u64, buffers: &Buffers, wait: bool) -> io::Result<()> {
        let _order = match self.order.try_read() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) if !wait => return Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::WouldBlock) => self.with_others(),
        };
        self.held.read(offset, buffers, wait)
    }

    fn read_bytes(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let _order = self.with_others();
        self.held.read_bytes(offset, bytes)
    }

    fn write(&self, offset: u64, buffers: &Buffers) -> io::Result<()> {
        let _order = self.with_others();
        self.held.write(offset, buffers)
    }

    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let _order = self.with_others();
        self.held.write_bytes(offset, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        if self.flush != Flush::Honoured {
            return Ok(());
        }
        let _order = self.order.write().unwrap_or_else(PoisonError::into_inner);
        self.held.drain(&*self.disk)?;
        self.disk.flush()
    }

    fn set_heuristics(&self, used: Heuristics) {
        self.disk.set_heuristics(used);
    }

    fn zero(&self, offset: u64, length: u64, free: bool, stop: Stop<'_>) -> io::Result<()> {
        let _order = self.with_others();
        self.held.zero(offset, length, free, stop)
    }

    /// The old bytes stay, which is allowed.
    fn discard(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::ahead::Ahead;
    use super::super::storage::Raw;
    use super::*;
    use std::os::unix::fs::MetadataExt;

    const BLOCK: u64 = 4096;

    /// The file below gets what a flush brings, and the heuristics decide how.
    #[test]
    fn the_disk_below_uses_the_heuristics() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        for on in [true, false] {
            let raw = Raw::open(file.path(), true).unwrap();
            let raw = Arc::new(raw.with_ahead(Ahead::with(1 << 20)));
            let disk: Arc<dyn Storage> = Arc::clone(&raw) as _;
            let cut = Cut {
                held: Overlay::new(Arc::clone(&disk)).unwrap(),
                disk,
                flush: Flush::Honoured,
                order: RwLock::new(()),
            };
            cut.set_heuristics(Heuristics {
                direct_reads: on,
                allocate_ahead: on,
                ..Heuristics::default()
            });
            assert_eq!(raw.reads_directly(), on);
            file.as_file().set_len(0).unwrap();
            file.as_file().set_len(1 << 20).unwrap();
            for block in 0..10 {
                cut.write_bytes(block * BLOCK, &[1; 4096]).unwrap();
                cut.flush().unwrap();
            }
            let room = file.as_file().metadata().unwrap().blocks() * 512;
            assert_eq!(room > 10 * BLOCK, on, "{room}");
        }
    }
}
