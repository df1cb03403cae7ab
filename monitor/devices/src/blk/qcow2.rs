// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks in QEMU's qcow2 format, through the crate imago.
//!
//! Only self-contained images are accepted. An image that names another file (a backing file, a
//! data file) is refused: the host would open a file that the image's author chose, and the author
//! may be a guest.

use super::flushes::Flushes;
use super::storage::{SECTOR, Stop, Storage, stopped};
use crate::buffers::{Buffers, Part};
use anyhow::{Context, bail};
use imago::qcow2::Qcow2 as Driver;
use imago::{DenyImplicitOpenGate, FormatAccess, FormatDriverBuilder, StorageOpenOptions};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The first bytes of such a file.
const MAGIC: [u8; 4] = *b"QFI\xfb";
/// Offsets in the header: version; offset and length of the backing file's name; features that a
/// reader must know.
const VERSION: usize = 4;
const BACKING: usize = 8;
const INCOMPATIBLE: usize = 72;
/// Size of clusters as a power of two; entries and offset of the L1 table; offset and clusters of
/// the refcount table.
const CLUSTER_BITS: usize = 20;
const PLACES_ENTRIES: usize = 36;
const PLACES: usize = 40;
const COUNTS: usize = 48;
const COUNTS_CLUSTERS: usize = 56;
/// The bits of an L1 entry with the offset of the L2 table; 0: there is none.
const SECOND: u64 = 0x00ff_ffff_ffff_fe00;
/// Length of the header of version 3, after which the extensions come. Each has a type, a length,
/// and as many bytes, rounded up to 8.
const HEADER: usize = 100;
/// The type of the extension that names features.
const FEATURE_NAMES: u32 = 0x6803_f857;
/// Size in bytes of an entry of this extension.
const FEATURE_NAME: u32 = 48;
/// The most extensions. QEMU makes four.
const EXTENSIONS: usize = 64;
/// The data is in another file.
const DATA_FILE: u64 = 1 << 2;
/// Bytes that are copied at a time.
const PIECE: u64 = 1 << 20;
/// Bytes that are zeroed between two checks of `stop`.
const ZEROES: usize = 64 << 20;

type Format = FormatAccess<imago::file::File>;

/// A disk.
pub struct Qcow2 {
    format: RwLock<Format>,
    flushes: Flushes,
    length: u64,
}

/// Whether a file begins as one in this format, which a guest can have made so.
pub fn is_one(file: &File) -> bool {
    let mut start = [0; 4];
    file.read_exact_at(&mut start, 0).is_ok() && start == MAGIC
}

impl Qcow2 {
    /// Takes an open and locked file.
    ///
    /// # Errors
    /// The image is not self-contained, damaged, truncated, or of an impossible size.
    pub fn open(file: &File, write: bool) -> anyhow::Result<Self> {
        let mut header = [0; 104];
        // A header of version 2 is shorter, but no image is.
        file.read_exact_at(&mut header, 0)
            .context("a qcow2 image without a header")?;
        let word = |at: usize| {
            header
                .get(at..at + 4)
                .and_then(|b| b.try_into().ok())
                .map_or(0, u32::from_be_bytes)
        };
        let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
        if long(BACKING) != 0 {
            bail!("it has a backing file: `qemu-img convert -O qcow2` makes an image without");
        }
        if word(VERSION) >= 3 && long(INCOMPATIBLE) & DATA_FILE != 0 {
            bail!(
                "its data is in another file: `qemu-img convert -O qcow2` makes an image without"
            );
        }
        if word(VERSION) >= 3 {
            extensions(file, word(HEADER))?;
        }
        let options = StorageOpenOptions::new().write(write);
        let storage = imago::file::File::from_open_file(file.try_clone()?, options)?;
        let driver = Driver::<imago::file::File>::builder(storage)
            .write(write)
            .open(DenyImplicitOpenGate::default());
        let format = Format::new(driver.context("a qcow2 image that cannot be used")?);
        let tables = [
            (long(PLACES), u64::from(word(PLACES_ENTRIES)) * 8),
            (
                long(COUNTS),
                u64::from(word(COUNTS_CLUSTERS)) << word(CLUSTER_BITS).min(31),
            ),
        ];
        whole(file, tables)?;
        let length = format.size();
        if length == 0 || !length.is_multiple_of(SECTOR) {
            bail!("{length} bytes: a disk has a multiple of {SECTOR}, at least {SECTOR}");
        }
        Ok(Qcow2 {
            format: RwLock::new(format),
            flushes: Flushes::default(),
            length,
        })
    }

