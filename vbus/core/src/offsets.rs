// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mapped memory whose addresses are offsets in it.

use crate::memory::{MemoryContext, Outside, Piece, Region};
use std::ptr::NonNull;

/// A range of mapped memory, whose addresses are offsets in it.
#[derive(Clone, Copy)]
struct Mapped {
    start: NonNull<u8>,
    size: usize,
}

impl Mapped {
    /// # Safety
    /// The range is mapped and readable for as long as the value lives.
    unsafe fn new((start, size): (NonNull<u8>, usize)) -> Self {
        Mapped { start, size }
    }

    fn place(self, ptr: u64, len: usize) -> Result<NonNull<u8>, Outside> {
        let outside = Outside { ptr, len };
        let first = usize::try_from(ptr).map_err(|_| outside)?;
        match first.checked_add(len) {
            // SAFETY: the offset is within the range, or its end.
            Some(end) if end <= self.size => Ok(unsafe { self.start.add(first) }),
            _ => Err(outside),
        }
    }

    fn read(self, ptr: u64, to: &mut [u8]) -> Result<(), Outside> {
        let from = self.place(ptr, to.len())?;
        // SAFETY: `place` has checked the range, and `to` is memory of this process alone. The
        // other side may write during the copy, which is torn then.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), to.len()) }
        Ok(())
    }
}

/// The memory of a client that is mapped as a whole. An address is an offset in it.
#[derive(Debug)]
pub struct Offsets<R>(pub R);

impl<R: Region> Offsets<R> {
    fn mapped(&self) -> Mapped {
        // SAFETY: a region is mapped as long as it lives, and each use ends before `self` does.
        unsafe { Mapped::new(self.0.range()) }
    }
}

// SAFETY: it is the region that it has.
unsafe impl<R: Region> Region for Offsets<R> {
    fn range(&self) -> (NonNull<u8>, usize) {
        self.0.range()
    }
}

impl<R: Region> MemoryContext for Offsets<R> {
    fn read(&self, ptr: u64, to: &mut [u8]) -> Result<(), Outside> {
        self.mapped().read(ptr, to)
    }

    fn write(&self, ptr: u64, from: &[u8]) -> Result<(), Outside> {
        let to = self.mapped().place(ptr, from.len())?;
        // SAFETY: `place` has checked the range, and `from` is memory of this process alone.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) }
        Ok(())
    }

    fn piece(&self, ptr: u64, len: usize) -> Option<Piece<'_>> {
        let start = self.mapped().place(ptr, len).ok()?;
        // SAFETY: `place` has checked the range, which is mapped as long as the region lives.
        Some(unsafe { Piece::new(start, len) })
    }
}

/// Memory that is mapped to be read.
///
/// # Safety
/// The range is mapped and readable for as long as the value lives, whatever others do: it can
/// neither shrink nor be unmapped. This process accesses it only by raw copies out of it.
#[expect(
    unsafe_code,
    reason = "the implementor promises that memory stays mapped"
)]
pub unsafe trait Readable: Send + Sync {
    /// First byte, and number of bytes.
    fn range(&self) -> (NonNull<u8>, usize);
}

/// Memory that is only read. An address is an offset in it.
#[derive(Debug)]
pub struct ReadOnly<R>(pub R);

impl<R: Readable> ReadOnly<R> {
    fn mapped(&self) -> Mapped {
        // SAFETY: the range is mapped as long as it lives, and each use ends before `self` does.
        unsafe { Mapped::new(self.0.range()) }
    }
}

impl<R: Readable> MemoryContext for ReadOnly<R> {
    fn read(&self, ptr: u64, to: &mut [u8]) -> Result<(), Outside> {
        self.mapped().read(ptr, to)
    }

    fn write(&self, ptr: u64, from: &[u8]) -> Result<(), Outside> {
        let len = from.len();
        Err(Outside { ptr, len })
    }

    fn piece(&self, ptr: u64, len: usize) -> Option<Piece<'_>> {
        let start = self.mapped().place(ptr, len).ok()?;
        // SAFETY: `place` has checked the range, which is mapped as long as the value lives.
        Some(unsafe { Piece::read_only(start, len) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;

    struct Page(UnsafeCell<[u8; 16]>);

    // SAFETY: one thread has it.
    unsafe impl Sync for Page {}

    // SAFETY: the bytes live as long as the value, and are accessed by raw copies only.
    unsafe impl Region for Page {
        fn range(&self) -> (NonNull<u8>, usize) {
            (NonNull::new(self.0.get().cast()).unwrap(), 16)
        }
    }

    #[test]
    fn nothing_outside_of_the_region_is_reached() {
        let memory = Offsets(Page(UnsafeCell::new([0; 16])));
        assert_eq!(memory.write(12, &[1, 2, 3, 4]), Ok(()));
        let mut found = [9; 5];
        assert_eq!(memory.read(11, &mut found), Ok(()));
        assert_eq!(found, [0, 1, 2, 3, 4]);
        assert_eq!(memory.read(16, &mut []), Ok(()));
        assert!(memory.piece(0, 16).is_some());
        for ptr in [13, 16, 17, u64::MAX - 3, u64::MAX] {
            let outside = Outside { ptr, len: 4 };
            assert_eq!(memory.write(ptr, &[5; 4]), Err(outside), "{ptr:#x}");
            assert_eq!(memory.read(ptr, &mut [0; 4]), Err(outside), "{ptr:#x}");
            assert!(memory.piece(ptr, 4).is_none(), "{ptr:#x}");
        }
        assert!(memory.piece(0, 17).is_none());
        assert!(memory.piece(1, usize::MAX).is_none());
        assert_eq!(memory.read(11, &mut found), Ok(()));
        assert_eq!(found, [0, 1, 2, 3, 4]);
    }
}
