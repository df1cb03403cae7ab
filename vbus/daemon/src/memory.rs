// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client's memory: a memfd that cannot shrink.

use crate::guard::{Guarded, Mark};
use memmap2::MmapOptions;
use paravane_vbus::{Error, Kind, Readable, Region};
use rustix::fs::{SealFlags, fcntl_get_seals, fstat, fstatfs};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

/// Largest memory of a connection.
pub const MAX: u64 = 64 << 20;
/// `f_type` of the file system of ordinary memfds. One of huge pages has another: its pages can be
/// missing, which would kill vbusd.
const TMPFS: u64 = 0x0102_1994;

/// Mapped memory of a client.
#[derive(Debug)]
pub struct Memory {
    map: Guarded,
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, text)
}

impl Memory {
    /// Maps a client's memfd.
    ///
    /// # Errors
    /// It is not a memfd whose size is sealed, or has no size that is allowed.
    pub fn map(file: &OwnedFd) -> Result<Self, Error> {
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        let others = SealFlags::WRITE | SealFlags::FUTURE_WRITE;
        let len = check(file, seals, others)?;
        let map = MmapOptions::new().len(len).map_raw(file);
        let map = map.map_err(|error| Error::new(Kind::Host, format!("mmap: {error}")))?;
        let map = Guarded::new(map)?;
        Ok(Memory { map })
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.map.map().len() as u64
    }

    /// Tells whether the host could not give a page of it.
    pub fn mark(&self) -> Mark {
        self.map.mark()
    }
}

// SAFETY: mapped while the value lives; the seals keep the file's size, and its pages are ordinary
// memory. A page that the host cannot give is replaced, so each access finds a page. Other code of
// vbusd sees the memory only by this trait and by raw copies.
unsafe impl Region for Memory {
    fn range(&self) -> (NonNull<u8>, usize) {
        let map = self.map.map();
        let start = NonNull::new(map.as_mut_ptr());
        (start.unwrap_or(NonNull::dangling()), map.len())
    }
}

/// Mapped memory of a client, which other clients read, too. Only the client can write it.
#[derive(Debug)]
pub struct Lent {
    map: Guarded,
}

impl Lent {
    /// Maps a client's memfd to be read.
    ///
    /// # Errors
    /// As for [`Memory::map`], or the memfd is not sealed against being written by others.
    pub fn map(file: &OwnedFd) -> Result<Self, Error> {
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        let len = check(file, seals | SealFlags::FUTURE_WRITE, SealFlags::empty())?;
        let map = MmapOptions::new().len(len).map_raw_read_only(file);
        let map = map.map_err(|error| Error::new(Kind::Host, format!("mmap: {error}")))?;
        let map = Guarded::new(map)?;
        Ok(Lent { map })
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.map.map().len() as u64
    }

    /// Tells whether the host could not give a page of it.
    pub fn mark(&self) -> Mark {
        self.map.mark()
    }
}

// SAFETY: mapped while the value lives; the seals keep the file's size, and its pages are ordinary
// memory. A page that the host cannot give is replaced, so each access finds a page. vbusd accesses
// it by raw copies only.
unsafe impl Readable for Lent {
    fn range(&self) -> (NonNull<u8>, usize) {
        let map = self.map.map();
        let start = NonNull::new(map.as_mut_ptr());
        (start.unwrap_or(NonNull::dangling()), map.len())
    }
}

/// Checks a client's memfd, which must have these seals and none of the others. Returns its bytes.
fn check(file: &OwnedFd, needed: SealFlags, others: SealFlags) -> Result<usize, Error> {
    let seals = fcntl_get_seals(file).map_err(|_| invalid("the memory is no memfd"))?;
    let fixed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    if !seals.contains(fixed) {
        return Err(invalid(
            "the memory is not sealed against shrink, grow and seal",
        ));
    }
    if !seals.contains(needed) {
        return Err(invalid("the memory is not sealed against future writing"));
    }
    if seals.intersects(others) {
        return Err(invalid("the memory is sealed against writing"));
    }
    let kind = fstatfs(file).map_err(|_| invalid("the memory is no memfd"))?;
    if u64::try_from(kind.f_type) != Ok(TMPFS) {
        return Err(invalid("the memory has huge pages"));
    }
    let status = fstat(file).map_err(|_| invalid("the memory is no memfd"))?;
    let size = u64::try_from(status.st_size).unwrap_or(0);
    if size == 0 || size > MAX {
        return Err(invalid(format!(
            "the memory has {size} bytes: 1 to {MAX} are possible"
        )));
    }
    usize::try_from(size).map_err(|_| invalid("the memory is too large"))
}
