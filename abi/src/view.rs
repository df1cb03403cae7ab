// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//! What the generated views of shared memory are made of.

use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, Ordering};

/// A type that any bytes are valid for, also while other processes write them.
///
/// # Safety
///
/// The type is `repr(C)`, has no padding, and consists of atomic integers and of types that are
/// `View`s. So every bit pattern is a value of it, and shared references to it are sound while
/// other processes write the memory.
pub unsafe trait View {}

/// An enum whose variants are 32-bit numbers.
pub trait Enumerated: Copy {
    /// The variant of a number, if it has one.
    fn from_raw(raw: u32) -> Option<Self>;
    /// The number of the variant.
    fn raw(self) -> u32;
}

/// A 32-bit field that holds the number of an enum's variant or, when a guest wrote it, any number.
#[repr(transparent)]
pub struct Choice<E> {
    word: AtomicU32,
    of: PhantomData<E>,
}

impl<E: Enumerated> Choice<E> {
    /// The variant, or the number that is none.
    pub fn load(&self, order: Ordering) -> Result<E, u32> {
        let raw = self.word.load(order);
        E::from_raw(raw).ok_or(raw)
    }

    /// Whether the field holds this variant.
    pub fn is(&self, variant: E, order: Ordering) -> bool {
        self.word.load(order) == variant.raw()
    }

    /// Stores a variant.
    pub fn store(&self, variant: E, order: Ordering) {
        self.word.store(variant.raw(), order);
    }

    /// The field as a number, for a futex that waits on it.
    pub fn word(&self) -> &AtomicU32 {
        &self.word
    }
}

impl<E: Enumerated + fmt::Debug> fmt::Debug for Choice<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.load(Ordering::Relaxed) {
            Ok(variant) => variant.fmt(f),
            Err(raw) => raw.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::area::VmState;

    #[test]
    fn a_number_that_is_no_variant_is_told_apart() {
        let field: Choice<VmState> = Choice {
            word: AtomicU32::new(3),
            of: PhantomData,
        };
        assert_eq!(field.load(Ordering::Relaxed), Ok(VmState::Fatal));
        assert!(field.is(VmState::Fatal, Ordering::Relaxed));
        field.word().store(4, Ordering::Relaxed);
        assert_eq!(field.load(Ordering::Relaxed), Err(4));
        assert!(!field.is(VmState::Fatal, Ordering::Relaxed));
        field.store(VmState::Reboot, Ordering::Relaxed);
        assert_eq!(field.word().load(Ordering::Relaxed), 2);
    }
}
