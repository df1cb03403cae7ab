// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a disk guesses.

/// The heuristics that a disk uses, see `docs/tuning.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent")]
pub struct Heuristics {
    /// The device's thread waits for a lone read or flush.
    pub lone_reads: bool,
    /// Some large reads bypass the host's page cache.
    pub direct_reads: bool,
    /// The first small write after a flush goes to the host's disk at once.
    pub early_writes: bool,
    /// Small writes that follow each other find room that the host has allocated before.
    pub allocate_ahead: bool,
}

impl Default for Heuristics {
    fn default() -> Self {
        Heuristics {
            lone_reads: true,
            direct_reads: true,
            early_writes: true,
            allocate_ahead: true,
        }
    }
}
