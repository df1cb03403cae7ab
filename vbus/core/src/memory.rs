// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client's memory, as a device sees it: an address space of its own.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// An access that is not in the client's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside {
    /// Address in the client's memory.
    pub ptr: u64,
    /// Bytes.
    pub len: usize,
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outside { ptr, len } = self;
        write!(f, "{len} bytes at {ptr:#x} are not in the client's memory")
    }
}

impl std::error::Error for Outside {}

/// Copies from and to a client's memory. A device uses nothing else, so it does not care whether
/// the client is a guest, a process, or a test. The client may write the same bytes at any time:
/// what was read is a copy that may be torn, and never the same twice.
pub trait MemoryContext: Send + Sync {
    /// Copies out of the client's memory.
    ///
    /// # Errors
    /// A byte of the range is not in the client's memory. `to` has arbitrary contents then.
    fn read(&self, ptr: u64, to: &mut [u8]) -> Result<(), Outside>;

    /// Copies into the client's memory.
    ///
    /// # Errors
    /// A byte of the range is not in the client's memory. Nothing is written then.
    fn write(&self, ptr: u64, from: &[u8]) -> Result<(), Outside>;

    /// The range, if it is mapped here in one piece: [`copy`] needs no place between two such.
    /// Memory that may not be written has pieces that are only [read](Piece::read_only).
    fn piece(&self, ptr: u64, len: usize) -> Option<Piece<'_>> {
        let _ = (ptr, len);
        None
    }

    /// Looks whether a range is in the client's memory. If so, it stays there.
    ///
    /// # Errors
    /// It is not.
    fn check(&self, ptr: u64, len: usize) -> Result<(), Outside> {
        if self.piece(ptr, len).is_some() {
            return Ok(());
        }
        let (mut space, mut done) = ([0; STEP], 0);
        while done < len {
            let part = space.get_mut(..STEP.min(len - done)).unwrap_or_default();
            self.read(ptr.saturating_add(done as u64), part)?;
            done += part.len();
        }
        Ok(())
    }
}

/// A range of a client's memory that is mapped in one piece. Only [`copy`] accesses it.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    start: NonNull<u8>,
    len: usize,
    writable: bool,
    _memory: PhantomData<&'a ()>,
}

impl Piece<'_> {
    /// A range.
    ///
    /// # Safety
    /// The `len` bytes at `start` are mapped, readable and writable as long as the value lives,
    /// whatever the client does. This process accesses them only by atomic operations and raw
    /// copies.
    #[expect(unsafe_code, reason = "the caller promises that memory stays mapped")]
    #[must_use]
    pub unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        Piece {
            start,
            len,
            writable: true,
            _memory: PhantomData,
        }
    }

    /// A range that is never written here.
    ///
    /// # Safety
    /// As for [`Piece::new`], but the bytes need not be writable.
    #[expect(unsafe_code, reason = "the caller promises that memory stays mapped")]
    #[must_use]
    pub unsafe fn read_only(start: NonNull<u8>, len: usize) -> Self {
        Piece {
            start,
            len,
            writable: false,
            _memory: PhantomData,
        }
    }
}

/// Whose memory lacks a byte of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// That which is copied from.
    Source(Outside),
    /// That which is copied to.
    Target(Outside),
}

/// Bytes that are copied at once where one side is not in one piece.
const STEP: usize = 4096;

/// Copies from one client's memory to another's.
///
/// # Errors
/// A byte is not there. Part of the target has arbitrary contents then.
pub fn copy(
    (from, source): (&dyn MemoryContext, u64),
    (to, target): (&dyn MemoryContext, u64),
    len: usize,
) -> Result<(), Missing> {
    let whole = (from.piece(source, len), to.piece(target, len));
    if let (Some(source), Some(target @ Piece { writable: true, .. })) = whole {
        let len = len.min(source.len).min(target.len);
        #[expect(unsafe_code, reason = "a copy between two mappings")]
        // SAFETY: both ranges are mapped, and the target is writable (`Piece::new`). They may be
        // the same memory. Both clients may write during the copy, which is torn then.
        unsafe {
            std::ptr::copy(source.start.as_ptr(), target.start.as_ptr(), len);
        }
        return Ok(());
    }
    let mut space = [0; STEP];
    let mut done = 0;
    while done < len {
        let part = space.get_mut(..STEP.min(len - done)).unwrap_or_default();
        // An address past the end of all numbers is outside, too.
        let at = |start: u64| start.saturating_add(done as u64);
        from.read(at(source), part).map_err(Missing::Source)?;
        to.write(at(target), part).map_err(Missing::Target)?;
        done += part.len();
    }
    Ok(())
}

/// Memory that a connector has mapped, for rings.
///
/// # Safety
/// The range is mapped, readable and writable for as long as the value lives, whatever the client
/// does: it can neither shrink nor be unmapped. This process accesses it only by atomic operations
/// and raw copies.
#[expect(
    unsafe_code,
    reason = "the implementor promises that memory stays mapped"
)]
pub unsafe trait Region: Send + Sync {
    /// First byte, and number of bytes.
    fn range(&self) -> (NonNull<u8>, usize);
}
