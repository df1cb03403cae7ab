// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory that the monitor and the layer share; see `abi/process.toml`.
//!
//! Guest code can write all of it at any time. So there are no references to plain data in it:
//! every access is an atomic load or store of one naturally aligned field, and the caller checks
//! the loaded copy.

use crate::size::size;
use memmap2::{Advice, MmapOptions, MmapRaw};
use paravane_abi::process::{self as ph, area};
use paravane_abi::view::View;
use rustix::fs::{MemfdFlags, SealFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

const SIZE: usize = size(ph::PHV_SHARED_SIZE);

// The offsets that the accessors compute from a checked index stay inside.
const _: () =
    assert!(ph::PHV_SHARED_VCPUS + ph::PHV_MAX_VCPUS * ph::PHV_VCPU_STRIDE <= ph::PHV_SHARED_SIZE);
const _: () =
    assert!(ph::PHV_SHARED_PROCS + ph::PHV_MAX_PROCS * ph::PHV_PROC_STRIDE <= ph::PHV_SHARED_SIZE);
const _: () = assert!(
    ph::PHV_SHARED_DEVICES + ph::PHV_MAX_DEVICES * size_of::<area::Device>() as u64
        <= ph::PHV_SHARED_REQUESTS
        && ph::PHV_SHARED_REQUESTS + ph::PHV_MAX_VCPUS * size_of::<area::Request>() as u64
            <= ph::PHV_SHARED_SIZE
);

const _: () = assert!(
    ph::PHV_SHARED_EVENTS + ph::PHV_MAX_VCPUS * ph::PHV_EVENTS * size_of::<area::Event>() as u64
        <= ph::PHV_SHARED_DEBUG
        && ph::PHV_SHARED_DEBUG + ph::PHV_MAX_VCPUS * size_of::<area::Debug>() as u64
            <= ph::PHV_SHARED_SIZE
);

/// The shared area, mapped in the monitor.
#[derive(Debug)]
pub struct Shared {
    map: MmapRaw,
    file: OwnedFd,
}

impl Shared {
    /// Creates the area, all zero. Its file has `pool` more bytes, which only the layer maps.
    pub fn new(pool: u64) -> io::Result<Self> {
        let file = rustix::fs::memfd_create(
            "paravane-shared",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        rustix::fs::ftruncate(&file, ph::PHV_SHARED_SIZE + pool)?;
        // If another process truncated the file, access here would cause a SIGBUS.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let map = MmapOptions::new().len(SIZE).map_raw(&file)?;
        // Keeps it out of core dumps. A host that does not know the advice dumps it.
        let _ = map.advise(Advice::DontDump);
        Ok(Shared { map, file })
    }

    /// The file, for the layer.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn at<T>(&self, offset: usize) -> NonNull<T> {
        // Offsets consist of constants and checked indices, so this finds mistakes in this program.
        assert!(
            offset.is_multiple_of(align_of::<T>()) && offset <= SIZE - size_of::<T>(),
            "offset {offset:#x}"
        );
        // SAFETY: inside the mapping, as just checked, so not null.
        unsafe { NonNull::new_unchecked(self.map.as_mut_ptr().add(offset)) }.cast()
    }

    fn view<T: View>(&self, offset: usize) -> &T {
        // SAFETY: inside the mapping and aligned. A `View` is sound for any bytes, and while others
        // write them.
        unsafe { self.at::<T>(offset).as_ref() }
    }

    /// The 32-bit word at an offset, for checks of whole ranges.
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: inside the mapping, aligned, and only accessed through atomics.
        unsafe { self.at::<AtomicU32>(offset).as_ref() }
    }

    fn byte(&self, offset: usize) -> &AtomicU8 {
        // SAFETY: as in `word`.
        unsafe { self.at::<AtomicU8>(offset).as_ref() }
    }

    /// The first page: what concerns the whole machine.
    pub fn header(&self) -> &area::Shared {
        self.view(0)
    }

    /// A vCPU.
    pub fn vcpu(&self, vcpu: usize) -> &area::Vcpu {
        assert!(vcpu < size(ph::PHV_MAX_VCPUS), "vCPU {vcpu}");
        self.view(size(ph::PHV_SHARED_VCPUS) + vcpu * size(ph::PHV_VCPU_STRIDE))
    }

    /// An address-space process.
    pub fn proc(&self, process: usize) -> &area::Proc {
        assert!(process < size(ph::PHV_MAX_PROCS), "process {process}");
        self.view(size(ph::PHV_SHARED_PROCS) + process * size(ph::PHV_PROC_STRIDE))
    }

    /// A device.
    pub fn device(&self, device: usize) -> &area::Device {
        assert!(device < size(ph::PHV_MAX_DEVICES), "device {device}");
        self.view(size(ph::PHV_SHARED_DEVICES) + device * size_of::<area::Device>())
    }

    /// The register write that a vCPU waits for.
    pub fn request(&self, vcpu: usize) -> &area::Request {
        assert!(vcpu < size(ph::PHV_MAX_VCPUS), "vCPU {vcpu}");
        self.view(size(ph::PHV_SHARED_REQUESTS) + vcpu * size_of::<area::Request>())
    }

    /// A vCPU's state for debuggers.
    pub fn debug(&self, vcpu: usize) -> &area::Debug {
        assert!(vcpu < size(ph::PHV_MAX_VCPUS), "vCPU {vcpu}");
        self.view(size(ph::PHV_SHARED_DEBUG) + vcpu * size_of::<area::Debug>())
    }

    /// A vCPU's event, by its index in the ring.
    pub fn event(&self, vcpu: usize, place: usize) -> &area::Event {
        assert!(
            vcpu < size(ph::PHV_MAX_VCPUS) && place < size(ph::PHV_EVENTS),
            "event {place} of vCPU {vcpu}"
        );
        let index = vcpu * size(ph::PHV_EVENTS) + place;
        self.view(size(ph::PHV_SHARED_EVENTS) + index * size_of::<area::Event>())
    }

    /// A copy of a vCPU's event.
    pub fn copy_event(&self, vcpu: usize, place: usize) -> ph::PhvEvent {
        let event = self.event(vcpu, place);
        ph::PhvEvent {
            tsc: event.tsc.load(Ordering::Relaxed),
            kind: event.kind.load(Ordering::Relaxed),
            a: event.a.load(Ordering::Relaxed),
            b: event.b.load(Ordering::Relaxed),
        }
    }

    /// Copies bytes in.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        for (at, &byte) in (offset..).zip(bytes) {
            self.byte(at).store(byte, Ordering::Relaxed);
        }
    }

    /// Copies bytes out.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            *byte = self.byte(at).load(Ordering::Relaxed);
        }
    }
}

/// Copies bytes of a view.
pub fn copy(from: &[AtomicU8], to: &mut [u8]) {
    for (byte, to) in from.iter().zip(to) {
        *to = byte.load(Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_they_belong() {
        let shared = Shared::new(0).unwrap();
        shared.header().magic.store(0x0403_0201, Ordering::Relaxed);
        let mut bytes = [0; 4];
        shared.read(0, &mut bytes);
        assert_eq!(bytes, [1, 2, 3, 4]);
        shared.write(SIZE - 4, &[9; 4]);
        assert_eq!(shared.word(SIZE - 4).load(Ordering::Relaxed), 0x0909_0909);
        let last = size(ph::PHV_MAX_VCPUS) - 1;
        shared.vcpu(last).deadline_ns.store(7, Ordering::Relaxed);
        shared.proc(1023).tid[63].store(7, Ordering::Relaxed);
    }

    #[test]
    #[should_panic(expected = "offset")]
    fn nothing_behind_the_end() {
        Shared::new(0).unwrap().word(SIZE);
    }

    #[test]
    fn the_file_keeps_its_size() {
        let shared = Shared::new(0).unwrap();
        assert!(rustix::fs::ftruncate(shared.file(), 4096).is_err());
    }
}
