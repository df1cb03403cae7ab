// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client's memory, as packets are copied from and to it. Addresses are offsets.

use memmap2::MmapRaw;
use paravane_vbus::{MemoryContext, Outside, Piece};
use std::ptr::NonNull;

/// The memory that vbusd has, too. It may write all of it at any time, to no other effect than a
/// wrong packet.
#[derive(Debug)]
pub struct Memory {
    pub map: MmapRaw,
}

impl Memory {
    fn place(&self, ptr: u64, len: usize) -> Result<*mut u8, Outside> {
        let outside = Outside { ptr, len };
        let first = usize::try_from(ptr).map_err(|_| outside)?;
        match first.checked_add(len) {
            // SAFETY: the offset is within the mapping, or its end.
            Some(end) if end <= self.map.len() => Ok(unsafe { self.map.as_mut_ptr().add(first) }),
            _ => Err(outside),
        }
    }
}

impl MemoryContext for Memory {
    fn read(&self, ptr: u64, to: &mut [u8]) -> Result<(), Outside> {
        let from = self.place(ptr, to.len())?;
        // SAFETY: `place` has checked the range, and `to` is memory of this process alone.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) }
        Ok(())
    }

    fn write(&self, ptr: u64, from: &[u8]) -> Result<(), Outside> {
        let to = self.place(ptr, from.len())?;
        // SAFETY: as in `read`.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) }
        Ok(())
    }

    fn piece(&self, ptr: u64, len: usize) -> Option<Piece<'_>> {
        let start = NonNull::new(self.place(ptr, len).ok()?)?;
        // SAFETY: `place` has checked the range, which is mapped as long as `self` lives.
        Some(unsafe { Piece::new(start, len) })
    }
}
