// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several memories as one: that of a client, and those that others lend it or that it lends.

use crate::memory::{MemoryContext, Outside, Piece};
use std::sync::Arc;

/// Addresses of a memory: its number is in the bits above.
const BITS: u32 = 32;

/// The first address of the memory of this number. 0 is the client's own.
#[must_use]
pub fn base(number: u32) -> u64 {
    u64::from(number) << BITS
}

/// The number of the memory of an address, and the address in it.
#[must_use]
pub fn split(ptr: u64) -> (u64, u64) {
    (ptr >> BITS, ptr & ((1 << BITS) - 1))
}

/// The memories.
pub struct Spaces {
    own: Arc<dyn MemoryContext>,
    others: Vec<Option<Arc<dyn MemoryContext>>>,
}

impl std::fmt::Debug for Spaces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let others = self.others.iter().flatten().count();
        write!(f, "one memory and {others} others")
    }
}

impl Spaces {
    /// With room for `others` spaces of others.
    #[must_use]
    pub fn new(own: Arc<dyn MemoryContext>, others: usize) -> Self {
        let others = vec![None; others];
        Spaces { own, others }
    }

    /// Sets the memory of a number from 1 on, of at most 2^32 bytes.
    pub fn set(&mut self, number: usize, memory: Option<Arc<dyn MemoryContext>>) {
        let index = number.checked_sub(1);
        if let Some(place) = index.and_then(|index| self.others.get_mut(index)) {
            *place = memory;
        }
    }

    fn find(&self, ptr: u64, len: usize) -> Result<(&dyn MemoryContext, u64), Outside> {
        let (number, at) = split(ptr);
        let Some(index) = number.checked_sub(1) else {
            return Ok((&*self.own, at));
        };
        let index = usize::try_from(index).ok();
        let other = index.and_then(|index| self.others.get(index)?.as_deref());
        other.map(|other| (other, at)).ok_or(Outside { ptr, len })
    }
}

impl MemoryContext for Spaces {
    fn read(&self, ptr: u64, to: &mut [u8]) -> Result<(), Outside> {
        let (memory, at) = self.find(ptr, to.len())?;
        memory.read(at, to)
    }

    fn write(&self, ptr: u64, from: &[u8]) -> Result<(), Outside> {
        let (memory, at) = self.find(ptr, from.len())?;
        memory.write(at, from)
    }

    fn piece(&self, ptr: u64, len: usize) -> Option<Piece<'_>> {
        let (memory, at) = self.find(ptr, len).ok()?;
        memory.piece(at, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Missing, copy};
    use crate::offsets::{ReadOnly, Readable};
    use std::ptr::NonNull;

    struct Bytes(&'static [u8]);

    #[expect(unsafe_code, reason = "static bytes stay mapped")]
    // SAFETY: static bytes.
    unsafe impl Readable for Bytes {
        fn range(&self) -> (NonNull<u8>, usize) {
            (NonNull::from(self.0).cast(), self.0.len())
        }
    }

    /// Memory in read-only pages would end the process at a write.
    #[test]
    fn what_is_lent_is_read_within_its_bounds_and_never_written() {
        let lent = |bytes| Arc::new(ReadOnly(Bytes(bytes))) as Arc<dyn MemoryContext>;
        let mut spaces = Spaces::new(lent(b"own."), 2);
        spaces.set(2, Some(lent(b"other")));
        let read = |ptr: u64, len: usize| {
            let mut to = vec![0; len];
            spaces.read(ptr, &mut to).map(|()| to)
        };
        assert_eq!(read(0, 4), Ok(b"own.".to_vec()));
        assert_eq!(read(base(2) + 1, 4), Ok(b"ther".to_vec()));
        for (ptr, len) in [
            (1, 4),
            (base(1), 1),
            (base(2) + 2, 4),
            (base(2) - 1, 2),
            (base(3), 1),
            (u64::MAX, 1),
        ] {
            assert!(read(ptr, len).is_err(), "{ptr:#x}");
            assert!(spaces.piece(ptr, len).is_none(), "{ptr:#x}");
        }
        let to = (&spaces as &dyn MemoryContext, base(2));
        let outside = Outside { ptr: 0, len: 2 };
        assert_eq!(copy((&spaces, 0), to, 2), Err(Missing::Target(outside)));
        assert_eq!(spaces.write(base(2), b"ab"), Err(outside));
        spaces.set(2, None);
        assert!(spaces.read(base(2), &mut [0]).is_err());
    }
}
