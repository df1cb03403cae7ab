// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client's memory, which vbusd has mapped, too; and memory of others that it reads.

use crate::control::Error;
use memmap2::{MmapOptions, MmapRaw};
use paravane_vbus::{Readable, Region};
use paravane_vbus_shm::loans;
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate,
    memfd_create,
};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

/// `f_type` of the file system of ordinary memfds. Pages of another one may be missing, and an
/// access would end the process.
const TMPFS: u64 = 0x0102_1994;

/// The memory. vbusd may write all of it at any time, to no other effect than a wrong packet.
#[derive(Debug)]
pub struct Memory {
    /// Of a memfd that is sealed against shrinking.
    pub map: MmapRaw,
}

// SAFETY: mapped while the value lives; the file is sealed, so each access finds a page. The client
// accesses it by atomic operations and raw copies only.
unsafe impl Region for Memory {
    fn range(&self) -> (NonNull<u8>, usize) {
        let start = NonNull::new(self.map.as_mut_ptr());
        (start.unwrap_or(NonNull::dangling()), self.map.len())
    }
}

/// A memfd of so many bytes, not yet sealed, which is mapped.
pub fn make_file(len: u64) -> Result<(OwnedFd, MmapRaw), Error> {
    let host = |what| move |error| Error::Host(what, error);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create(c"vbus", flags).map_err(host("memfd_create"))?;
    ftruncate(&file, len).map_err(host("ftruncate"))?;
    let too_large = || Error::Invalid(format!("{len} bytes are too much memory"));
    let len = usize::try_from(len).map_err(|_| too_large())?;
    let map = MmapOptions::new().len(len).map_raw(&file);
    map.map(|map| (file, map)).map_err(|_| too_large())
}

/// Seals a memfd.
pub fn seal(file: &OwnedFd, seals: SealFlags) -> Result<(), Error> {
    fcntl_add_seals(file, seals).map_err(|error| Error::Host("seal", error))
}

/// Memory of another client, which may write all of it at any time.
#[derive(Debug)]
pub struct Lent {
    map: MmapRaw,
}

impl Lent {
    /// Maps it to be read. `None`: it is no memfd whose size is sealed, or the host refuses.
    pub fn map(file: &OwnedFd) -> Option<Self> {
        let fixed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        let sealed = fcntl_get_seals(file).is_ok_and(|seals| seals.contains(fixed));
        let kind = fstatfs(file).ok().map(|kind| u64::try_from(kind.f_type));
        let size = fstat(file).map_or(0, |status| status.st_size);
        if !sealed || kind != Some(Ok(TMPFS)) {
            return None;
        }
        let size = u64::try_from(size).ok();
        let size = size.filter(|size| (1..=loans::BYTES).contains(size))?;
        let len = usize::try_from(size).ok()?;
        let map = MmapOptions::new().len(len).map_raw_read_only(file);
        map.ok().map(|map| Lent { map })
    }
}

// SAFETY: mapped while the value lives; the file is sealed and has ordinary pages, so each access
// finds a page. The client accesses it by raw copies only.
unsafe impl Readable for Lent {
    fn range(&self) -> (NonNull<u8>, usize) {
        let start = NonNull::new(self.map.as_mut_ptr());
        (start.unwrap_or(NonNull::dangling()), self.map.len())
    }
}
