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

/// Whether the page cache has less than half of these bytes, and nothing that is not on the disk.
/// An older host does not say: then it is taken to have them.
pub fn lacks(file: &File, bytes: &Range<u64>) -> bool {
    let length = bytes.end.saturating_sub(bytes.start);
    let range = [bytes.start, length];
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
    result == 0
        && pages.dirty == 0
        && pages.writeback == 0
        && pages.cached.saturating_mul(2 * PAGE) < length
}
