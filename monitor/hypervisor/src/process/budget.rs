// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine may take of the host's memory besides its RAM.
//!
//! Three things grow with what a guest maps: the host's page tables, the host's structure for each
//! mapping, and the layer's shadow. The layer bounds all three for a guest that keeps to the rules.
//! Hostile code can bypass the layer, so each also has a bound that it cannot bypass: the shadow
//! lies in memory of a fixed size, which the host kernel enforces; the monitor watches the other
//! two ([`super::watch`]).

use paravane_abi::process as ph;

/// Host memory of one mapping in bytes: its structure (192 on Linux 6.18) and its share of the tree
/// that finds it.
pub const MAPPING: u64 = 256;
/// Kernel memory of a thread in KiB.
const THREAD: u64 = 32;
/// Memory of an empty process in KiB.
const PROCESS: u64 = 512;
/// Without `--spaces`, a machine's budget is its RAM plus this, in KiB.
const BEYOND_RAM: u64 = 512 << 10;
const FEWEST: u64 = 64;

/// All values in KiB.
///
/// A guest needs 1/512 of its RAM in each process for the direct map, about as much again for the
/// rest of its kernel, and for user programs as much as the guest's own page tables, which are in
/// its RAM.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// The limit of page tables and private memory of one process.
    pub process: u64,
    base: u64,
    each: u64,
    /// The part of `base` that the layer uses for mappings.
    mappings: u64,
    /// The shadow pool.
    records: u64,
    ram: u64,
}

impl Budget {
    /// The budget of a machine with `ram` bytes.
    pub fn new(ram: u64, vcpus: u64) -> Self {
        let kib = ram >> 10;
        let mappings = (16 << 10) + kib / 32;
        Budget {
            process: (64 << 10) + kib / 32,
            // The layer counts mappings less often than it creates them, so it may exceed its limit
            // for a while: the budget has twice that limit.
            base: (64 << 10) + kib / 8 + 2 * mappings,
            each: PROCESS
                + kib / 256
                + vcpus * (ph::PHV_STACK_SIZE >> 10)
                + (ph::PHV_ARENA_SIZE + ph::PHV_MAPS_SURE * MAPPING >> 10),
            mappings,
            records: (32 << 10) + kib / 16,
            ram: kib,
        }
    }

    /// The budget where mappings cannot be counted: each process counts as if it had the maximum,
    /// `most`.
    pub fn uncounted(self, most: u64) -> Self {
        Budget {
            each: self.each + (most * MAPPING >> 10),
            ..self
        }
    }

    /// The largest number of processes unless the user asks for more.
    pub fn processes(&self) -> u64 {
        (self.ram + BEYOND_RAM)
            .saturating_sub(self.base)
            .div_euclid(self.each)
            .max(FEWEST)
    }

    /// The limit for all processes together: page tables, private memory and mappings.
    pub fn machine(&self, processes: usize) -> u64 {
        self.base + self.each * processes as u64
    }

    /// What one more process can take at most, including kernel memory of its threads.
    pub fn each(&self, vcpus: u64) -> u64 {
        self.each + vcpus * THREAD
    }

    /// The layer's limit for mappings in all processes together.
    pub fn mappings(&self) -> u64 {
        (self.mappings << 10) / MAPPING
    }

    /// Chunks of the shadow pool.
    pub fn pool_chunks(&self) -> u64 {
        // The layer searches for a free chunk in groups of 64.
        ((self.records << 10) / ph::PHV_POOL_CHUNK).clamp(64, ph::PHV_POOL_CHUNKS) / 64 * 64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_follow_the_machine() {
        let budget = Budget::new(256 << 20, 1);
        assert_eq!(budget.process >> 10, 72);
        assert_eq!(budget.machine(0) >> 10, 144);
        assert_eq!(
            budget.machine(8) - budget.machine(0),
            8 * (512 + 1024 + 128 + 2048)
        );
        assert_eq!(budget.mappings(), 24 * 4096);
        assert_eq!(budget.pool_chunks(), 192);
        assert!(Budget::new(64 << 30, 1).process > (64 << 30 >> 10) / 512);
        assert_eq!(Budget::new(1 << 45, 1).pool_chunks(), ph::PHV_POOL_CHUNKS);
        assert!(budget.machine(budget.processes().try_into().unwrap()) <= (256 << 10) + BEYOND_RAM);
        assert_eq!(budget.uncounted(65530).each - budget.each, 65530 / 4);
    }
}
