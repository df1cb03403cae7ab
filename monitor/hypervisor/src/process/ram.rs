// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guest RAM: guest-physical 0 upwards without gaps, in files that the monitor and every address-space process map.
//!
//! Several files and not one, because a file's lock is shared by all who map it. In the monitor they lie one behind the other, so that a
//! buffer of a device's that goes from one into the next is one like any. Pages come into being when they are first touched, so a guest's RAM
//! costs what it has used.

use super::shared::size;
use anyhow::{Context, bail};
use paravane_abi::process as ph;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

/// Slots begin and end at multiples of this: a processor's large page.
pub const LARGE_PAGE: u64 = 2 << 20;
/// What one file holds, unless there would be too many.
const SLOT_SIZE: u64 = 1 << 30;
/// Below this, boot information and an image have no room.
pub const MIN_SIZE: u64 = 16 << 20;
/// The direct map ends where the layer's own addresses begin.
pub const MAX_SIZE: u64 = ph::PHV_KERNEL_END - ph::PHV_DIRECT_MAP;

/// One file and where it is.
#[derive(Clone, Debug)]
pub struct Slot {
    pub gpa: u64,
    pub size: u64,
    file: Arc<File>,
    /// The whole guest memory's mapping.
    memory: Arc<GuestRegionMmap>,
}

/// A guest's RAM.
#[derive(Clone, Debug)]
pub struct Ram {
    slots: Vec<Slot>,
    memory: GuestMemoryMmap,
    size: u64,
}

impl Ram {
    /// Makes `size` bytes.
    pub fn new(size: u64) -> anyhow::Result<Self> {
        if !(MIN_SIZE..=MAX_SIZE).contains(&size) || size % LARGE_PAGE != 0 {
            bail!(
                "{} KiB of memory: it must be a multiple of 2 MiB, from {} MiB on",
                size >> 10,
                MIN_SIZE >> 20
            );
        }
        let slot_size = slot_size(size);
        let complain = || format!("cannot make {} MiB of guest memory", size >> 20);
        let region = Arc::new(reserve(size).with_context(complain)?);
        let mut slots = Vec::new();
        let mut gpa = 0;
        while gpa < size {
            slots.push(Slot::new(gpa, slot_size.min(size - gpa), &region).with_context(complain)?);
            gpa += slot_size;
        }
        let memory = GuestMemoryMmap::from_arc_regions(vec![region])?;
        Ok(Ram {
            slots,
            memory,
            size,
        })
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Ascending, without gaps.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The same memory, for devices.
    pub fn memory(&self) -> Arc<GuestMemoryMmap> {
        Arc::new(self.memory.clone())
    }

    /// Copies bytes to a guest-physical address.
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

    /// The same for many bytes where nothing is yet: through the file, without a fault for each page.
    pub fn store(&self, mut gpa: u64, mut bytes: &[u8]) -> anyhow::Result<()> {
        while !bytes.is_empty() {
            let slot = self
                .slots
                .iter()
                .find(|s| (s.gpa..s.gpa + s.size).contains(&gpa));
            let slot = slot.with_context(|| {
                format!(
                    "{:#x} bytes at {gpa:#x} are not inside guest memory",
                    bytes.len()
                )
            })?;
            let offset = gpa - slot.gpa;
            let (now, later) = bytes.split_at(bytes.len().min(size(slot.size - offset)));
            slot.file
                .write_all_at(now, offset)
                .context("guest memory")?;
            gpa += now.len() as u64;
            bytes = later;
        }
        Ok(())
    }

    /// Copies bytes from a guest-physical address.
    #[cfg(test)]
    pub fn read(&self, gpa: u64, bytes: &mut [u8]) -> anyhow::Result<()> {
        Ok(self.memory.read_slice(bytes, GuestAddress(gpa))?)
    }

    /// Asks for large pages, as far as the host gives any; before the range is written to it costs least. Mapping and first
    /// touches of the kernel half are several times cheaper on them in every new process. Says whether it got them all.
    pub fn collapse(&self, gpa: u64, length: u64) -> bool {
        let mut all = true;
        let end = gpa.saturating_add(length).min(self.size);
        for slot in &self.slots {
            let from = gpa.max(slot.gpa) / LARGE_PAGE * LARGE_PAGE;
            let to = end.min(slot.gpa + slot.size).next_multiple_of(LARGE_PAGE);
            if from < to {
                all &= slot.collapse(from - slot.gpa, to - from);
            }
        }
        all
    }
}

/// One file for each GiB, or larger ones if that were too many.
fn slot_size(size: u64) -> u64 {
    SLOT_SIZE.max(
        size.div_ceil(ph::PHV_MAX_REGIONS)
            .next_multiple_of(LARGE_PAGE),
    )
}

/// Addresses for a guest's whole memory, which its files then take. They are given back as a whole.
fn reserve(length: u64) -> anyhow::Result<GuestRegionMmap> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let region = MmapRegion::build(None, size(length), libc::PROT_NONE, flags)?;
    GuestRegionMmap::new(region, GuestAddress(0)).context("it ends beyond all addresses")
}

