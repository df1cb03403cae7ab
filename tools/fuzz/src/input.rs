// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values from an input, as long as it has bytes left.

/// The rest of an input. Bytes after its end are zero.
#[derive(Clone, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// A whole input.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Input(bytes)
    }

    /// Whether all bytes are used.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next bytes, at most `most`.
    pub fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// A byte.
    pub fn u8(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    fn number<const N: usize>(&mut self) -> [u8; N] {
        let mut all = [0; N];
        for (to, from) in all.iter_mut().zip(self.bytes(N)) {
            *to = *from;
        }
        all
    }

    /// Two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.number())
    }

    /// Four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.number())
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.number())
    }

    /// One of these items.
    ///
    /// # Panics
    /// If there are no items.
    pub fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[usize::from(self.u8()) % all.len()].clone()
    }

    /// A number that is often small, and otherwise arbitrary.
    pub fn size(&mut self) -> u64 {
        match self.u8() {
            small @ 0..=0xbf => small.into(),
            0xc0..=0xdf => self.u16().into(),
            0xe0..=0xef => self.u32().into(),
            _ => self.u64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_zero() {
        let mut input = Input::new(&[1, 2, 3, 0xe0, 5]);
        assert_eq!((input.u16(), input.pick(&[7, 8, 9, 10])), (0x201, 10));
        assert_eq!((input.size(), input.is_empty()), (5, true));
        assert_eq!((input.u64(), input.bytes(9)), (0, &[][..]));
    }
}
