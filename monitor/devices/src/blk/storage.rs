// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a block device keeps its data.

use super::ahead::Ahead;
use super::cut::Cut;
use super::flushes::Flushes;
use super::heuristics::Heuristics;
use super::overlay::Overlay;
use super::qcow2::{self, Qcow2};
use crate::buffers::Buffers;
use crate::page_cache;
use anyhow::{Context, bail};
use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom, fallocate, flock, seek};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Size of a sector in bytes, the unit of requests.
pub const SECTOR: u64 = 512;

/// Says whether long work should stop: its driver has reset the device, or its machine ends.
pub type Stop<'a> = &'a dyn Fn() -> bool;

/// The reason why work was stopped.
#[derive(Debug, thiserror::Error)]
#[error("the machine ends")]
struct Stopped;

/// The error of work that was stopped.
pub fn stopped() -> io::Error {
    io::Error::other(Stopped)
}

/// Whether an error is [`stopped`].
pub fn is_stopped(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Stopped>())
}

/// How a disk is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The guest reads and writes the file.
    Write,
    /// The guest only reads it.
    ReadOnly,
    /// The guest reads and writes. Its writes are discarded at the end.
    Snapshot,
    /// The guest reads and writes. The file gets what the guest has flushed, when it flushes, and
    /// nothing else: every end is like a power failure of a disk with a volatile cache. For tests.
    Cut(Flush),
}

/// What is in the file of a disk. A guest can write whatever it likes to a raw disk, so that what
/// a file begins with never decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// What the file's name says: qcow2 if it ends in `.qcow2` or `.qcow`, else the disk's bytes.
    #[default]
    Named,
    /// The disk's bytes.
    Raw,
    /// A qcow2 image.
    Qcow2,
}

impl Format {
    /// Whether to use the open file as a qcow2 image.
    ///
    /// # Errors
    /// The file does not begin as one in the format that its name or the option says.
    fn is_qcow2(self, path: &Path, file: &File) -> anyhow::Result<bool> {
        match (self, named_qcow2(path)) {
            (Format::Raw, _) => Ok(false),
            (Format::Qcow2, _) if qcow2::is_one(file) => Ok(true),
            (Format::Qcow2, _) => bail!("not a qcow2 image, although :qcow2 says so"),
            (Format::Named, true) if qcow2::is_one(file) => Ok(true),
            (Format::Named, true) => {
                bail!("not a qcow2 image, although its name says so: add :raw if it is a raw disk")
            }
            (Format::Named, false) if qcow2::is_one(file) => bail!(
                "begins as a qcow2 file does: add :qcow2 if it is one, or :raw if its contents \
                 are a guest's"
            ),
            (Format::Named, false) => Ok(false),
        }
    }
}

/// Whether the name of a file says that it is a qcow2 image.
fn named_qcow2(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    let name = name.as_encoded_bytes().to_ascii_lowercase();
    name.ends_with(b".qcow2") || name.ends_with(b".qcow")
}

/// What a flush does to a disk of [`Mode::Cut`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// The file has what was written before the flush is answered.
    Honoured,
    /// It is answered without effect, which a test of disks must detect.
    #[cfg(any(test, feature = "test-hooks"))]
    Ignored,
}

/// The data of a disk. Several threads may use it at once. Offsets and lengths are in bytes, and
/// were checked against [`len`](Storage::len).
pub trait Storage: Send + Sync {
    /// The size in bytes, a multiple of [`SECTOR`].
    fn len(&self) -> u64;

    /// Fills the buffers. With `wait` false it fails with `WouldBlock` where it would have to wait
    /// for a disk.
    fn read(&self, offset: u64, buffers: &Buffers, wait: bool) -> io::Result<()>;

