// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads and writes by plain host calls.

use super::file::Image;
use super::ring::Operation;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

/// Bytes that the page cache has as a whole.
const PAGE: usize = 4096;

/// Does a request, or what is left of it after the first `from` bytes. Waits for the host.
///
/// # Errors
/// The host's, or the file is shorter.
pub fn whole(
    image: &Image,
    operation: Operation,
    offset: u64,
    buffer: &mut [u8],
    from: usize,
) -> io::Result<()> {
    let rest = buffer.get_mut(from..).unwrap_or_default();
    let offset = offset + from as u64;
    match operation {
        Operation::Read => image.file.read_exact_at(rest, offset),
        Operation::Write => image.file.write_all_at(rest, offset),
        Operation::Flush => image.file.sync_data(),
    }
}

/// Does what needs no wait for the disk. Returns how many bytes from the start are done. An error
/// is left to the rest of the request: it comes again.
pub fn at_once(image: &Image, operation: Operation, offset: u64, buffer: &mut [u8]) -> usize {
    match operation {
        Operation::Read if !image.always_waits.load(Ordering::Relaxed) => {
            let mut parts = [IoSliceMut::new(buffer)];
            match preadv2(&image.file, &mut parts, offset, ReadWriteFlags::NOWAIT) {
                Ok(bytes) => bytes,
                Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
                    image.always_waits.store(true, Ordering::Relaxed);
                    0
                }
                Err(_) => 0,
            }
        }
        // The page cache takes whole pages without a look at the disk. It makes their writer wait
        // only if it has too many of them.
        Operation::Write if is_pages(offset, buffer.len()) => {
            image.file.write_at(buffer, offset).unwrap_or(0)
        }
        _ => 0,
    }
}

fn is_pages(offset: u64, len: usize) -> bool {
    len.is_multiple_of(PAGE) && offset.is_multiple_of(PAGE as u64)
}
