// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of a folder's list, marked in its last part.
//!
//! A second mark (`FUSE_READDIR_WHOLE`) is for a list of a folder whose new names have been
//! reported to the guest since before the first part: a name that the list lacks need not be looked
//! up.
//!
//! FUSE has no way to say that a part is the last: a guest asks once more and gets nothing, which
//! is every second request where folders are small. The project's kernel understands a mark after
//! the last entry (`FUSE_READDIR_END`). The mark is shorter than an entry, so other kernels ignore
//! it.

use fuse_backend_rs::transport::VirtioFsWriter;
use std::cell::Cell;
use std::io::{self, Write};

/// The end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Nothing more is known.
    Last,
    /// All names are known, and others will be reported.
    Whole,
}

impl End {
    /// The mark.
    fn mark(self) -> [u8; 8] {
        let mark: u64 = match self {
            End::Last => 0x646e_6573_6578_616c,
            End::Whole => 0x656c_6f68_7773_6c61,
        };
        mark.to_le_bytes()
    }
}

thread_local! {
    /// Whether the list that this thread reads is at its end.
    static END: Cell<Option<End>> = const { Cell::new(None) };
}

/// The answer that this thread prepares is the last part of a list.
pub fn end(end: End) {
    END.set(Some(end));
}

/// The argument of the last call of [`end`] since the last call of this function.
pub fn ended() -> Option<End> {
    END.take()
}

/// Puts the mark after an answer of `written` bytes in the guest's buffers, if there is room.
/// Returns the answer's size.
///
/// # Errors
/// The buffers are shorter than the answer.
pub fn mark(mut buffers: VirtioFsWriter<'_>, written: usize, end: End) -> io::Result<usize> {
    let mark = end.mark();
    let mut rest = buffers
        .split_at(written)
        .map_err(|_| io::ErrorKind::InvalidInput)?;
    if rest.available_bytes() < mark.len() {
        return Ok(written);
    }
    rest.write_all(&mark)?;
    let size = written + mark.len();
    // `struct fuse_out_header` begins with it.
    let length = u32::try_from(size).map_err(io::Error::other)?;
    buffers.write_all(&length.to_le_bytes())?;
    Ok(size)
}
