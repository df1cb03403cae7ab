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
use rustix::io::{Errno, write};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

/// `f_type` of the file system of ordinary memfds. Pages of another one may be missing, and an
/// access would end the process.
const TMPFS: u64 = 0x0102_1994;
/// Most bytes of a connection's memory in vbusd.
const MOST: u64 = 64 << 20;
/// Bytes that are written at once.
const CHUNK: usize = 64 << 10;
/// Bytes of the blocks in which the host counts the pages of a file.
const BLOCK: u64 = 512;

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

/// A memfd of `len` bytes, not yet sealed, which is mapped. All of its pages are allocated: a
/// page that is missing at the first access, and for which the host has no memory, would end the
/// process by SIGBUS.
pub fn make_file(len: u64) -> Result<(OwnedFd, MmapRaw), Error> {
    let host = |what| move |error| Error::Host(what, error);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create(c"vbus", flags).map_err(host("memfd_create"))?;
    ftruncate(&file, len).map_err(host("ftruncate"))?;
    // vbusd refuses more, and says so.
    if len <= MOST {
        reserve(&file, len).map_err(host("the host has no memory for a connection"))?;
    }
    let too_large = || Error::Invalid(format!("{len} bytes are too much memory"));
    let len = usize::try_from(len).map_err(|_| too_large())?;
    let map = MmapOptions::new().len(len).map_raw(&file);
    map.map(|map| (file, map)).map_err(|_| too_large())
}

/// Makes all pages of a memfd that was not written before. By writing: the seccomp policy of the
/// monitor's thread that joins a bus (`vbus-join`) does not admit `fallocate`.
fn reserve(file: &OwnedFd, len: u64) -> Result<(), Errno> {
    let zeros = vec![0; CHUNK];
    let mut left = len;
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        match write(file, zeros.get(..most).unwrap_or_default()) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(written) => left = left.saturating_sub(written as u64),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
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
    /// Maps it to be read. `None`: it is no memfd whose size is sealed, pages of it are missing, or
    /// the host refuses.
    pub fn map(file: &OwnedFd) -> Option<Self> {
        let fixed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        let sealed = fcntl_get_seals(file).is_ok_and(|seals| seals.contains(fixed));
        let kind = fstatfs(file).ok().map(|kind| u64::try_from(kind.f_type));
        let status = fstat(file).ok()?;
        if !sealed || kind != Some(Ok(TMPFS)) {
            return None;
        }
        let size = u64::try_from(status.st_size).ok();
        let size = size.filter(|size| (1..=loans::BYTES).contains(size))?;
        let blocks = u64::try_from(status.st_blocks).ok()?;
        if blocks.saturating_mul(BLOCK) < size {
            return None;
        }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn sealed(file: OwnedFd) -> OwnedFd {
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        seal(&file, seals).unwrap();
        file
    }

    /// No later access finds a page missing, also in memory of others.
    #[test]
    fn all_pages_are_there() {
        for len in [1, 4096, 100_000, 3 << 20] {
            let (file, map) = make_file(len).unwrap();
            assert_eq!(map.len() as u64, len);
            let status = fstat(&file).unwrap();
            assert_eq!(u64::try_from(status.st_size), Ok(len));
            assert!(u64::try_from(status.st_blocks).unwrap() * BLOCK >= len);
            assert!(Lent::map(&sealed(file)).is_some());
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create(c"test", flags).unwrap();
        ftruncate(&file, 8192).unwrap();
        write(&file, &[7; 4096]).unwrap();
        assert!(Lent::map(&sealed(file)).is_none());
    }
}
