// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of a folder's list, told with its last part.
//!
//! FUSE has no way to say that a part is the last: a guest asks once more and gets nothing, which
//! is every second request where folders are small. The project's kernel understands a mark after
//! the last entry (`FUSE_READDIR_END`). The mark is shorter than an entry, so others overlook it.

use fuse_backend_rs::transport::VirtioFsWriter;
use std::cell::Cell;
use std::io::{self, Write};

/// The mark, in bytes.
const MARK: [u8; 8] = 0x646e_6573_6578_616c_u64.to_le_bytes();

thread_local! {
    /// Whether the list that this thread reads is at its end.
    static END: Cell<bool> = const { Cell::new(false) };
}

/// The answer that this thread prepares is the last part of a list.
pub fn end() {
    END.set(true);
}

/// Whether [`end`] was called since this was.
pub fn ended() -> bool {
    END.take()
}

/// Puts the mark after an answer of `written` bytes in the guest's buffers, if there is room.
/// Returns the answer's size.
///
/// # Errors
/// The buffers are shorter than the answer.
pub fn mark(mut buffers: VirtioFsWriter<'_>, written: usize) -> io::Result<usize> {
    let mut rest = buffers
        .split_at(written)
        .map_err(|_| io::ErrorKind::InvalidInput)?;
    if rest.available_bytes() < MARK.len() {
        return Ok(written);
    }
    rest.write_all(&MARK)?;
    let size = written + MARK.len();
    // `struct fuse_out_header` begins with it.
    let length = u32::try_from(size).map_err(io::Error::other)?;
    buffers.write_all(&length.to_le_bytes())?;
    Ok(size)
}
