// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The request to write everything to the host's disk (`sync` and syncfs() in the guest), which the
//! crate's server does not know.

use fuse_backend_rs::transport::VirtioFsWriter;
use rustix::fs::{Mode, OFlags};
use std::io::{self, Write};
use std::os::fd::AsFd;

/// Has the host write what the folder's file system holds back, and answers the request with this
/// number. Takes two host calls, and as long as the disk does. Returns the bytes of the answer.
///
/// # Errors
/// The buffers are shorter than the answer.
pub fn everything(
    folder: impl AsFd,
    mut buffers: VirtioFsWriter<'_>,
    unique: u64,
) -> io::Result<usize> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let done = rustix::fs::openat(folder, c".", flags, Mode::empty()).and_then(rustix::fs::syncfs);
    let error = done.map_or_else(|error| -error.raw_os_error(), |()| 0);
    // `struct fuse_out_header`.
    let mut answer = Vec::with_capacity(16);
    answer.extend(16_u32.to_le_bytes());
    answer.extend(error.to_le_bytes());
    answer.extend(unique.to_le_bytes());
    buffers.write_all(&answer)?;
    Ok(answer.len())
}
