// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses and executes requests to a block device (virtio 1.2, section 5.2.6).

use super::disk::{Disk, Failure, Sectors};
use super::service::{Effect, Job};
use super::storage::Stop;
use crate::buffers::{Buffers, Part};
use crate::{Broken, Chain, Memory};
use std::sync::Arc;
use virtio_bindings::virtio_blk as blk;

/// Bytes before the data.
const HEADER: u64 = 16;
/// Size in bytes of a segment of discard and write zeroes.
const SEGMENT: usize = 16;
/// The most segments in such a request.
pub const SEGMENTS_MAX: u32 = 64;
/// The only flag of a segment: the room may be released.
const UNMAP: u32 = 1;
/// Size of an identifier in bytes.
const ID: usize = 20;

/// A request.
#[derive(Debug)]
pub struct Request {
    /// The head of its chain.
    head: u16,
    serial: Arc<str>,
    kind: u32,
    sector: u64,
    /// Data from the driver and for it, without header and status.
    output: Buffers,
    input: Buffers,
    /// The last byte for the driver.
    status: Buffers,
}

impl Request {
    /// Parses a chain. Header, data and status may be split over any number of buffers.
    ///
    /// # Errors
    /// The driver has broken a rule.
    pub fn parse(memory: &Arc<Memory>, chain: Chain, serial: &Arc<str>) -> Result<Self, Broken> {
        let head = chain.head_index();
        let Some((readable, writable)) = Buffers::of(memory, chain) else {
            return Err(Broken::Rule(
                "a block request outside memory, or with too many buffers",
            ));
        };
        let mut header = [0; 16];
        if readable.copy_out(&mut header) < header.len() {
            return Err(Broken::Rule("a block request without a header"));
        }
        let Some(data) = writable.len().checked_sub(1) else {
            return Err(Broken::Rule("a block request without room for its status"));
        };
        let [k0, k1, k2, k3, _, _, _, _, sector @ ..] = header;
        Ok(Request {
            head,
            serial: Arc::clone(serial),
            kind: u32::from_le_bytes([k0, k1, k2, k3]),
            sector: u64::from_le_bytes(sector),
            output: readable.part(Part::of(HEADER, u64::MAX)),
            input: writable.part(Part::of(0, data)),
            status: writable.part(Part::of(data, 1)),
        })
    }

    fn segments(&self, disk: &Disk, stop: Stop<'_>) -> Result<(), Failure> {
        let most = SEGMENT as u64 * u64::from(SEGMENTS_MAX);
        let length = self.output.len();
        if length == 0 || length > most || !length.is_multiple_of(SEGMENT as u64) {
            return Err(Failure::Io);
        }
        // The driver may write there at any time, so one copy is checked and used.
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        self.output.copy_out(&mut bytes);
        for segment in bytes.chunks_exact(SEGMENT) {
            let word = |at: usize| {
                u32::from_le_bytes([
                    segment[at],
                    segment[at + 1],
                    segment[at + 2],
                    segment[at + 3],
                ])
            };
            let sector = u64::from(word(0)) | u64::from(word(4)) << 32;
            let (sectors, flags) = (word(8), word(12));
            let discard = self.kind == blk::VIRTIO_BLK_T_DISCARD;
            if flags & !UNMAP != 0 || (discard && flags != 0) {
                return Err(Failure::Unsupported);
            }
            let sectors = Sectors {
                first: sector,
                count: sectors,
            };
            if discard {
                disk.discard(sectors, stop)?;
            } else {
                disk.zero(sectors, flags & UNMAP != 0, stop)?;
            }
        }
        Ok(())
    }
}

impl Job for Request {
    /// The head of its chain, and the number of bytes written to it.
    type Done = (u16, u32);

    fn effect(&self) -> Effect {
        match self.kind {
            blk::VIRTIO_BLK_T_OUT => Effect::Write,
            blk::VIRTIO_BLK_T_FLUSH => Effect::Flush,
            blk::VIRTIO_BLK_T_DISCARD | blk::VIRTIO_BLK_T_WRITE_ZEROES => Effect::Change,
            _ => Effect::None,
        }
    }

    fn bytes(&self) -> u64 {
        self.output.len() + self.input.len()
    }

    fn execute(&self, disk: &Disk, wait: bool, stop: Stop<'_>) -> Result<(), Failure> {
        match self.kind {
            blk::VIRTIO_BLK_T_IN => disk.read(self.sector, &self.input, wait, stop),
            blk::VIRTIO_BLK_T_OUT => disk.write(self.sector, &self.output, stop),
            blk::VIRTIO_BLK_T_FLUSH => disk.flush(),
            blk::VIRTIO_BLK_T_DISCARD | blk::VIRTIO_BLK_T_WRITE_ZEROES if disk.is_read_only() => {
                Err(Failure::Io)
            }
            blk::VIRTIO_BLK_T_DISCARD | blk::VIRTIO_BLK_T_WRITE_ZEROES => self.segments(disk, stop),
            blk::VIRTIO_BLK_T_GET_ID => {
                let mut id = [0; ID];
                let length = self.serial.len().min(ID);
                id[..length].copy_from_slice(&self.serial.as_bytes()[..length]);
                self.input.copy_in(&id);
                Ok(())
            }
            _ => Err(Failure::Unsupported),
        }
    }

    fn start_writeback(&self, disk: &Disk) {
        disk.start_writeback(self.sector, self.output.len());
    }

    /// Writes the status.
    fn finish(&self, result: Result<(), Failure>) -> (u16, u32) {
        let status = match result {
            Ok(()) => blk::VIRTIO_BLK_S_OK,
            Err(Failure::Unsupported) => blk::VIRTIO_BLK_S_UNSUPP,
            Err(Failure::Io | Failure::Wait) => blk::VIRTIO_BLK_S_IOERR,
        };
        self.status.copy_in(&[u8::try_from(status).unwrap_or(1)]);
        let written = u32::try_from(self.input.len() + 1).unwrap_or(u32::MAX);
        (self.head, written)
    }
}
