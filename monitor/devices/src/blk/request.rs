// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses and executes requests to a block device (virtio 1.2, section 5.2.6).

use super::storage::{SECTOR, Stop, Storage, is_stopped, stopped};
use crate::buffers::{Buffers, Part};
use crate::{Broken, Chain, Memory};
use std::io;
use std::sync::Arc;
use virtio_bindings::virtio_blk as blk;

/// Bytes before the data.
const HEADER: u64 = 16;
/// Size in bytes of a segment of discard and write zeroes.
const SEGMENT: usize = 16;
/// The most segments in such a request.
pub const SEGMENTS_MAX: u32 = 64;
/// The most sectors in one segment.
pub const SEGMENT_SECTORS_MAX: u32 = 1 << 22;
/// The only flag of a segment: the room may be released.
const UNMAP: u32 = 1;
/// Bytes of a transfer between two checks of `stop`. Linux's requests are smaller by default.
const PIECE_STEP: usize = 64 << 20;
const PIECE: u64 = PIECE_STEP as u64;
/// Size of an identifier in bytes.
const ID: usize = 20;

/// What went wrong, as the driver is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The host could not do it.
    Io,
    /// There is no such request.
    Unsupported,
    /// It would have to wait, so a thread that may wait must try it again.
    Wait,
}

/// A request.
#[derive(Debug)]
pub struct Request {
    /// The head of its chain.
    pub head: u16,
    kind: u32,
    sector: u64,
    /// Data from the driver and for it, without header and status.
    output: Buffers,
    input: Buffers,
    /// The last byte for the driver.
    status: Buffers,
}

impl Request {
    /// The length of its data, in bytes.
    pub fn bytes(&self) -> u64 {
        self.output.len() + self.input.len()
    }

    /// Parses a chain. Header, data and status may be split over any number of buffers.
    ///
    /// # Errors
    /// The driver has broken a rule.
    pub fn parse(memory: &Arc<Memory>, chain: Chain) -> Result<Self, Broken> {
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
            kind: u32::from_le_bytes([k0, k1, k2, k3]),
            sector: u64::from_le_bytes(sector),
            output: readable.part(Part::of(HEADER, u64::MAX)),
            input: writable.part(Part::of(0, data)),
            status: writable.part(Part::of(data, 1)),
        })
    }

    /// Whether requests of this kind may take long.
    pub fn slow(&self) -> bool {
        matches!(
            self.kind,
            blk::VIRTIO_BLK_T_FLUSH | blk::VIRTIO_BLK_T_DISCARD | blk::VIRTIO_BLK_T_WRITE_ZEROES
        )
    }

    /// Executes the request. Fails with `Wait` only if `wait` is false. Long work stops when `stop`
    /// says so.
    pub fn execute(
        &self,
        storage: &dyn Storage,
        read_only: bool,
        serial: &str,
        wait: bool,
        stop: Stop<'_>,
    ) -> Result<(), Failure> {
        let writes = matches!(
            self.kind,
            blk::VIRTIO_BLK_T_OUT | blk::VIRTIO_BLK_T_DISCARD | blk::VIRTIO_BLK_T_WRITE_ZEROES
        );
        if writes && read_only {
            return Err(Failure::Io);
        }
        match self.kind {
            blk::VIRTIO_BLK_T_IN => {
                let offset = place(storage, self.sector, self.input.len())?;
                in_pieces(&self.input, stop, |at, part| {
                    storage.read(offset + at, part, wait)
                })
                .map_err(|e| failure(&e, "read"))
            }
            blk::VIRTIO_BLK_T_OUT => {
                let offset = place(storage, self.sector, self.output.len())?;
                in_pieces(&self.output, stop, |at, part| {
                    storage.write(offset + at, part)
                })
                .map_err(|e| failure(&e, "write"))
            }
            blk::VIRTIO_BLK_T_FLUSH => storage.flush().map_err(|e| failure(&e, "flush")),
            blk::VIRTIO_BLK_T_DISCARD | blk::VIRTIO_BLK_T_WRITE_ZEROES => {
                self.segments(storage, stop)
            }
            blk::VIRTIO_BLK_T_GET_ID => {
                let mut id = [0; ID];
                let length = serial.len().min(ID);
                id[..length].copy_from_slice(&serial.as_bytes()[..length]);
                self.input.copy_in(&id);
                Ok(())
            }
            _ => Err(Failure::Unsupported),
        }
    }

    fn segments(&self, storage: &dyn Storage, stop: Stop<'_>) -> Result<(), Failure> {
        let most = SEGMENT as u64 * u64::from(SEGMENTS_MAX);
        let length = self.output.len();
        if length == 0 || length > most || !length.is_multiple_of(SEGMENT as u64) {
            return Err(Failure::Io);
        }
        // The driver may write there meanwhile, so one copy is checked and used.
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
            if sectors > SEGMENT_SECTORS_MAX {
                return Err(Failure::Io);
            }
            let length = u64::from(sectors) * SECTOR;
            let offset = place(storage, sector, length)?;
            if length == 0 {
                continue;
            }
            if stop() {
                return Err(Failure::Io);
            }
            if discard {
                storage
                    .discard(offset, length)
                    .map_err(|e| failure(&e, "discard"))?;
            } else {
                storage
                    .zero(offset, length, flags & UNMAP != 0, stop)
                    .map_err(|e| failure(&e, "write zeroes"))?;
            }
        }
        Ok(())
    }

    /// Writes the status. Returns the number of bytes written to the chain.
    pub fn finish(&self, result: Result<(), Failure>) -> u32 {
        let status = match result {
            Ok(()) => blk::VIRTIO_BLK_S_OK,
            Err(Failure::Unsupported) => blk::VIRTIO_BLK_S_UNSUPP,
            Err(Failure::Io | Failure::Wait) => blk::VIRTIO_BLK_S_IOERR,
        };
        self.status.copy_in(&[u8::try_from(status).unwrap_or(1)]);
        u32::try_from(self.input.len() + 1).unwrap_or(u32::MAX)
    }
}

/// Passes buffers to `transfer`, with the offset of their first byte: whole if their size is usual,
/// in pieces if they are larger.
fn in_pieces(
    buffers: &Buffers,
    stop: Stop<'_>,
    mut transfer: impl FnMut(u64, &Buffers) -> io::Result<()>,
) -> io::Result<()> {
    if buffers.len() <= PIECE {
        return transfer(0, buffers);
    }
    for at in (0..buffers.len()).step_by(PIECE_STEP) {
        if stop() {
            return Err(stopped());
        }
        transfer(at, &buffers.part(Part::of(at, PIECE)))?;
    }
    Ok(())
}

/// The offset of `length` bytes from a sector on, if they are inside the storage.
fn place(storage: &dyn Storage, sector: u64, length: u64) -> Result<u64, Failure> {
    let offset = sector.checked_mul(SECTOR).ok_or(Failure::Io)?;
    let end = offset.checked_add(length).ok_or(Failure::Io)?;
    if !length.is_multiple_of(SECTOR) || end > storage.len() {
        return Err(Failure::Io);
    }
    Ok(offset)
}

fn failure(error: &io::Error, what: &str) -> Failure {
    match error.kind() {
        io::ErrorKind::WouldBlock => return Failure::Wait,
        // The driver no longer waits for the answer.
        _ if is_stopped(error) => return Failure::Io,
        _ => {}
    }
    tracing::warn!("disk: cannot {what}: {error}");
    Failure::Io
}
