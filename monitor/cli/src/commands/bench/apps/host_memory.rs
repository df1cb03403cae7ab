// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Free memory of a host that is a virtual machine itself.
//!
//! Such a host may return free memory to its own host after some seconds (free page reporting), and
//! waits for it when it is used again: a second for half a GiB, seen on one. A new machine would be
//! measured with that wait, and the host's side, whose files have their memory, without.

use anyhow::Context;
use memmap2::{Advice, MmapMut};

/// At most so much is taken, in bytes: more than the first run in a new machine uses.
const MOST: u64 = 1 << 30;

/// Takes so many bytes of the host's memory and gives them back, so that who needs memory next does
/// not wait for the host's own host.
pub fn have(bytes: u64) -> anyhow::Result<()> {
    let bytes = usize::try_from(bytes.min(MOST))?;
    let mut memory = MmapMut::map_anon(bytes).context("memory before a row")?;
    // Large pages, as those of a machine's memory: the host keeps free memory by its size. Without
    // them this is slower.
    let _ = memory.advise(Advice::HugePage);
    memory.fill(1);
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn memory_is_taken_and_given_back() {
        super::have(4 << 20).unwrap();
    }
}
