// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Register pages that are shared with a guest.
//!
//! A guest reads its devices' registers directly from these pages. The pages are only for display.
//! The device's thread has the state and never reads it back, because a hostile guest may find ways
//! to write the pages.

use super::mmio::PAGE;
use rustix::fs::{MemfdFlags, SealFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use vm_memory::mmap::MmapRegionError;
use vm_memory::{FileOffset, MmapRegion};

/// The register pages of all devices of a machine.
#[derive(Debug)]
pub struct Area {
    map: MmapRegion,
    count: usize,
    file: Arc<File>,
}

impl Area {
    /// Creates `count` pages, at least one, all zero.
    ///
    /// # Errors
    /// The host gives no memory.
    pub fn new(count: usize) -> io::Result<Arc<Self>> {
        let file = rustix::fs::memfd_create(
            "paravane-devices",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        let length = count * PAGE;
        rustix::fs::ftruncate(&file, length as u64)?;
        // If another process truncated the file, access here would cause a SIGBUS.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let file = Arc::new(File::from(file));
        let place = Some(FileOffset::from_arc(Arc::clone(&file), 0));
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let map = MmapRegion::build(place, length, access, libc::MAP_SHARED).map_err(cause)?;
        Ok(Arc::new(Area { map, count, file }))
    }

    /// The pages as a file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The number of pages.
    pub fn count(&self) -> usize {
        self.count
    }

    /// One of the pages.
    pub fn page(self: &Arc<Self>, number: usize) -> Page {
        assert!(number < self.count, "page {number} of {}", self.count);
        Page {
            area: Arc::clone(self),
            number,
        }
    }
}

/// Why the host maps nothing.
fn cause(error: MmapRegionError) -> io::Error {
    match error {
        MmapRegionError::Mmap(error) => error,
        other => io::Error::other(other),
    }
}

/// A register page.
#[derive(Clone, Debug)]
pub struct Page {
    area: Arc<Area>,
    number: usize,
}

impl Page {
    /// The 32-bit register at an offset, which is a multiple of 4.
    #[inline]
    pub fn register(&self, offset: usize) -> &AtomicU32 {
        assert!(
            offset.is_multiple_of(4) && offset < PAGE,
            "offset {offset:#x}"
        );
        let place = self.number * PAGE + offset;
        // SAFETY: inside the mapping, so not null, and aligned, as just checked. It is only
        // accessed through atomics, and stays mapped as long as the area lives.
        unsafe {
            NonNull::new_unchecked(self.area.map.as_ptr().add(place))
                .cast()
                .as_ref()
        }
    }

    /// Shows a value in a register.
    #[inline]
    pub fn show(&self, offset: usize, value: u32) {
        self.register(offset).store(value, Ordering::Release);
    }
}