    /// Fills bytes of the monitor, however long that takes.
    fn read_bytes(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Writes the buffers.
    fn write(&self, offset: u64, buffers: &Buffers) -> io::Result<()>;

    /// Writes bytes of the monitor.
    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Starts to write what was written there to the host's disk. Nothing waits for that, and
    /// nothing is promised.
    fn start_writeback(&self, _offset: u64, _length: u64) {}

    /// Makes everything written before survive whatever happens to the host. Once the host has
    /// lost something, every flush fails.
    fn flush(&self) -> io::Result<()>;

    /// Uses these heuristics, and no others.
    fn set_heuristics(&self, _used: Heuristics) {}

    /// Zeroes the bytes. With `free`, room on the host may be released. Where zeroes have to be
    /// written, the work stops when `stop` says so; then only a part of the bytes is zero.
    fn zero(&self, offset: u64, length: u64, free: bool, stop: Stop<'_>) -> io::Result<()>;

    /// The content of the bytes no longer matters.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()>;
}

/// Opens a file or block device as a disk.
///
/// # Errors
/// It cannot be opened or locked, is not in that format, or cannot be a disk.
pub fn open(path: &Path, format: Format, mode: Mode) -> anyhow::Result<Box<dyn Storage>> {
    let complain = || path.display().to_string();
    let write = matches!(mode, Mode::Write | Mode::Cut(_));
    let raw = Raw::open(path, write).with_context(complain)?;
    let storage: Box<dyn Storage> = if format.is_qcow2(path, &raw.file).with_context(complain)? {
        Box::new(Qcow2::open(&raw.file, write).with_context(complain)?)
    } else {
        Box::new(raw.whole_sectors().with_context(complain)?)
    };
    Ok(match mode {
        Mode::Snapshot => Box::new(Overlay::new(storage.into())?),
        Mode::Cut(flush) => Box::new(Cut::new(storage, flush)?),
        Mode::Write | Mode::ReadOnly => storage,
    })
}

/// The least bytes of a read that bypasses the host's page cache. Linux in a guest reads ahead by
/// less: so large a read is of a program that bypasses the guest's own.
const DIRECT: u64 = 512 << 10;

/// A file with the bytes of the disk.
#[derive(Debug)]
pub struct Raw {
    file: File,
    /// Another descriptor of the file, for reads that bypass the host's page cache, if there are
    /// such.
    direct: Option<File>,
    /// Every read uses the page cache.
    cached: AtomicBool,
    /// `None`: the file gains nothing from blocks that were allocated ahead, or has no room for
    /// them.
    ahead: Option<Ahead>,
    flushes: Flushes,
    length: u64,
}

impl Raw {
    pub(super) fn open(path: &Path, write: bool) -> anyhow::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(write)
            // A terminal must not become the monitor's, and a pipe must not block it.
            .custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK)
            .open(path)?;
        let kind = file.metadata()?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            bail!("neither a file nor a block device");
        }
        let lock = if write {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        match flock(&file, lock) {
            Ok(()) => {}
            Err(Errno::NOLCK | Errno::OPNOTSUPP) => {
                if write {
                    tracing::warn!(
                        "disk {}: its file system has no locks: let no other program use it",
                        path.display()
                    );
                }
            }
            Err(Errno::WOULDBLOCK) => {
                bail!(
                    "another virtual machine uses it: use it read-only in both, \
                     or give one of them a copy"
                )
            }
            Err(error) => return Err(error).context("cannot lock it"),
        }
        // Also works for block devices, whose metadata has no size.
        let length = seek(&file, SeekFrom::End(0))?;
        Ok(Raw {
            direct: open_direct(&file),
            cached: AtomicBool::new(false),
            ahead: Ahead::of(&file).filter(|_| write),
            flushes: Flushes::default(),
            file,
            length,
        })
    }

    /// Returns itself if it can be a disk.
    fn whole_sectors(self) -> anyhow::Result<Self> {
        if self.length == 0 || !self.length.is_multiple_of(SECTOR) {
            bail!(
                "{} bytes: a disk has a multiple of {SECTOR}, at least {SECTOR}",
                self.length
            );
        }
        Ok(self)
    }

    /// Writes data by this call; others may write at the same time.
    fn write_by(
        &self,
        offset: u64,
        length: u64,
        write: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<()> {
        let bytes = offset..offset.saturating_add(length);
        match &self.ahead {
            Some(ahead) => ahead.write(&self.file, &bytes, self.length, || write(&self.file)),
            None => write(&self.file),
        }
    }

    /// Allocates ahead in this way, whatever the file system is.
    #[cfg(test)]
    pub(super) fn with_ahead(mut self, ahead: Ahead) -> Self {
        self.ahead = Some(ahead);
        self
    }

    /// Whether large reads may bypass the page cache.
    #[cfg(test)]
    pub(super) fn reads_directly(&self) -> bool {
        !self.cached.load(Ordering::Relaxed)
    }
}

/// Opens a file again, to read around the page cache.
fn open_direct(file: &File) -> Option<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT | libc::O_NONBLOCK)
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .ok()
}

impl Storage for Raw {
    fn len(&self) -> u64 {
        self.length
    }

