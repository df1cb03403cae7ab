// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shared mappings of files whose contents the guest does not cache.
//!
//! A guest's Linux refuses them (ENODEV) unless the device allows them when the file system starts
//! (`FUSE_DIRECT_IO_ALLOW_MMAP`, Linux 6.6). SQLite needs them for its write-ahead log. The crate
//! does not know the flag, so it is put into the crate's answer.

use fuse_backend_rs::transport::VirtioFsWriter;
use std::io::{self, Write};

/// The place in bytes of the second word of flags in `struct fuse_init_in`.
pub const OFFERED: u64 = 16;
/// Its place in bytes in an answer with `struct fuse_init_out`.
const ALLOWED: usize = 16 + 32;
/// The flag in it, 36 of all.
const MAPPINGS: u32 = 1 << 4;

/// Allows them in an answer of `written` bytes to a guest that has offered these flags. The word
/// then has no other flag: the crate sets those that it knows even where the device does not have
/// what they stand for.
///
/// # Errors
/// The buffers are shorter than the answer.
pub fn allow(mut buffers: VirtioFsWriter<'_>, written: usize, offered: u32) -> io::Result<()> {
    // An error has no flags.
    if written < ALLOWED + size_of::<u32>() {
        return Ok(());
    }
    let mut flags = buffers
        .split_at(ALLOWED)
        .map_err(|_| io::ErrorKind::InvalidInput)?;
    flags.write_all(&(offered & MAPPINGS).to_le_bytes())
}
