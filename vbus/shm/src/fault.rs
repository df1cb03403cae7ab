// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//! Mistakes that a test can plant, to prove that it finds them. A build without the feature
//! `faults` has none.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Fault {
    /// An injector does not order its mark before it looks whether the other side sleeps.
    InjectWithoutBarrier = 1,
    /// A wake-up does not look for new work after it has cleared `pending`.
    EndWithoutLook = 2,
    /// A wake-up clears `dirty` after its work.
    DirtyClearedLate = 3,
    /// `enable` does not look for work that came while notifications were disabled.
    EnableWithoutLook = 4,
    /// A descriptor is handed over before its contents are written.
    OwnerFirst = 5,
    /// The length of a received packet is not compared with that of the buffer.
    LengthUnchecked = 6,
    /// A full ring accepts one more descriptor.
    FullAccepts = 7,
    /// A descriptor that is handed over outside of the range in use is accepted.
    IndexUnchecked = 8,
    /// A busy consumer leaves its notifications enabled.
    NeverDisables = 9,
    /// A client takes a slot that is lent for a free one.
    LentIsFree = 10,
    /// A device takes a descriptor back that its receiver still reads.
    ReturnedAtOnce = 11,
}

#[cfg(feature = "faults")]
mod planted {
    use super::Fault;
    use core::sync::atomic::{AtomicU32, Ordering};

    static PLANTED: AtomicU32 = AtomicU32::new(0);

    /// Plants a fault, or none, in the whole process.
    pub fn plant(fault: Option<Fault>) {
        PLANTED.store(fault.map_or(0, |fault| fault as u32), Ordering::SeqCst);
    }

    pub(crate) fn is(fault: Fault) -> bool {
        PLANTED.load(Ordering::Relaxed) == fault as u32
    }
}

#[cfg(feature = "faults")]
pub(crate) use planted::is;
#[cfg(feature = "faults")]
pub use planted::plant;

#[cfg(not(feature = "faults"))]
#[inline(always)]
pub(crate) const fn is(_: Fault) -> bool {
    false
}
