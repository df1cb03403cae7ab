// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mappings of clients' memory in which the host may fail to provide a page.
//!
//! A page of a memfd is allocated at the first access. A client may leave holes in its memfd, and
//! may punch holes later: no seal forbids that while the memory can be written. If the host cannot
//! allocate the page (`vm.overcommit_memory` is 2 and the limit is reached), the kernel sends
//! SIGBUS to the process that accesses it, which would end vbusd for all clients.
//!
//! So each mapping has a spare page. The handler maps the spare page in place of the missing one,
//! and marks the mapping. The access continues, and vbusd's first thread ends the connection after
//! the turn. Until then all missing pages of a mapping are the same page, which no other mapping
//! has.

use libc::{c_int, c_void};
use memmap2::MmapRaw;
use paravane_vbus::{Error, Kind, limits};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Most mappings: two of each connection that clients can have at a time, and as many of those
/// whose cards still end.
const SLOTS: usize = 4 * crate::server::PEERS * limits::CONNECTIONS;
const PAGE: usize = 4096;
/// Bits of a number of pages in [`Slot::place`].
const COUNT: u32 = 20;
const _: () = assert!(crate::memory::MAX / (PAGE as u64) < 1 << COUNT);

/// A mapping, as the handler sees it.
struct Slot {
    used: AtomicBool,
    /// Number of the first page, and in the lower bits the number of pages; 0: no mapping. One
    /// word, so that the handler never sees the first page of one mapping and the size of another.
    place: AtomicU64,
    spare: AtomicUsize,
    failed: AtomicBool,
    /// How often a page was replaced.
    replaced: AtomicU64,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        used: AtomicBool::new(false),
        place: AtomicU64::new(0),
        spare: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
        replaced: AtomicU64::new(0),
    }
}; SLOTS];

/// A page was missing since [`take_failed`].
static FAILED: AtomicBool = AtomicBool::new(false);

/// A mapping whose missing pages do not end the process.
#[derive(Debug)]
pub struct Guarded {
    map: MmapRaw,
    slot: usize,
    spare: NonNull<c_void>,
}

// SAFETY: the spare page belongs to the value, which does not access it.
unsafe impl Send for Guarded {}
// SAFETY: as above.
unsafe impl Sync for Guarded {}

/// Whether a page of a mapping was missing. Valid while the mapping exists.
#[derive(Clone, Copy, Debug)]
pub struct Mark(usize);

impl Mark {
    /// The mapping can be used no more.
    pub fn has_failed(self) -> bool {
        TABLE[self.0].failed.load(Ordering::Relaxed)
    }
}

impl Guarded {
    /// Of the memory of a client.
    ///
    /// # Errors
    /// There are too many mappings, or the host has no memory for a page.
    pub fn new(map: MmapRaw) -> Result<Self, Error> {
        let spare = spare()?;
        let free = TABLE
            .iter()
            .position(|slot| !slot.used.swap(true, Ordering::Acquire));
        let Some(number) = free else {
            release(spare);
            let text = format!("no more than {SLOTS} mappings of clients' memory are possible");
            return Err(Error::new(Kind::Limit, text));
        };
        let slot = &TABLE[number];
        slot.failed.store(false, Ordering::Relaxed);
        slot.replaced.store(0, Ordering::Relaxed);
        slot.spare.store(spare.as_ptr() as usize, Ordering::Relaxed);
        let first = (map.as_mut_ptr() as usize / PAGE) as u64;
        let place = first << COUNT | map.len().div_ceil(PAGE) as u64;
        slot.place.store(place, Ordering::Release);
        Ok(Guarded {
            map,
            slot: number,
            spare,
        })
    }

    /// The mapping.
    pub fn map(&self) -> &MmapRaw {
        &self.map
    }

    /// Tells whether a page was missing.
    pub fn mark(&self) -> Mark {
        Mark(self.slot)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // Before the mapping goes: another one may get its addresses.
        let slot = &TABLE[self.slot];
        slot.place.store(0, Ordering::Relaxed);
        slot.used.store(false, Ordering::Release);
        release(self.spare);
    }
}

/// A page that is there.
fn spare() -> Result<NonNull<c_void>, Error> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // Shared: only such a page can be mapped a second time. The host accounts for it here.
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
    // SAFETY: a mapping of its own, in the place of no other.
    let page = unsafe { libc::mmap(ptr::null_mut(), PAGE, protection, flags, -1, 0) };
    let found = NonNull::new(page).filter(|_| page != libc::MAP_FAILED);
    found.ok_or_else(|| {
        let error = std::io::Error::last_os_error();
        Error::new(Kind::Host, format!("mmap: {error}"))
    })
}