impl Slot {
    fn new(gpa: u64, length: u64, memory: &Arc<GuestRegionMmap>) -> anyhow::Result<Self> {
        let file = rustix::fs::memfd_create(
            "paravane-ram",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        rustix::fs::ftruncate(&file, length)?;
        // A file that somebody makes shorter would be a SIGBUS here.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let file = Arc::new(File::from(file));
        let slot = Slot {
            gpa,
            size: length,
            file,
            memory: Arc::clone(memory),
        };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: takes the place of a part of what was reserved for this slot alone; nobody has used it before.
        unsafe { mmap(slot.address(0), size(length), access, flags, &slot.file, 0)? };
        // Both are wishes: where shmem's large pages are "advise" the first gets them at first touch, and a core
        // dump of the monitor should not have the guest's memory in it.
        slot.advise(0, length, libc::MADV_HUGEPAGE);
        slot.advise(0, length, libc::MADV_DONTDUMP);
        Ok(slot)
    }

    /// Where this monitor has a byte of it, which must be inside.
    fn address(&self, offset: u64) -> *mut c_void {
        self.memory
            .as_ptr()
            .wrapping_add(size(self.gpa + offset))
            .cast()
    }

    /// Its file, for the layer.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// `offset` and `length` are multiples of a large page.
    fn collapse(&self, offset: u64, length: u64) -> bool {
        // The host makes large pages only through a mapping that is aligned to them, which ours need not be.
        let Ok(window) = Window::new(&self.file, offset, length) else {
            return false;
        };
        // One call for each, since the first failure ends a call. It fails where the host has no large page left, where there is
        // nothing at all yet, and on kernels before 6.1, which do not know it.
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
        // SAFETY: the range is inside the slot's mapping, and none of the advices used here changes what is in it.
        unsafe { libc::madvise(self.address(offset), size(length), advice) == 0 }
    }
}

/// A mapping of part of a file at a multiple of a large page.
struct Window {
    /// What was reserved, and is freed.
    base: *mut c_void,
    reserved: usize,
    /// The mapping, inside of it.
    start: *mut c_void,
}

impl Window {
    fn new(file: &File, offset: u64, length: u64) -> io::Result<Self> {
        let reserved = size(length + LARGE_PAGE);
        let none = std::ptr::null_mut();
        // SAFETY: a new mapping at an address of the kernel's choice takes the place of nothing.
        let base =
            unsafe { mmap_anonymous(none, reserved, ProtFlags::empty(), MapFlags::PRIVATE)? };
        let start = base.map_addr(|address| address.next_multiple_of(size(LARGE_PAGE)));
        let window = Window {
            base,
            reserved,
            start,
        };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: takes the place of a part of what was just reserved, to which nobody has a reference.
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
        // SAFETY: nobody has a reference to the mapping, and large pages do not change what is in it.
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
mod tests {
    use super::*;

    #[test]
    fn slots_cover_everything_once() {
        assert_eq!(slot_size(256 << 20), 1 << 30);
        assert_eq!(slot_size(16 << 30), 1 << 30);
        assert!((17u64 << 30).div_ceil(slot_size(17 << 30)) <= ph::PHV_MAX_REGIONS);
        let ram = Ram::new((1 << 30) + (4 << 20)).unwrap();
        let slots: Vec<_> = ram.slots().iter().map(|s| (s.gpa, s.size)).collect();
        assert_eq!(slots, [(0, 1 << 30), (1 << 30, 4 << 20)]);
        // What is written from one into the next is in both files.
        ram.write((1 << 30) - 2, b"abcd").unwrap();
        let read = |slot: usize, offset: u64| {
            let mut bytes = [0; 2];
            ram.slots()[slot]
                .file
                .read_exact_at(&mut bytes, offset)
                .unwrap();
            bytes
        };
        assert_eq!((&read(0, (1 << 30) - 2), &read(1, 0)), (b"ab", b"cd"));
        assert!(ram.write((1 << 30) + (4 << 20) - 2, b"abcd").is_err());
    }

    #[test]
    fn what_is_written_is_read_and_nothing_outside() {
        let ram = Ram::new(MIN_SIZE).unwrap();
        ram.write(MIN_SIZE - 3, b"abc").unwrap();
        // Where the host has none, this is false and changes nothing either.
        let _ = ram.collapse(MIN_SIZE - LARGE_PAGE, LARGE_PAGE);
        let mut bytes = [0; 3];
        ram.read(MIN_SIZE - 3, &mut bytes).unwrap();
        assert_eq!(&bytes, b"abc");
        ram.store(MIN_SIZE - 2, b"de").unwrap();
        ram.read(MIN_SIZE - 3, &mut bytes).unwrap();
        assert_eq!(&bytes, b"ade");
        assert!(ram.store(MIN_SIZE - 2, b"abc").is_err());
        assert!(ram.store(u64::MAX, b"abc").is_err());
        assert!(ram.write(MIN_SIZE - 2, b"abc").is_err());
        assert!(ram.write(u64::MAX, b"abc").is_err());
    }

    #[test]
    fn odd_sizes_are_refused() {
        for size in [0, 1 << 20, MIN_SIZE + 4096, u64::MAX] {
            assert!(Ram::new(size).is_err(), "{size:#x}");
        }
    }
}
