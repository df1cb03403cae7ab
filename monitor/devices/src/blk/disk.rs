// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk as any kind of block device uses it: requests are in sectors, and checked here.

use super::heuristics::Heuristics;
use super::storage::{self, Format, Mode, SECTOR, Stop, Storage, is_stopped, stopped};
use crate::buffers::{Buffers, Part};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The most sectors of a discard or of zeroes.
pub const RANGE_MAX: u32 = 1 << 22;
/// The size in bytes of a logical block.
pub const BLOCK: u32 = 512;
/// The size in bytes of a block that the host writes as a whole.
pub const PHYSICAL_BLOCK: u32 = 4096;
/// Bytes of a transfer between two checks of `stop`. Linux's requests are smaller by default.
const PIECE_STEP: usize = 64 << 20;
const PIECE: u64 = PIECE_STEP as u64;

/// A failure, as it is reported to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The host could not do it, or the disk has no such sectors, or may not be written.
    Io,
    /// There is no such request.
    Unsupported,
    /// It would have to wait, so a thread that may wait must try it again.
    Wait,
}

/// Sectors one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sectors {
    /// The first.
    pub first: u64,
    /// Their number.
    pub count: u32,
}

/// A disk. Several threads may use it at once. Its requests may make no sense.
#[derive(Clone)]
pub struct Disk {
    storage: Arc<dyn Storage>,
    read_only: bool,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk")
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

impl Disk {
    /// Opens a file or block device, whose name says its format.
    ///
    /// # Errors
    /// It cannot be opened or locked, or cannot be a disk.
    pub fn open(path: &Path, mode: Mode) -> anyhow::Result<Self> {
        Disk::open_as(path, Format::Named, mode)
    }

    /// Opens a file or block device in this format.
    ///
    /// # Errors
    /// It cannot be opened or locked, is not in that format, or cannot be a disk.
    pub fn open_as(path: &Path, format: Format, mode: Mode) -> anyhow::Result<Self> {
        let storage = storage::open(path, format, mode)?.into();
        Ok(Disk::on(storage, mode == Mode::ReadOnly))
    }

    pub(super) fn on(storage: Arc<dyn Storage>, read_only: bool) -> Self {
        Disk { storage, read_only }
    }

    /// Its size.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.storage.len() / SECTOR
    }

    /// Whatever changes it fails.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Fills the buffers. Fails with `Wait` only if `wait` is false.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn read(
        &self,
        sector: u64,
        to: &Buffers,
        wait: bool,
        stop: Stop<'_>,
    ) -> Result<(), Failure> {
        let offset = self.place(sector, to.len())?;
        in_pieces(to, stop, |at, part| {
            self.storage.read(offset + at, part, wait)
        })
        .map_err(|e| failure(&e, "read"))
    }

    /// Writes the buffers.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn write(&self, sector: u64, from: &Buffers, stop: Stop<'_>) -> Result<(), Failure> {
        self.may_write()?;
        let offset = self.place(sector, from.len())?;
        in_pieces(from, stop, |at, part| self.storage.write(offset + at, part))
            .map_err(|e| failure(&e, "write"))
    }

    /// Starts to write what was written there to the host's disk. Does nothing for sectors that the
    /// disk does not have.
    pub fn start_writeback(&self, sector: u64, length: u64) {
        if let Ok(offset) = self.place(sector, length) {
            self.storage.start_writeback(offset, length);
        }
    }

    /// Makes everything written before survive whatever happens to the host.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn flush(&self) -> Result<(), Failure> {
        self.storage.flush().map_err(|e| failure(&e, "flush"))
    }

    /// Uses these heuristics, and no others.
    pub fn set_heuristics(&self, used: Heuristics) {
        self.storage.set_heuristics(used);
    }

    /// The content of the sectors no longer matters.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn discard(&self, sectors: Sectors, stop: Stop<'_>) -> Result<(), Failure> {
        let Some((offset, length)) = self.range(sectors, stop)? else {
            return Ok(());
        };
        self.storage
            .discard(offset, length)
            .map_err(|e| failure(&e, "discard"))
    }

    /// Zeroes the sectors. With `free`, room on the host may be released.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn zero(&self, sectors: Sectors, free: bool, stop: Stop<'_>) -> Result<(), Failure> {
        let Some((offset, length)) = self.range(sectors, stop)? else {
            return Ok(());
        };
        self.storage
            .zero(offset, length, free, stop)
            .map_err(|e| failure(&e, "write zeroes"))
    }

    /// Offset and length in bytes of sectors to change; `None` if there are none.
    fn range(&self, sectors: Sectors, stop: Stop<'_>) -> Result<Option<(u64, u64)>, Failure> {
        self.may_write()?;
        if sectors.count > RANGE_MAX {
            return Err(Failure::Io);
        }
        let length = u64::from(sectors.count) * SECTOR;
        let offset = self.place(sectors.first, length)?;
        if length == 0 {
            return Ok(None);
        }
        if stop() {
            return Err(Failure::Io);
        }
        Ok(Some((offset, length)))
    }

    fn may_write(&self) -> Result<(), Failure> {
        if self.read_only {
            return Err(Failure::Io);
        }
        Ok(())
    }

    /// The offset of `length` bytes from a sector on, if they are inside the storage.
    fn place(&self, sector: u64, length: u64) -> Result<u64, Failure> {
        let offset = sector.checked_mul(SECTOR).ok_or(Failure::Io)?;
        let end = offset.checked_add(length).ok_or(Failure::Io)?;
        if !length.is_multiple_of(SECTOR) || end > self.storage.len() {
            return Err(Failure::Io);
        }
        Ok(offset)
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
