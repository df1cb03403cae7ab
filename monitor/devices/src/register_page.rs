// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Register pages that are shared with a guest.
//!
//! A guest reads its devices' registers directly from these pages. They only display: the device's
//! thread has the state and never reads it back, because a hostile guest may find ways to write the
//! pages.

use super::mmio::PAGE;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The register pages of all devices of a machine.
#[derive(Debug)]
pub struct Area {
    base: NonNull<u8>,
    count: usize,
    file: OwnedFd,
}

// SAFETY: the memory is only accessed through atomics, and stays mapped as long as this value
// lives.
unsafe impl Send for Area {}
// SAFETY: as for Send.
unsafe impl Sync for Area {}

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
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                access,
                MapFlags::SHARED,
                &file,
                0,
            )?
        };
        let base =
            NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap returned null"))?;
        Ok(Arc::new(Area { base, count, file }))
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

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made by `new`; all references to it borrow from this value.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.count * PAGE) };
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
        // SAFETY: inside the mapping and aligned, as just checked, and only accessed through
        // atomics.
        unsafe {
            self.area
                .base
                .add(self.number * PAGE + offset)
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
