// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//! Makes rings, with their signals, of mapped memory.

use crate::atomic::{AtomicU32, Ordering};
use crate::layout::{
    Descriptor, Ioq, VBUS_IOQ_MAGIC, VBUS_IOQ_VERSION, VBUS_ROLE_RECEIVE, VBUS_ROLE_TRANSMIT,
    VBUS_SIGNAL_MAGIC, VBUS_SIGNAL_VERSION,
};
use crate::ring::{Breach, Ring, Role};
use crate::signal::Side;
use crate::word;
use core::ptr::NonNull;

/// Alignment of an ioq: a cache line.
pub const ALIGN: usize = 64;

/// Bytes of an ioq with `count` descriptors.
#[must_use]
pub fn size(count: u32) -> usize {
    size_of::<Ioq>() + count as usize * size_of::<Descriptor>()
}

/// An ioq in shared memory, whose head has been written or checked.
#[derive(Clone, Copy, Debug)]
pub struct Queue<'a> {
    /// Its ring.
    pub ring: Ring<'a>,
    /// What the north does with it.
    pub role: Role,
    /// Notifications to the north.
    pub to_north: Side<'a>,
    /// Notifications to the south.
    pub to_south: Side<'a>,
}

impl<'a> Queue<'a> {
    /// The north makes an ioq. [`crate::north::North::begin`] then empties the ring.
    ///
    /// `None`: the count is not allowed, or the memory is too small or not aligned.
    ///
    /// # Safety
    /// The `len` bytes at `memory` are mapped and writable for `'a`, and this process accesses them
    /// only by atomic operations and raw copies.
    pub unsafe fn make(memory: NonNull<u8>, len: usize, count: u32, role: Role) -> Option<Self> {
        // SAFETY: as the caller promises.
        let (head, descriptors) = unsafe { parts(memory, len, count) }?;
        head.role.store(number(role), Ordering::Relaxed);
        head.count.store(count, Ordering::Relaxed);
        head.version.store(WIRE.ioq_version, Ordering::Relaxed);
        let signal = &head.signal;
        signal.version.store(WIRE.signal_version, Ordering::Relaxed);
        for side in &signal.sides {
            for word in [&side.enabled, &side.pending, &side.dirty] {
                word.store(0, Ordering::Relaxed);
            }
        }
        signal.magic.store(WIRE.signal_magic, Ordering::Relaxed);
        head.magic.store(WIRE.ioq_magic, Ordering::Release);
        Some(queue(head, descriptors, role))
    }

    /// The south opens an ioq that the north has made. `count` and `role` were agreed on elsewhere;
    /// the head must say the same.
    ///
    /// # Errors
    /// [`Breach::Head`] names the field that is wrong; `len` if the memory is too small or not
    /// aligned, or the count is not allowed.
    ///
    /// # Safety
    /// As for [`Queue::make`].
    pub unsafe fn open(
        memory: NonNull<u8>,
        len: usize,
        count: u32,
        role: Role,
    ) -> Result<Self, Breach> {
        let short = Breach::Head {
            field: "len",
            value: u32::try_from(len).unwrap_or(u32::MAX),
        };
        // SAFETY: as the caller promises.
        let (head, descriptors) = unsafe { parts(memory, len, count) }.ok_or(short)?;
        for (field, word, wanted) in [
            ("magic", &head.magic, WIRE.ioq_magic),
            ("version", &head.version, WIRE.ioq_version),
            ("count", &head.count, count),
            ("role", &head.role, number(role)),
            ("signal.magic", &head.signal.magic, WIRE.signal_magic),
            ("signal.version", &head.signal.version, WIRE.signal_version),
        ] {
            let value = word.load(Ordering::Acquire);
            if value != wanted {
                return Err(Breach::Head { field, value });
            }
        }
        Ok(queue(head, descriptors, role))
    }
}

/// `count` words in shared memory. `None`: the memory is too small or not aligned.
///
/// # Safety
/// As for [`Queue::make`].
#[must_use]
pub unsafe fn words<'a>(memory: NonNull<u8>, len: usize, count: usize) -> Option<&'a [AtomicU32]> {
    let bytes = count.checked_mul(size_of::<AtomicU32>())?;
    if bytes > len || !memory.addr().get().is_multiple_of(align_of::<AtomicU32>()) {
        return None;
    }
    // SAFETY: the bytes are mapped and aligned, and every bit pattern is a value of the type,
    // also while a peer writes.
    Some(unsafe { core::slice::from_raw_parts(memory.cast().as_ptr(), count) })
}

/// The constants of the wire as 32-bit numbers.
struct Wire {
    ioq_magic: u32,
    ioq_version: u32,
    signal_magic: u32,
    signal_version: u32,
}

const WIRE: Wire = Wire {
    ioq_magic: word(VBUS_IOQ_MAGIC),
    ioq_version: word(VBUS_IOQ_VERSION),
    signal_magic: word(VBUS_SIGNAL_MAGIC),
    signal_version: word(VBUS_SIGNAL_VERSION),
};

const fn number(role: Role) -> u32 {
    match role {
        Role::Transmit => word(VBUS_ROLE_TRANSMIT),
        Role::Receive => word(VBUS_ROLE_RECEIVE),
    }
}

fn queue<'a>(head: &'a Ioq, descriptors: &'a [Descriptor], role: Role) -> Queue<'a> {
    Queue {
        ring: Ring {
            valid_head: &head.valid_head,
            valid_tail: &head.valid_tail,
            inuse_head: &head.inuse_head,
            inuse_tail: &head.inuse_tail,
            descriptors,
        },
        role,
        to_north: Side::from(&head.signal.sides[0]),
        to_south: Side::from(&head.signal.sides[1]),
    }
}

/// # Safety
/// The `len` bytes at `memory` are mapped and writable for `'a`.
unsafe fn parts<'a>(
    memory: NonNull<u8>,
    len: usize,
    count: u32,
) -> Option<(&'a Ioq, &'a [Descriptor])> {
    if !Ring::allowed(count) || len < size(count) || !memory.addr().get().is_multiple_of(ALIGN) {
        return None;
    }
    // SAFETY: `size(count)` bytes are mapped and aligned. Both types are Views: every bit pattern
    // is a value of them, also while a peer writes. The second begins where the first ends.
    unsafe {
        let head = memory.cast::<Ioq>();
        let descriptors = head.add(1).cast::<Descriptor>();
        Some((
            head.as_ref(),
            core::slice::from_raw_parts(descriptors.as_ptr(), count as usize),
        ))
    }
}