    fn format(&self) -> RwLockReadGuard<'_, Format> {
        self.format.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn alone(&self) -> RwLockWriteGuard<'_, Format> {
        self.format.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks the header's extensions, of which the crate takes names of features of any length.
fn extensions(file: &File, header: u32) -> anyhow::Result<()> {
    let mut at = u64::from(header);
    for _ in 0..EXTENSIONS {
        let mut words = [0; 8];
        if file.read_exact_at(&mut words, at).is_err() {
            // The crate says what is missing.
            return Ok(());
        }
        let [kind, length] = [0, 4].map(|i| {
            let word = words.get(i..i + 4).and_then(|b| b.try_into().ok());
            word.map_or(0, u32::from_be_bytes)
        });
        match kind {
            0 => return Ok(()),
            FEATURE_NAMES if !length.is_multiple_of(FEATURE_NAME) => {
                bail!("a damaged qcow2 image: its list of features ends in an entry")
            }
            _ => at += 8 + u64::from(length).next_multiple_of(8),
        }
    }
    bail!("a damaged qcow2 image: more than {EXTENSIONS} extensions of its header")
}

/// Checks that the tables (offset and length, the L1 table first) and the L2 tables begin inside
/// the file: what is missing would be read as zeroes.
fn whole(file: &File, tables: [(u64, u64); 2]) -> anyhow::Result<()> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(());
    }
    let inside = |(at, length): (u64, u64)| {
        at.checked_add(length)
            .is_some_and(|end| end <= metadata.len())
    };
    let mut all = tables.into_iter().all(inside);
    if all {
        let [(at, length), _] = tables;
        let mut places = vec![0; usize::try_from(length)?];
        file.read_exact_at(&mut places, at)?;
        let seconds = places
            .chunks_exact(8)
            .filter_map(|entry| entry.try_into().ok());
        all = seconds
            .map(|entry| u64::from_be_bytes(entry) & SECOND)
            .all(|at| inside((at, 1)));
    }
    if !all {
        bail!("a truncated qcow2 image: its tables lead beyond its end");
    }
    Ok(())
}

/// Pieces of `PIECE` bytes: offset and length of each.
fn pieces(length: u64) -> impl Iterator<Item = (u64, usize)> {
    let starts = (0..length.div_ceil(PIECE)).map(|n| n * PIECE);
    starts.map(move |at| (at, usize::try_from((length - at).min(PIECE)).unwrap_or(0)))
}

impl Storage for Qcow2 {
    fn len(&self) -> u64 {
        self.length
    }

    fn read(&self, offset: u64, buffers: &Buffers, wait: bool) -> io::Result<()> {
        if !wait {
            // The location has to be looked up, perhaps in the file.
            return Err(io::ErrorKind::WouldBlock.into());
        }
        for (at, length) in pieces(buffers.len()) {
            let mut bytes = vec![0; length];
            self.format().read(&mut bytes, offset + at)?;
            buffers.part(Part::of(at, length as u64)).copy_in(&bytes);
        }
        Ok(())
    }

    fn write(&self, offset: u64, buffers: &Buffers) -> io::Result<()> {
        for (at, length) in pieces(buffers.len()) {
            let mut bytes = vec![0; length];
            buffers
                .part(Part::of(at, length as u64))
                .copy_out(&mut bytes);
            self.format().write(&bytes, offset + at)?;
        }
        Ok(())
    }

    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.format().write(bytes, offset)
    }

    fn read_bytes(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let mut copy = vec![0; bytes.len()];
        self.format().read(&mut copy, offset)?;
        bytes.copy_from_slice(&copy);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let format = self.format();
        // First the data, which the tables must not lead to before it is on the disk. Then the
        // tables in memory, which stay there if the host has no room for them now.
        self.flushes.flush(|| format.sync())?;
        format.flush()?;
        self.flushes.flush(|| format.sync())
    }

    fn zero(&self, offset: u64, length: u64, _free: bool, stop: Stop<'_>) -> io::Result<()> {
        // An image may need clusters for them: version 2 cannot mark a cluster as zero.
        for at in (0..length).step_by(ZEROES) {
            if stop() {
                return Err(stopped());
            }
            self.format()
                .write_zeroes(offset + at, (length - at).min(ZEROES as u64))?;
        }
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.alone().discard_to_any(offset, length)
    }
}