fn release(spare: NonNull<c_void>) {
    // SAFETY: the page was mapped by `spare`, and nothing refers to it.
    unsafe { libc::munmap(spare.as_ptr(), PAGE) };
}

/// Whether a page of any mapping was missing, and the first thread has not ended its connection.
pub fn any_failed() -> bool {
    FAILED.load(Ordering::Relaxed)
}

/// Whether a page was missing since the last call. The first thread calls this, and then ends all
/// connections with a missing page.
pub fn take_failed() -> bool {
    any_failed() && FAILED.swap(false, Ordering::Acquire)
}

/// Handles SIGBUS from now on.
pub fn install() {
    // SAFETY: all fields are numbers or pointers, for which zero is a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler calls nothing but host calls that a handler may call, and uses atomics.
    // Fails for no signal of this kind.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) };
}

extern "C" fn handle(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes what it knows of the signal, which has an address for these codes.
    let (code, at) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    let page = matches!(code, libc::BUS_ADRERR | libc::BUS_MCEERR_AR);
    if !(page && replace(at)) {
        let text = b"vbusd: the host cannot provide a page of memory (SIGBUS)\n";
        // SAFETY: a handler may make these calls, and the policy of each thread admits them.
        unsafe {
            libc::write(2, text.as_ptr().cast(), text.len());
            libc::_exit(128 + libc::SIGBUS);
        }
    }
}

/// Maps the spare page of a mapping at an address in it. False: no mapping is there, the host
/// refuses, or it cannot provide the spare page either.
fn replace(at: usize) -> bool {
    let page = (at / PAGE) as u64;
    let here = |slot: &&Slot| {
        let place = slot.place.load(Ordering::Acquire);
        let (first, count) = (place >> COUNT, place & ((1 << COUNT) - 1));
        page >= first && page - first < count
    };
    let Some(slot) = TABLE.iter().find(here) else {
        return false;
    };
    let count = slot.place.load(Ordering::Relaxed) & ((1 << COUNT) - 1);
    // Each page once, and again by threads that find it missing at the same time.
    if slot.replaced.fetch_add(1, Ordering::Relaxed) > 64 * count {
        return false;
    }
    slot.failed.store(true, Ordering::Relaxed);
    FAILED.store(true, Ordering::Release);
    let spare = slot.spare.load(Ordering::Relaxed) as *mut c_void;
    let to = (at / PAGE * PAGE) as *mut c_void;
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the address is in the mapping of a client, which exists as long as it is accessed.
    // Its page is replaced by one that is accessed in the same way. With an old size of 0 the
    // spare page stays where it is, too.
    let mapped = unsafe { libc::mremap(spare, 0, PAGE, flags, to) };
    mapped == to
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use memmap2::MmapOptions;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    fn guarded(pages: usize) -> (std::os::fd::OwnedFd, Guarded) {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, (pages * PAGE) as u64).unwrap();
        let map = MmapOptions::new().len(pages * PAGE).map_raw(&file).unwrap();
        (file, Guarded::new(map).unwrap())
    }

    /// The host sends the same signal for a page beyond the end of a file as for one for which it
    /// has no memory.
    #[test]
    fn a_page_that_the_host_cannot_give_ends_no_process() {
        install();
        let ((file, one), (_kept, other)) = (guarded(3), guarded(3));
        let at =
            |guarded: &Guarded, page: usize| guarded.map().as_mut_ptr().wrapping_add(page * PAGE);
        // SAFETY: in the mapping.
        unsafe { at(&one, 0).write_volatile(7) };
        ftruncate(&file, PAGE as u64).unwrap();
        assert!(!one.mark().has_failed());
        // SAFETY: in the mapping, whose missing pages are replaced.
        let found = unsafe {
            at(&one, 1).write_volatile(8);
            at(&one, 2).add(1).write_volatile(9);
            [(0, 0), (1, 0), (2, 1)].map(|(page, byte)| at(&one, page).add(byte).read_volatile())
        };
        assert_eq!(found, [7, 8, 9]);
        assert!(one.mark().has_failed() && !other.mark().has_failed());
        assert!(take_failed() && !take_failed());
        // Another mapping sees nothing of it, and its slot is as new.
        drop(one);
        let (_file, next) = guarded(3);
        assert!(!next.mark().has_failed());
        // SAFETY: in the mappings.
        let found = unsafe { [at(&other, 1), at(&next, 1)].map(|at| at.read_volatile()) };
        assert_eq!(found, [0, 0]);
        assert!(!replace(&raw const found as usize));
    }
}
