// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block device (virtio 1.2, section 5.2).
//!
//! Reads of what the host has in its page cache, and writes, which go to the page cache, are done
//! on the device's own thread. What has to wait for a disk goes to a few worker threads, so that it
//! delays nothing else; if there is nothing else, the device's thread waits ([`lone`]). A write
//! survives a power failure of the host only after a later flush has been answered: the driver is
//! told that there is a write-back cache.

#[cfg(test)]
mod bounds_tests;
mod cut;
mod lone;
#[cfg(test)]
mod lone_tests;
mod overlay;
mod qcow2;
mod request;
mod storage;
#[cfg(test)]
mod test_storage;
#[cfg(test)]
mod tests;

pub use storage::{Flush, Mode, open};

use super::pool::Pool;
use super::{Broken, Device, Driver, Ending, Waker, kind};
use lone::Lone;
use request::{Failure, Request, SEGMENT_SECTORS_MAX, SEGMENTS_MAX};
use std::fmt;
use std::mem::offset_of;
use std::path::Path;
use std::sync::Arc;
use storage::{SECTOR, Stop, Storage};
use virtio_bindings::virtio_blk::{self as blk, virtio_blk_config};

const QUEUE: usize = 0;
/// The most requests that wait for the disk at a time.
const THREADS: usize = 4;
const QUEUE_SIZE: u16 = 256;
/// The largest read, in bytes, for which the device's thread waits: it looks at no reset meanwhile.
const LONE_BYTES: u64 = 1 << 20;

/// The device.
pub struct Block {
    storage: Arc<dyn Storage>,
    read_only: bool,
    serial: String,
    pool: Option<Pool<Request, (u16, u32)>>,
    /// `None`: workers serve these reads, too.
    lone: Option<Lone>,
    /// The machine's end.
    ending: Ending,
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("serial", &self.serial)
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

impl Block {
    /// A disk in a file. The guest sees `serial`, at most 20 bytes, in `/dev/disk/by-id`.
    ///
    /// # Errors
    /// The file cannot be opened or locked, or cannot be a disk.
    pub fn new(path: &Path, mode: Mode, serial: &str) -> anyhow::Result<Self> {
        let storage = open(path, mode)?.into();
        Ok(Self::on(storage, mode == Mode::ReadOnly, serial))
    }

    /// The device's thread waits for no read.
    #[must_use]
    pub fn without_lone_reads(mut self) -> Self {
        self.lone = None;
        self
    }

    fn on(storage: Arc<dyn Storage>, read_only: bool, serial: &str) -> Self {
        Block {
            storage,
            read_only,
            serial: serial.to_string(),
            pool: None,
            lone: Some(Lone::default()),
            ending: Ending::default(),
        }
    }

    /// Starts a request. Returns its result if it is done already. `alone`: the driver has no other
    /// request.
    fn begin(&mut self, request: Request, alone: bool) -> Option<(u16, u32)> {
        let waits = self.pool.is_some();
        if !(waits && request.slow()) {
            let result = self.execute(&request, !waits);
            if result != Err(Failure::Wait) {
                return Some((request.head, request.finish(result)));
            }
            let small = request.bytes() <= LONE_BYTES;
            if alone && small && self.lone.as_mut().is_some_and(Lone::here) {
                let result = self.execute(&request, true);
                return Some((request.head, request.finish(result)));
            }
        }
        let request = self.pool.as_mut()?.submit(Box::new(request)).err()?;
        let result = self.execute(&request, true);
        Some((request.head, request.finish(result)))
    }

    fn execute(&self, request: &Request, wait: bool) -> Result<(), Failure> {
        let stop = || self.ending.begun();
        request.execute(&*self.storage, self.read_only, &self.serial, wait, &stop)
    }

    fn work(&mut self, driver: &mut Driver) -> Result<(), Broken> {
        for (head, written) in self.pool.iter().flat_map(Pool::done) {
            driver.push(QUEUE, head, written)?;
        }
        let memory = Arc::clone(driver.memory());
        let mut next = driver.pop(QUEUE)?;
        while let Some(chain) = next {
            let request = Request::parse(&memory, chain)?;
            next = driver.pop(QUEUE)?;
            let alone = next.is_none() && driver.in_flight(QUEUE) == 1;
            if let Some((head, written)) = self.begin(request, alone) {
                driver.push(QUEUE, head, written)?;
            }
            if alone {
                next = driver.pop(QUEUE)?;
                if next.is_some() {
                    // The next request may have to wait for the host.
                    driver.signal(QUEUE)?;
                }
                if let Some(lone) = &mut self.lone {
                    lone.done(next.is_some());
                }
            }
        }
        driver.signal(QUEUE)
    }
}

impl Device for Block {
    fn kind(&self) -> u32 {
        kind::BLOCK
    }

    fn name(&self) -> String {
        "disk".to_string()
    }

    fn features(&self) -> u64 {
        let common = 1 << blk::VIRTIO_BLK_F_SEG_MAX
            | 1 << blk::VIRTIO_BLK_F_BLK_SIZE
            | 1 << blk::VIRTIO_BLK_F_TOPOLOGY
            | 1 << blk::VIRTIO_BLK_F_FLUSH;
        let writable = 1 << blk::VIRTIO_BLK_F_DISCARD | 1 << blk::VIRTIO_BLK_F_WRITE_ZEROES;
        common
            | if self.read_only {
                1 << blk::VIRTIO_BLK_F_RO
            } else {
                writable
            }
    }

    fn queue_sizes(&self) -> Vec<u16> {
        vec![QUEUE_SIZE]
    }

    fn config(&self) -> Vec<u8> {
        // As far as the driver reads it with the features above.
        let mut config = vec![0; offset_of!(virtio_blk_config, max_secure_erase_sectors)];
        let mut put = |at: usize, bytes: &[u8]| config[at..at + bytes.len()].copy_from_slice(bytes);
        macro_rules! set {
            ($($field:ident: $value:expr,)*) => {
                $(put(offset_of!(virtio_blk_config, $field), &$value.to_le_bytes());)*
            };
        }
        set! {
            capacity: (self.storage.len() / SECTOR),
            // The segments of a request: what a chain has besides header and status.
            seg_max: u32::from(QUEUE_SIZE - 2),
            blk_size: 512u32,
            // A block of the host has 2^3 sectors.
            physical_block_exp: 3u8,
            max_discard_sectors: SEGMENT_SECTORS_MAX,
            max_discard_seg: SEGMENTS_MAX,
            discard_sector_alignment: 8u32,
            max_write_zeroes_sectors: SEGMENT_SECTORS_MAX,
            max_write_zeroes_seg: SEGMENTS_MAX,
            write_zeroes_may_unmap: 1u8,
        }
        config
    }

    fn start(&mut self, waker: &Waker) -> anyhow::Result<()> {
        let (storage, read_only, serial) = (
            Arc::clone(&self.storage),
            self.read_only,
            self.serial.clone(),
        );
        self.ending = waker.ending();
        let work = move |request: &Request, stop: Stop<'_>| {
            let result = request.execute(&*storage, read_only, &serial, true, stop);
            (request.head, request.finish(result))
        };
        self.pool = Some(Pool::new("disk", THREADS, waker.clone(), Box::new(work)));
        Ok(())
    }

    fn notified(&mut self, driver: &mut Driver, _queue: usize) -> Result<(), Broken> {
        self.work(driver)
    }

    fn woken(&mut self, driver: &mut Driver) -> Result<(), Broken> {
        self.work(driver)
    }

    fn reset(&mut self) {
        if let Some(pool) = &self.pool {
            pool.clear();
        }
    }
}
