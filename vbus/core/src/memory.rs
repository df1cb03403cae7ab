// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client's memory, as a device sees it: an address space of its own.

use std::fmt;
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
