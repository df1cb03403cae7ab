// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looks at the host's page cache of a file.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// `cachestat(2)`, since Linux 6.5.
const SYS_CACHESTAT: libc::c_long = 451;
/// Bytes of a page.
const PAGE: u64 = 4096;

/// What the page cache has of a range (`struct cachestat`), in pages.
#[repr(C)]
#[derive(Debug, Default)]
struct Pages {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// What the page cache has of these bytes; `None` if the host is too old to say.
fn pages(file: &File, bytes: &Range<u64>) -> Option<Pages> {
    let range = [bytes.start, bytes.end.saturating_sub(bytes.start)];
    let mut pages = Pages::default();
    // SAFETY: the call reads two numbers of 64 bits (`struct cachestat_range`), and writes the
    // structure, both of which are valid.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            range.as_ptr(),
            &raw mut pages,
            0,
        )
    };
    (result == 0).then_some(pages)
}

/// Whether the page cache has less than half of these bytes, and nothing that is not on the disk.
/// An older host does not say: then it is taken to have them.
pub fn lacks(file: &File, bytes: &Range<u64>) -> bool {
    let length = bytes.end.saturating_sub(bytes.start);
    pages(file, bytes).is_some_and(|pages| {
        pages.dirty == 0 && pages.writeback == 0 && pages.cached.saturating_mul(2 * PAGE) < length
    })
}

/// Whether the page cache has dirty pages of these bytes, which the host has not begun to write.
#[cfg(test)]
pub fn waits_for_a_flush(file: &File, bytes: &Range<u64>) -> bool {
    pages(file, bytes).is_some_and(|pages| pages.dirty > 0)
}

/// Has the host begin to write these bytes to the disk. It does not wait for the disk, and takes no
/// error of the file that a flush would report.
pub fn start_writeback(file: &File, bytes: &Range<u64>) {
    let length = bytes.end.saturating_sub(bytes.start);
    let (Ok(offset), Ok(length)) = (i64::try_from(bytes.start), i64::try_from(length)) else {
        return;
    };
    // SAFETY: the file is open, and the call uses no memory. Data whose write fails here is
    // written, or fails, by the next flush.
    unsafe {
        libc::sync_file_range(
            file.as_raw_fd(),
            offset,
            length,
            libc::SYNC_FILE_RANGE_WRITE,
        )
    };
}
