// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Free memory of a host that is a virtual machine itself.
//!
//! Such a host may return free memory to its own host after some seconds (free page reporting), and
//! waits for it when it is used again: a second for half a GiB, seen on one. A machine would be
//! measured with that wait, and the host's side, which uses memory that was just freed, without.

use anyhow::Context;
use memmap2::{Advice, MmapMut};
use std::fs;

/// The most that is used, in bytes: more than the first run in a new machine uses.
const MOST: u64 = 1 << 30;

/// Uses at most this number of bytes of the host's free memory, and frees them. The next program
/// that needs memory then does not wait for the host's own host.
///
/// # Errors
/// The host does not say how much is free, or has no memory.
pub fn prefault(bytes: u64) -> anyhow::Result<()> {
    let info = fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
    let free = free(&info).context("/proc/meminfo has no MemFree")?;
    let bytes = usize::try_from(amount(bytes, free))?;
    let mut memory = MmapMut::map_anon(bytes.max(1)).context("memory before a row")?;
    // Large pages, as those of a machine's memory: the host keeps free memory by its size. Without
    // them this is slower.
    let _ = memory.advise(Advice::HugePage);
    memory.fill(1);
    Ok(())
}

/// How many of these bytes are used: no more than half of those that are free, so that files stay
/// in the page cache.
fn amount(bytes: u64, free: u64) -> u64 {
    bytes.min(MOST).min(free / 2)
}

/// Bytes of the line `MemFree` of /proc/meminfo.
fn free(info: &str) -> Option<u64> {
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("MemFree:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A failed setup fails the test.

    use super::*;

    /// The bytes of a line of /proc/self/status.
    fn own(name: &str) -> u64 {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        free(&format!("MemFree{}", line.unwrap())).unwrap()
    }

    #[test]
    fn memory_is_used_and_freed() {
        let bytes = 256 << 20;
        prefault(bytes).unwrap();
        // Other tests of this program may run, but take less.
        assert!(own("VmHWM") >= bytes, "it was not used");
        assert!(own("VmRSS") < bytes, "it was not freed");
    }

    #[test]
    fn files_stay_in_the_page_cache() {
        assert_eq!(amount(3 << 30, 8 << 30), MOST);
        assert_eq!(amount(3 << 30, 1 << 30), 512 << 20);
        assert_eq!(amount(5, 100), 5);
    }

    #[test]
    fn what_is_free_is_read() {
        assert_eq!(free("MemTotal: 9 kB\nMemFree:  12 kB\n"), Some(12 << 10));
        for bad in ["", "MemFree: much", "MemFree: 12", "MemFree: -1 kB"] {
            assert_eq!(free(bad), None, "{bad}");
        }
    }
}
