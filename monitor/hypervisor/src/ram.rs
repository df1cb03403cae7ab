// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guest RAM: guest-physical addresses from 0, in files that the monitor and every address-space
//! process map. RAM has no gaps, except for the one that a PC has below 4 GiB ([`Ram::around`]).
//!
//! There are several files because all processes that map a file share its lock. In the monitor's
//! address space those without a gap between them are adjacent, so a device's buffer may cross from
//! one into the next. The host allocates a page on its first touch, so RAM costs what the guest has
//! used.
//!
//! Every address space maps the direct map. With large pages it does so with one host fault for
//! 2 MiB. So the files are in a file system that has them, if the host lets this user mount one
//! ([`LargeFiles`]). Otherwise they are memfds, and only the kernel's image gets large pages, on
//! request.

use crate::large_files::LargeFiles;
use crate::size::size;
use anyhow::{Context, bail};
use paravane_abi::process as ph;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use vm_memory::{
    Bytes, GuestAddress, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap, MmapRegion,
};

/// A processor's large page: RAM regions begin and end at multiples of this.
pub const LARGE_PAGE: u64 = 2 << 20;
/// The size of one file, unless that makes too many files.
const REGION_SIZE: u64 = 1 << 30;
/// With less memory there is no room for boot information and a kernel.
pub const MIN_SIZE: u64 = 16 << 20;
/// The direct map ends where the layer's own addresses begin.
pub const MAX_SIZE: u64 = ph::PHV_KERNEL_END - ph::PHV_DIRECT_MAP_WIDE;

/// A RAM region: one file and its guest-physical addresses.
#[derive(Clone, Debug)]
pub struct Region {
    pub gpa: u64,
    pub size: u64,
    file: Arc<File>,
    /// The mapping of the guest memory around it, up to a gap.
    memory: Arc<GuestRegionMmap>,
}

/// Which guest memory the host gives in large pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LargePages {
    /// All.
    All,
    /// What the monitor asks for: the kernel's image.
    Image,
    /// None, unless by the host's policy.
    None,
}

/// A guest's RAM.
#[derive(Clone, Debug)]
pub struct Ram {
    regions: Vec<Region>,
    memory: GuestMemoryMmap,
    size: u64,
    /// The bytes from address 0 up to the gap.
    low: u64,
}

impl Ram {
    /// Creates `size` bytes of RAM, all in large pages if they are wanted and the host has them.
    ///
    /// # Errors
    /// The size is not possible, or the host gives no memory.
    pub fn new(size: u64, large_pages: bool) -> anyhow::Result<Self> {
        Self::around(size, u64::MAX..u64::MAX, large_pages)
    }

