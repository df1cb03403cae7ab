// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client's memory, which vbusd has mapped, too.

use memmap2::MmapRaw;
use paravane_vbus::Region;
use std::ptr::NonNull;

/// The memory. vbusd may write all of it at any time, to no other effect than a wrong packet.
#[derive(Debug)]
pub struct Memory {
    /// Of a memfd that is sealed against shrinking.
    pub map: MmapRaw,
}

// SAFETY: mapped while the value lives; the file is sealed, so each access finds a page. The client
// accesses it by atomic operations and raw copies only.
unsafe impl Region for Memory {
    fn range(&self) -> (NonNull<u8>, usize) {
        let start = NonNull::new(self.map.as_mut_ptr());
        (start.unwrap_or(NonNull::dangling()), self.map.len())
    }
}
