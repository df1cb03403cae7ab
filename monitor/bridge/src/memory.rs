// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guest memory, as devices of the bus see it: addresses are guest-physical.

use crate::planted::{self, Fault};
use paravane_devices::Memory;
use paravane_vbus::{MemoryContext, Outside, Piece, Region};
use std::ptr::NonNull;
use std::sync::Arc;
use vm_memory::{Bytes, GuestAddress, GuestMemory};

/// All memory of a guest.
#[derive(Clone, Debug)]
pub struct Guest(pub Arc<Memory>);

impl MemoryContext for Guest {
    fn read(&self, ptr: u64, to: &mut [u8]) -> Result<(), Outside> {
        let outside = Outside { ptr, len: to.len() };
        if planted::is(Fault::ReadsOutside) && !self.0.check_range(GuestAddress(ptr), to.len()) {
            to.fill(0);
            return Ok(());
        }
        self.0
            .read_slice(to, GuestAddress(ptr))
            .map_err(|_| outside)
    }

    fn write(&self, ptr: u64, from: &[u8]) -> Result<(), Outside> {
        let len = from.len();
        let outside = Outside { ptr, len };
        // A copy that begins within memory and ends outside would write its first part.
        if !self.0.check_range(GuestAddress(ptr), len) {
            return Err(outside);
        }
        if planted::is(Fault::WrongByte) {
            let mut other = from.to_vec();
            other.iter_mut().take(1).for_each(|first| *first ^= 1);
            let written = self.0.write_slice(&other, GuestAddress(ptr));
            return written.map_err(|_| outside);
        }
        self.0
            .write_slice(from, GuestAddress(ptr))
            .map_err(|_| outside)
    }

    fn piece(&self, ptr: u64, len: usize) -> Option<Piece<'_>> {
        if planted::is(Fault::WrongByte) {
            return None;
        }
        let slice = self.0.get_slice(GuestAddress(ptr), len).ok()?;
        let start = NonNull::new(slice.ptr_guard_mut().as_ptr())?;
        // SAFETY: the slice is in a mapping of guest memory, which lives as long as `self`. A guest
        // cannot unmap or shrink it.
        Some(unsafe { Piece::new(start, slice.len()) })
    }
}

/// A range of guest memory without a gap.
#[derive(Debug)]
pub struct Range {
    start: NonNull<u8>,
    len: usize,
    /// Keeps the range mapped.
    _memory: Arc<Memory>,
}

// SAFETY: the memory is accessed only by atomic operations and raw copies, and stays mapped as long
// as the value lives.
unsafe impl Send for Range {}
// SAFETY: as for Send.
unsafe impl Sync for Range {}

impl Range {
    /// `None`: it is not all in guest memory, or not in one piece on the host.
    pub fn new(memory: &Arc<Memory>, ptr: u64, len: usize) -> Option<Self> {
        let slice = memory.get_slice(GuestAddress(ptr), len).ok()?;
        Some(Range {
            start: NonNull::new(slice.ptr_guard_mut().as_ptr())?,
            len: slice.len(),
            _memory: Arc::clone(memory),
        })
    }
}

// SAFETY: `get_slice` has checked that the range is in a mapping of guest memory, which `_memory`
// keeps. A guest cannot unmap or shrink it: the balloon only replaces pages by zeroes.
unsafe impl Region for Range {
    fn range(&self) -> (NonNull<u8>, usize) {
        (self.start, self.len)
    }
}