    /// Reserves RAM with a gap in its guest-physical addresses, at multiples of a large page: RAM
    /// that does not fit below the gap follows it.
    ///
    /// # Errors
    /// The size is not possible, or the host gives no memory.
    pub fn around(size: u64, gap: Range<u64>, large_pages: bool) -> anyhow::Result<Self> {
        if !(MIN_SIZE..=MAX_SIZE).contains(&size) || !size.is_multiple_of(LARGE_PAGE) {
            bail!(
                "{} KiB of memory: it must be a multiple of 2 MiB, at least {} MiB",
                size >> 10,
                MIN_SIZE >> 20
            );
        }
        let complain = || format!("cannot make {} MiB of guest memory", size >> 20);
        let files = if large_pages {
            Files::large(size)
        } else {
            Files::Memory
        };
        let low = size.min(gap.start);
        let (mut regions, mut mappings) = (Vec::new(), Vec::new());
        for (start, end) in [(0, low), (gap.end, gap.end.saturating_add(size - low))] {
            if start == end {
                continue;
            }
            let mapping = Arc::new(reserve(start, end - start).with_context(complain)?);
            let mut gpa = start;
            while gpa < end {
                let length = region_size(size).min(end - gpa);
                let file = files.file(length).with_context(complain)?;
                let region = Region::new(file, gpa, length, &mapping).with_context(complain)?;
                if let Files::Memory = files {
                    // A request only. Where shmem's large pages are set to "advise", the first
                    // touch gets them. In a file system that gives large pages anyway, it would let
                    // a device wait until the host has made room for one.
                    region.advise(0, length, libc::MADV_HUGEPAGE);
                }
                regions.push(region);
                gpa += length;
            }
            mappings.push(mapping);
        }
        let memory = GuestMemoryMmap::from_arc_regions(mappings)?;
        Ok(Ram {
            regions,
            memory,
            size,
            low,
        })
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The bytes from address 0 up to the gap; without a gap, all.
    pub fn low(&self) -> u64 {
        self.low
    }

    /// The regions, ascending and without gaps, or with the one.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The RAM, in the form that devices use.
    pub fn memory(&self) -> Arc<GuestMemoryMmap> {
        Arc::new(self.memory.clone())
    }

    /// Copies bytes to a guest-physical address.
    ///
    /// # Errors
    /// The range is not inside guest memory.
    pub fn write(&self, gpa: u64, bytes: &[u8]) -> anyhow::Result<()> {
        self.memory
            .write_slice(bytes, GuestAddress(gpa))
            .with_context(|| {
                format!(
                    "{:#x} bytes at {gpa:#x} are not inside guest memory",
                    bytes.len()
                )
            })
    }

    /// Like [`Ram::write`], for many bytes in untouched memory: writes to the file, without a fault
    /// for each page.
    ///
    /// # Errors
    /// The range is not inside guest memory, or the host gives no memory.
    pub fn store(&self, mut gpa: u64, mut bytes: &[u8]) -> anyhow::Result<()> {
        while !bytes.is_empty() {
            let region = self
                .regions
                .iter()
                .find(|r| (r.gpa..r.gpa + r.size).contains(&gpa));
            let region = region.with_context(|| {
                format!(
                    "{:#x} bytes at {gpa:#x} are not inside guest memory",
                    bytes.len()
                )
            })?;
            let offset = gpa - region.gpa;
            let (now, later) = bytes.split_at(bytes.len().min(size(region.size - offset)));
            region
                .file
                .write_all_at(now, offset)
                .context("guest memory")?;
            gpa += now.len() as u64;
            bytes = later;
        }
        Ok(())
    }

    /// Copies bytes from a guest-physical address.
    ///
    /// # Errors
    /// The range is not inside guest memory.
    #[cfg(test)]
    pub fn read(&self, gpa: u64, bytes: &mut [u8]) -> anyhow::Result<()> {
        Ok(self.memory.read_slice(bytes, GuestAddress(gpa))?)
    }

    /// Which memory the host gives in large pages. To find out, this touches the first page.
    pub fn large_pages(&self) -> LargePages {
        let touched = self.write(0, &[0]).is_ok();
        let allocated = self.regions[0]
            .file
            .metadata()
            .map_or(0, |m| m.blocks() * 512);
        if touched && allocated >= LARGE_PAGE {
            LargePages::All
        } else if touched && self.collapse(0, LARGE_PAGE) {
            LargePages::Image
        } else {
            LargePages::None
        }
    }

    /// Asks the host for large pages. That is cheapest before the range is written. Large pages
    /// make mapping and first touches of the kernel several times cheaper in every new process.
    /// Returns whether the whole range got them.
    pub fn collapse(&self, gpa: u64, length: u64) -> bool {
        let mut all = true;
        let end = gpa.saturating_add(length);
        for region in &self.regions {
            let from = gpa.max(region.gpa) / LARGE_PAGE * LARGE_PAGE;
            let to = end
                .min(region.gpa + region.size)
                .next_multiple_of(LARGE_PAGE);
            if from < to {
                all &= region.collapse(from - region.gpa, to - from);
            }
        }
        all
    }
}

/// 1 GiB for each file, or more if that made too many files.
fn region_size(size: u64) -> u64 {
    REGION_SIZE.max(
        size.div_ceil(ph::PHV_MAX_REGIONS)
            .next_multiple_of(LARGE_PAGE),
    )
}

/// Reserves addresses for guest memory without gaps, which the files then take. They are released
/// as a whole.
fn reserve(start: u64, length: u64) -> anyhow::Result<GuestRegionMmap> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let region = MmapRegion::build(None, size(length), libc::PROT_NONE, flags)?;
    GuestRegionMmap::new(region, GuestAddress(start)).context("it ends beyond all addresses")
}

/// Where the files of guest memory come from.
enum Files {
    Large(LargeFiles),
    Memory,
}

