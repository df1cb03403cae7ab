// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Free memory of a host that is a virtual machine itself.
//!
//! Such a host may return free memory to its own host after some seconds (free page reporting), and
//! waits for it when it is used again: a second for half a GiB, seen on one. A new machine would be
//! measured with that wait, and the host's side, whose files have their memory, without.

use anyhow::Context;
use memmap2::{Advice, MmapMut};
use std::fs;

/// The most that is taken, in bytes: more than the first run in a new machine uses.
const MOST: u64 = 1 << 30;

/// Takes so many bytes of the host's memory and gives them back, so that whoever needs memory next
/// does not wait for the host's own host. It takes no more than half of what is free, so that files
/// stay in the page cache. Returns how many bytes it took.
///
/// # Errors
/// The host does not say how much is free, or has no memory.
pub fn have(bytes: u64) -> anyhow::Result<usize> {
    let info = fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
    let free = free(&info).context("/proc/meminfo has no MemFree")?;
    let bytes = usize::try_from(bytes.min(MOST).min(free / 2))?;
    let mut memory = MmapMut::map_anon(bytes.max(1)).context("memory before a row")?;
    // Large pages, as those of a machine's memory: the host keeps free memory by its size. Without
    // them this is slower.
    let _ = memory.advise(Advice::HugePage);
    memory.fill(1);
    Ok(bytes)
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
    fn memory_is_taken_and_given_back() {
        let before = own("VmRSS");
        let taken = u64::try_from(have(64 << 20).unwrap()).unwrap();
        assert!(taken <= 64 << 20);
        assert!(own("VmHWM") >= before.min(own("VmRSS")) + taken / 2);
        assert!(have(u64::MAX).unwrap() <= 1 << 30);
    }

    #[test]
    fn what_is_free_is_read() {
        assert_eq!(free("MemTotal: 9 kB\nMemFree:  12 kB\n"), Some(12 << 10));
        for bad in ["", "MemFree: much", "MemFree: 12", "MemFree: -1 kB"] {
            assert_eq!(free(bad), None, "{bad}");
        }
    }
}