    fn read(&self, offset: u64, buffers: &Buffers, wait: bool) -> io::Result<()> {
        let length = buffers.len();
        let large = length >= DIRECT && !self.cached.load(Ordering::Relaxed);
        if let Some(direct) = self.direct.as_ref().filter(|_| large)
            && page_cache::lacks(&self.file, &(offset..offset.saturating_add(length)))
        {
            // A first attempt in the page cache would have the host fill it.
            if !wait {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            if buffers.read_from(direct, offset, true).is_ok() {
                return Ok(());
            }
            // It is not aligned, or the error comes again.
        }
        buffers.read_from(&self.file, offset, wait)
    }

    fn read_bytes(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    fn write(&self, offset: u64, buffers: &Buffers) -> io::Result<()> {
        self.write_by(offset, buffers.len(), |file| buffers.write_to(file, offset))
    }

    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let length = bytes.len() as u64;
        self.write_by(offset, length, |file| file.write_all_at(bytes, offset))
    }

    fn start_writeback(&self, offset: u64, length: u64) {
        page_cache::start_writeback(&self.file, &(offset..offset.saturating_add(length)));
    }

    fn flush(&self) -> io::Result<()> {
        if let Some(ahead) = &self.ahead {
            ahead.flush();
        }
        self.flushes.flush(|| self.file.sync_data())
    }

    /// Blocks that are not allocated ahead never will be again: meanwhile, no one notes writes.
    fn set_heuristics(&self, used: Heuristics) {
        self.cached.store(!used.direct_reads, Ordering::Relaxed);
        if let Some(ahead) = self.ahead.as_ref().filter(|_| !used.allocate_ahead) {
            ahead.stop();
        }
    }

    fn zero(&self, offset: u64, length: u64, free: bool, stop: Stop<'_>) -> io::Result<()> {
        let flags = if free {
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE
        } else {
            FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE
        };
        match fallocate(&self.file, flags, offset, length) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::INVAL) => write_zeroes(&self.file, offset, length, stop),
            Err(error) => Err(error.into()),
        }
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, flags, offset, length) {
            // A host that cannot release the room keeps it: the guest did not ask for zeroes.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::INVAL) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Writes zeroes in pieces, and checks `stop` between them.
pub(super) fn write_zeroes(
    file: &File,
    offset: u64,
    length: u64,
    stop: Stop<'_>,
) -> io::Result<()> {
    let zeroes = [0u8; 64 << 10];
    let mut done = 0;
    while done < length {
        if stop() {
            return Err(stopped());
        }
        let part =
            usize::try_from(length - done).map_or(zeroes.len(), |left| left.min(zeroes.len()));
        file.write_all_at(&zeroes[..part], offset + done)?;
        done += part as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses a pipe, which cannot be flushed.
    #[test]
    fn a_flush_that_failed_is_not_forgotten() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        let mut raw = Raw::open(file.path(), true).unwrap();
        raw.flush().unwrap();
        let (_other, pipe) = rustix::pipe::pipe().unwrap();
        let disk = std::mem::replace(&mut raw.file, File::from(pipe));
        assert!(raw.flush().is_err());
        raw.file = disk;
        assert!(raw.flush().is_err());
        raw.write_bytes(0, &[1; 512]).unwrap();
    }

    /// A disk that begins as a qcow2 image, and one that does not, by every name.
    #[test]
    fn what_a_file_begins_with_does_not_decide() {
        let folder = tempfile::tempdir().unwrap();
        let answer = |name: &str, format: Format, begin: &[u8]| {
            let path = folder.path().join(name);
            let mut content = vec![0; 4096];
            content[..begin.len()].copy_from_slice(begin);
            std::fs::write(&path, content).unwrap();
            let is = format.is_qcow2(&path, &File::open(&path).unwrap());
            is.map_err(|error| error.to_string())
        };
        let magic = b"QFI\xfb";
        for name in ["a.qcow2", "a.QCow2", "a.b.qcow", ".qcow2"] {
            assert_eq!(answer(name, Format::Named, magic), Ok(true), "{name}");
            let error = answer(name, Format::Named, b"").unwrap_err();
            assert!(error.contains(":raw"), "{name}: {error}");
        }
        for name in ["a.img", "qcow2", "a.qcow2.raw", "a.qcow3", "aqcow2"] {
            assert_eq!(answer(name, Format::Named, b""), Ok(false), "{name}");
            let error = answer(name, Format::Named, magic).unwrap_err();
            assert!(
                error.contains(":qcow2") && error.contains(":raw"),
                "{name}: {error}"
            );
        }
        for name in ["a.img", "a.qcow2"] {
            for begin in [&magic[..], b""] {
                assert_eq!(answer(name, Format::Raw, begin), Ok(false), "{name}");
            }
            assert_eq!(answer(name, Format::Qcow2, magic), Ok(true), "{name}");
            assert!(answer(name, Format::Qcow2, b"").is_err(), "{name}");
        }
    }

    /// What a hostile guest has written to its raw disk.
    #[test]
    fn a_raw_disk_with_a_header_keeps_its_size() {
        let file = tempfile::Builder::new().suffix(".img").tempfile().unwrap();
        let mut content = vec![0; 1 << 20];
        content[..4].copy_from_slice(b"QFI\xfb");
        // Version 3, clusters of 64 KiB, 1 TiB.
        content[7] = 3;
        content[23] = 16;
        content[24..32].copy_from_slice(&(1u64 << 40).to_be_bytes());
        file.as_file().write_all_at(&content, 0).unwrap();
        let error = open(file.path(), Format::Named, Mode::ReadOnly)
            .err()
            .unwrap();
        let name = file.path().display();
        assert!(
            format!("{error:#}").starts_with(&format!("{name}: begins as a qcow2 file does: ")),
            "{error:#}"
        );
        let disk = open(file.path(), Format::Raw, Mode::ReadOnly).unwrap();
        assert_eq!(disk.len(), 1 << 20);
        let mut start = [0; 4];
        disk.read_bytes(0, &mut start).unwrap();
        assert_eq!(&start, b"QFI\xfb");
    }
}
