// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests to a disk of the bus: reads them from the descriptors of a ring, and has the disk carry
//! them out.

use crate::card::word;
use paravane_devices::blk::{Disk, Effect, Failure, Job, Sectors, Stop};
use paravane_devices::{Buffers, Memory};
use paravane_vbus::{Broken, Outside, Place};
use paravane_vbus_shm::layout::{self, BlockRequest};
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vm_memory::{Bytes, GuestAddress};

/// The most data descriptors of a request.
pub const SEGMENTS: u32 = 128;
/// Bytes of a sector, the unit of requests.
const SECTOR: u64 = 512;
/// Bytes of a request's header.
const HEADER: usize = size_of::<BlockRequest>();

const MORE: u32 = word(layout::VBUS_BLOCK_MORE);
const UNMAP: u32 = word(layout::VBUS_BLOCK_UNMAP);
const READ: u32 = word(layout::VBUS_BLOCK_READ);
const WRITE: u32 = word(layout::VBUS_BLOCK_WRITE);
const FLUSH: u32 = word(layout::VBUS_BLOCK_FLUSH);
const DISCARD: u32 = word(layout::VBUS_BLOCK_DISCARD);
const ZERO: u32 = word(layout::VBUS_BLOCK_ZERO);

/// A request, of which descriptors may be missing. Its header was copied.
#[derive(Debug)]
pub struct Parts {
    operation: u32,
    sector: u64,
    sectors: u32,
    flags: u32,
    data: Buffers,
    /// Where the guest waits for its status.
    pub status: u64,
    /// Descriptors so far.
    pub descriptors: u32,
}

impl Parts {
    /// Takes the first descriptor of a request. Whether more follow comes with it.
    ///
    /// # Errors
    /// The driver broke a rule.
    pub fn begin(memory: &Arc<Memory>, place: &Place) -> Result<(Self, bool), Broken> {
        let outside = Outside {
            ptr: place.ptr,
            len: place.len as usize,
        };
        if place.len as usize != HEADER || !place.ptr.is_multiple_of(8) {
            return Err(Broken::Parts);
        }
        let mut bytes = [0; HEADER];
        let read = memory.read_slice(&mut bytes, GuestAddress(place.ptr));
        read.map_err(|_| Broken::Memory(outside))?;
        let word = |offset: usize| {
            let part = bytes.get(offset..offset + 4)?;
            Some(u32::from_le_bytes(part.try_into().ok()?))
        };
        let field = |offset| word(offset).ok_or(Broken::Parts);
        let low = field(offset_of!(BlockRequest, sector))?;
        let high = field(offset_of!(BlockRequest, sector) + 4)?;
        let parts = Parts {
            operation: field(offset_of!(BlockRequest, operation))?,
            sector: u64::from(high) << 32 | u64::from(low),
            sectors: field(offset_of!(BlockRequest, sectors))?,
            flags: field(offset_of!(BlockRequest, flags))?,
            data: Buffers::new(Arc::clone(memory)),
            status: place.ptr + offset_of!(BlockRequest, status) as u64,
            descriptors: 1,
        };
        Ok((parts, place.flags & MORE != 0))
    }

    /// Takes the next descriptor. Returns whether more follow.
    ///
    /// # Errors
    /// The driver broke a rule.
    pub fn add(&mut self, place: &Place) -> Result<bool, Broken> {
        if self.descriptors > SEGMENTS || place.len == 0 {
            return Err(Broken::Parts);
        }
        if !self.data.add(GuestAddress(place.ptr), place.len) {
            return Err(Broken::Memory(Outside {
                ptr: place.ptr,
                len: place.len as usize,
            }));
        }
        self.descriptors += 1;
        Ok(place.flags & MORE != 0)
    }

    /// The bytes of its data.
    pub fn bytes(&self) -> u64 {
        self.data.len()
    }

    /// The whole request, which gets a number.
    pub fn whole(self, number: u64) -> Request {
        Request {
            number,
            parts: self,
        }
    }
}

/// A request.
#[derive(Debug)]
pub struct Request {
    number: u64,
    parts: Parts,
}

impl Job for Request {
    /// Its number, and the result for the guest.
    type Done = (u64, u32);

    fn effect(&self) -> Effect {
        match self.parts.operation {
            WRITE => Effect::Write,
            FLUSH => Effect::Flush,
            DISCARD | ZERO => Effect::Change,
            _ => Effect::None,
        }
    }

    fn bytes(&self) -> u64 {
        self.parts.data.len()
    }

    fn execute(&self, disk: &Disk, wait: bool, stop: Stop<'_>) -> Result<(), Failure> {
        let parts = &self.parts;
        let known = if parts.operation == ZERO { UNMAP } else { 0 };
        if parts.operation > ZERO || parts.flags & !known != 0 {
            return Err(Failure::Unsupported);
        }
        let sectors = Sectors {
            first: parts.sector,
            count: parts.sectors,
        };
        let expected = match parts.operation {
            READ | WRITE => u64::from(parts.sectors) * SECTOR,
            _ => 0,
        };
        if parts.data.len() != expected || (parts.operation == FLUSH && parts.sectors != 0) {
            return Err(Failure::Io);
        }
        match parts.operation {
            READ => disk.read(parts.sector, &parts.data, wait, stop),
            WRITE => disk.write(parts.sector, &parts.data, stop),
            FLUSH => disk.flush(),
            DISCARD => disk.discard(sectors, stop),
            _ => disk.zero(sectors, parts.flags & UNMAP != 0, stop),
        }
    }

    fn start_writeback(&self, disk: &Disk) {
        disk.start_writeback(self.parts.sector, self.bytes());
    }

    fn finish(&self, result: Result<(), Failure>) -> (u64, u32) {
        let status = match result {
            Ok(()) => layout::VBUS_BLOCK_DONE,
            Err(Failure::Unsupported) => layout::VBUS_BLOCK_UNSUPPORTED,
            Err(Failure::Io | Failure::Wait) => layout::VBUS_BLOCK_FAILED,
        };
        (self.number, word(status))
    }
}

/// Stores the status of a request. A driver that sees the status sees all effects of the request.
pub fn tell(memory: &Memory, at: u64, status: u32) {
    // The header was there when the request was taken, and guest memory stays.
    let _ = memory.store(status, GuestAddress(at), Ordering::Release);
}
