// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The words by which a client and a device agree on loans, in the client's memory.

use crate::endpoint::Broken;
use crate::memory::{Outside, Region};
use crate::spaces::{base, split};
use paravane_vbus_shm::loans::{Loans, words};
use paravane_vbus_shm::memory;
use std::fmt;
use std::sync::Arc;

/// The words, and the memory of slots that the client lends: the [first](base) besides its own.
pub struct Table {
    /// The words. They refer to the region, which is dropped last.
    pub loans: Loans<'static>,
    /// Bytes of a slot.
    size: u32,
    _region: Arc<dyn Region>,
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} slots of {} bytes", self.loans.slots(), self.size)
    }
}

impl Table {
    /// Opens the words at `offset` of the region, for this number of slots of `size` bytes.
    ///
    /// # Errors
    /// They are not in the region, or not aligned.
    pub fn open(
        region: Arc<dyn Region>,
        offset: u64,
        slots: u32,
        size: u32,
    ) -> Result<Self, Broken> {
        let (start, bytes) = region.range();
        let count = words(slots);
        let outside = Broken::Memory(Outside {
            ptr: offset,
            len: count.saturating_mul(size_of::<u32>()),
        });
        let first = usize::try_from(offset).ok().filter(|&first| first <= bytes);
        let first = first.ok_or(outside)?;
        // SAFETY: the range is within the region, which stays mapped while `_region` lives, and the
        // references go with this value. A region is accessed atomically.
        let found = unsafe { memory::words(start.add(first), bytes - first, count) };
        let loans = found.and_then(Loans::new).ok_or(outside)?;
        Ok(Table {
            loans,
            size,
            _region: region,
        })
    }

    /// The slot that has these bytes. `None`: they are not all in one slot.
    #[must_use]
    pub fn slot(&self, ptr: u64, len: usize) -> Option<u32> {
        let (number, at) = split(ptr);
        if number != split(base(1)).0 || len == 0 {
            return None;
        }
        let size = u64::from(self.size.max(1));
        let (first, last) = (at / size, at.saturating_add(len as u64 - 1) / size);
        let slot = usize::try_from(first).ok()?;
        let inside = first == last && slot < self.loans.slots();
        inside.then(|| u32::try_from(first).ok())?
    }
}
