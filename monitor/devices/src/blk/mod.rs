// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block device (virtio 1.2, section 5.2), and the parts of every block device: [`Disk`] and
//! [`Service`].
//!
//! The device's own thread reads data that is in the host's page cache, and writes data to the page
//! cache. A request that has to wait for a disk goes to one of a few worker threads, so that it
//! delays no other. If there is no other, the device's thread waits ([`lone`]). A write survives a
//! power failure of the host only after a later flush has been answered: the features tell the
//! driver that there is a write-back cache.

mod ahead;
#[cfg(test)]
mod ahead_tests;
#[cfg(test)]
mod bounds_tests;
#[cfg(test)]
mod cache_tests;
mod cut;
mod disk;
#[cfg(test)]
mod early_tests;
mod flushes;
mod heuristics;
mod lone;
#[cfg(test)]
mod lone_tests;
mod overlay;
mod qcow2;
mod request;
mod service;
mod storage;
#[cfg(test)]
mod test_storage;
#[cfg(test)]
mod tests;

pub use disk::{BLOCK, Disk, Failure, PHYSICAL_BLOCK, RANGE_MAX, Sectors};
pub use heuristics::Heuristics;
pub use service::{Effect, Job, Service};
pub use storage::{Flush, Format, Mode, Stop};

use super::{Broken, Device, Driver, Waker, kind};
use request::{Request, SEGMENTS_MAX};
use std::fmt;
use std::mem::offset_of;
use std::path::Path;
use std::sync::Arc;
use virtio_bindings::virtio_blk::{self as blk, virtio_blk_config};

const QUEUE: usize = 0;
const _: () = assert!(PHYSICAL_BLOCK == BLOCK << 3);
/// Room for a request of 1 MiB whose pages lie apart, as a program makes that bypasses the page
/// cache of its kernel.
const QUEUE_SIZE: u16 = 512;

/// The device.
pub struct Block {
    service: Service<Request>,
    serial: Arc<str>,
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("serial", &self.serial)
            .field("service", &self.service)
            .finish()
    }
}

impl Block {
    /// A disk in a file, whose name says its format. The guest sees `serial`, at most 20 bytes, in
    /// `/dev/disk/by-id`.
    ///
    /// # Errors
    /// The file cannot be opened or locked, or cannot be a disk.
    pub fn new(path: &Path, mode: Mode, serial: &str) -> anyhow::Result<Self> {
        Ok(Self::on(Disk::open(path, mode)?, serial))
    }

    /// Uses these heuristics, and no others.
    #[must_use]
    pub fn with(mut self, heuristics: Heuristics) -> Self {
        self.service.set_heuristics(heuristics);
        self
    }

    /// Requests for which the device's thread waits take a millisecond longer on the first CPU that
    /// this program may use.
    #[cfg(feature = "test-hooks")]
    #[must_use]
    pub fn slow_on_the_first_cpu(mut self) -> Self {
        self.service.be_slow_on_the_first_cpu();
        self
    }

    /// A disk that is open.
    #[must_use]
    pub fn on(disk: Disk, serial: &str) -> Self {
        Block {
            service: Service::new(disk),
            serial: serial.into(),
        }
    }

    fn work(&mut self, driver: &mut Driver) -> Result<(), Broken> {
        for (head, written) in self.service.done() {
            driver.push(QUEUE, head, written)?;
        }
        let memory = Arc::clone(driver.memory());
        let mut next = driver.pop(QUEUE)?;
        while let Some(chain) = next {
            let request = Request::parse(&memory, chain, &self.serial)?;
            next = driver.pop(QUEUE)?;
            let alone = next.is_none() && driver.in_flight(QUEUE) == 1;
            if let Some((head, written)) = self.service.begin(request, alone) {
                driver.push(QUEUE, head, written)?;
            }
            if alone {
                next = driver.pop(QUEUE)?;
                if next.is_some() {
                    // The next request may have to wait for the host.
                    driver.signal(QUEUE)?;
                }
                self.service.alone_done(next.is_some());
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
            | if self.service.disk().is_read_only() {
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
            capacity: self.service.disk().sectors(),
            // The segments of a request: what a chain has besides header and status.
            seg_max: u32::from(QUEUE_SIZE - 2),
            blk_size: BLOCK,
            // A block of the host has 2^3 sectors.
            physical_block_exp: 3u8,
            max_discard_sectors: RANGE_MAX,
            max_discard_seg: SEGMENTS_MAX,
            discard_sector_alignment: 8u32,
            max_write_zeroes_sectors: RANGE_MAX,
            max_write_zeroes_seg: SEGMENTS_MAX,
            write_zeroes_may_unmap: 1u8,
        }
        config
    }

    fn start(&mut self, waker: &Waker) -> anyhow::Result<()> {
        self.service.start(waker);
        Ok(())
    }

    fn notified(&mut self, driver: &mut Driver, _queue: usize) -> Result<(), Broken> {
        self.work(driver)
    }

    fn woken(&mut self, driver: &mut Driver) -> Result<(), Broken> {
        self.work(driver)
    }

    fn reset(&mut self) {
        self.service.clear();
    }
}
