// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine may take of the host's memory besides its RAM.
//!
//! Three things grow with what a guest maps: the host's page tables, the host's own structure for each mapping, and the
//! layer's records of what it mapped. The layer keeps all three in bounds for a guest that keeps to the rules. Hostile code passes
//! the layer by, so each has a bound that it cannot pass: records lie in memory of a fixed size, which the host's
//! kernel enforces; the other two are watched from outside ([`super::watch`]).

use paravane_abi::process as ph;

/// Host memory of one mapping, bytes: its structure (192 on Linux 6.18) and its share of the tree that finds it.
pub const MAPPING: u64 = 256;
/// Kernel memory of a thread, KiB.
const THREAD: u64 = 32;
/// KiB of a process that has nothing in it.
const PROCESS: u64 = 512;
/// Unless more processes are asked for, a machine's budget is its RAM and this, KiB.
const BEYOND_RAM: u64 = 512 << 10;
const FEWEST: u64 = 64;

/// KiB.
///
/// What a guest needs: 1/512 of its RAM for the direct map in each process, about as much again for the rest of its
/// kernel, and for user programs as much as the guest's own page tables, which are in its RAM.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Page tables and private memory of one process.
    pub process: u64,
    base: u64,
    each: u64,
    /// Of this, what the layer lets its mappings take.
    mappings: u64,
    /// The layer's records, beyond what each process has for itself.
    records: u64,
    ram: u64,
}

impl Budget {
    /// For a machine with `ram` bytes.
    pub fn new(ram: u64, vcpus: u64) -> Self {
        let kib = ram >> 10;
        let mappings = (16 << 10) + kib / 32;
        Budget {
            process: (64 << 10) + kib / 32,
            // The layer counts less often than it maps: twice what it aims at.
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

    /// The same where the host does not let mappings be counted: each process is taken to have all it may, `most`.
    pub fn uncounted(self, most: u64) -> Self {
        Budget {
            each: self.each + (most * MAPPING >> 10),
            ..self
        }
    }

    /// Processes that a machine should have at most, unless somebody asks for more.
    pub fn processes(&self) -> u64 {
        (self.ram + BEYOND_RAM)
            .saturating_sub(self.base)
            .div_euclid(self.each)
            .max(FEWEST)
    }

    /// For all processes together: page tables, private memory and mappings.
    pub fn machine(&self, processes: usize) -> u64 {
        self.base + self.each * processes as u64
    }

    /// What one more process can take at most, with its threads' kernel memory.
    pub fn each(&self, vcpus: u64) -> u64 {
        self.each + vcpus * THREAD
    }

    /// Mappings that the layer is to keep to, in all processes together.
    pub fn mappings(&self) -> u64 {
        (self.mappings << 10) / MAPPING
    }

    /// Pieces of the pool for records.
    pub fn pool_chunks(&self) -> u64 {
        // The layer looks for a free one by 64.
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
