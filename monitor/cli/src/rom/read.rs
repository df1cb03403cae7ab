// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounded little-endian reads from a ROM.

use super::RomError;

/// The part of the file that the ROM consists of. Reads outside of it are errors, never panics.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes }
    }

    /// `count` bytes from `at` on. `what` names them in the error.
    pub fn bytes(&self, at: u64, count: u64, what: &str) -> Result<&'a [u8], RomError> {
        let limit = self.bytes.len() as u64;
        let end = at.saturating_add(count);
        let range = usize::try_from(at).ok().zip(usize::try_from(end).ok());
        range
            .and_then(|(at, end)| self.bytes.get(at..end))
            .ok_or_else(|| RomError::OutOfBounds {
                what: what.to_string(),
                start: at,
                end,
                limit,
            })
    }

    /// `N` bytes from `at` on, for `from_le_bytes`.
    pub fn array<const N: usize>(&self, at: u64, what: &str) -> Result<[u8; N], RomError> {
        let bytes = self.bytes(at, N as u64, what)?;
        // The slice has N bytes. The zeros replace an error that cannot happen.
        Ok(<[u8; N]>::try_from(bytes).unwrap_or([0; N]))
    }

    /// Checks that a table lies inside, and returns the offsets of its entries.
    ///
    /// `step` is the size of an entry in this ROM: a later minor version may have larger entries.
    pub fn table(
        &self,
        at: u32,
        count: u32,
        step: u32,
        what: &str,
    ) -> Result<impl Iterator<Item = u64> + use<>, RomError> {
        let (at, step) = (u64::from(at), u64::from(step));
        // Both factors are below 2^32.
        self.bytes(at, u64::from(count) * step, what)?;
        Ok((0..u64::from(count)).map(move |n| at + n * step))
    }
}

/// A field of a structure of the interface, which starts at byte `$at` of the ROM.
macro_rules! field {
    ($reader:expr, $at:expr, $structure:ty, $field:ident as $int:ty) => {
        $reader
            .array(
                $at + std::mem::offset_of!($structure, $field) as u64,
                concat!(stringify!($structure), ".", stringify!($field)),
            )
            .map(<$int>::from_le_bytes)
    };
}
pub(super) use field;