impl Files {
    fn large(size: u64) -> Self {
        match LargeFiles::new(size) {
            Ok(files) => Files::Large(files),
            Err(error) => {
                tracing::info!(%error, "only the kernel's image gets large pages");
                Files::Memory
            }
        }
    }

    fn file(&self, length: u64) -> io::Result<File> {
        match self {
            Files::Large(files) => files.file(length),
            Files::Memory => {
                let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
                let file = rustix::fs::memfd_create("paravane-ram", flags)?;
                rustix::fs::ftruncate(&file, length)?;
                // If another process truncated the file, access here would cause a SIGBUS.
                let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
                rustix::fs::fcntl_add_seals(&file, seals)?;
                Ok(File::from(file))
            }
        }
    }
}

impl Region {
    fn new(
        file: File,
        gpa: u64,
        length: u64,
        memory: &Arc<GuestRegionMmap>,
    ) -> anyhow::Result<Self> {
        let file = Arc::new(file);
        let region = Region {
            gpa,
            size: length,
            file,
            memory: Arc::clone(memory),
        };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: replaces a part of what was reserved for this region alone, and which has not
        // been used yet.
        unsafe {
            mmap(
                region.address(0),
                size(length),
                access,
                flags,
                &region.file,
                0,
            )?
        };
        // A request only: it keeps guest memory out of the monitor's core dumps.
        region.advise(0, length, libc::MADV_DONTDUMP);
        Ok(region)
    }

    /// The monitor's address of a byte, which must be inside the region.
    fn address(&self, offset: u64) -> *mut c_void {
        self.memory
            .as_ptr()
            .wrapping_add(size(self.gpa - self.memory.start_addr().0 + offset))
            .cast()
    }

    /// The monitor's address of the region, which stays mapped as long as the memory exists.
    pub fn host_address(&self) -> u64 {
        self.address(0).addr() as u64
    }

    /// The file, for the layer.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// `offset` and `length` are multiples of a large page.
    fn collapse(&self, offset: u64, length: u64) -> bool {
        // The host collapses pages only through a mapping that is aligned to large pages, which the
        // monitor's need not be.
        let Ok(window) = Window::new(&self.file, offset, length) else {
            return false;
        };
        // One call for each large page, because a call ends at its first failure. It fails where
        // the host has no free large page, where nothing has been touched yet, and on kernels
        // before 6.1, which do not have the advice.
        (0..length / LARGE_PAGE)
            .map(|index| index * LARGE_PAGE)
            .all(|at| {
                rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset + at, 1).is_ok()
                    && window.advise(at, LARGE_PAGE, libc::MADV_COLLAPSE)
            })
    }

    fn advise(&self, offset: u64, length: u64, advice: i32) -> bool {
        if offset.checked_add(length).is_none_or(|end| end > self.size) {
            return false;
        }
        // SAFETY: the range is inside the region's mapping, and none of the advices used here
        // changes its content.
        unsafe { libc::madvise(self.address(offset), size(length), advice) == 0 }
    }
}

/// A mapping of part of a file at a multiple of a large page.
struct Window {
    /// What was reserved and will be freed.
    base: *mut c_void,
    reserved: usize,
    /// The mapping inside the reservation.
    start: *mut c_void,
}

impl Window {
    fn new(file: &File, offset: u64, length: u64) -> io::Result<Self> {
        let reserved = size(length + LARGE_PAGE);
        let none = std::ptr::null_mut();
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let base =
            unsafe { mmap_anonymous(none, reserved, ProtFlags::empty(), MapFlags::PRIVATE)? };
        let start = base.map_addr(|address| address.next_multiple_of(size(LARGE_PAGE)));
        let window = Window {
            base,
            reserved,
            start,
        };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: replaces a part of what was just reserved, to which there are no references.
        unsafe {
            mmap(
                start,
                size(length),
                access,
                MapFlags::SHARED | MapFlags::FIXED,
                file,
                offset,
            )?
        };
        Ok(window)
    }

    fn advise(&self, offset: u64, length: u64, advice: i32) -> bool {
        let address = self.start.wrapping_byte_add(size(offset));
        // SAFETY: there are no references to the mapping, and large pages do not change its
        // content.
        unsafe { libc::madvise(address, size(length), advice) == 0 }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: frees what `new` reserved.
        let _ = unsafe { munmap(self.base, self.reserved) };
    }
}

#[cfg(test)]
#[path = "ram_tests.rs"]
mod tests;
