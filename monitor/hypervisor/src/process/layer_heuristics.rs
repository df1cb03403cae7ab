// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The heuristics of the layer. The layer reads in the shared area which of them are off.

use paravane_abi::process as ph;

/// A guess of the layer at what is faster, see `docs/tuning.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerHeuristic {
    /// It reports the cost of faults, flushes and traps to the kernel (`core.costs`).
    Costs,
    /// A vCPU that halts may look for interrupts of others before it sleeps.
    HaltPolls,
    /// A fault maps pages around it, too.
    FaultAround,
    /// Where the kernel says that many pages will be used, some short runs are mapped, too.
    ShortRuns,
    /// A new space gets a process that has mapped some of its text.
    TextMatch,
    /// Processes are made before they are needed.
    SpareProcesses,
    /// A process keeps what its next space has, too.
    KeptMappings,
    /// A process maps what replaces its pages in its next space.
    ReplacedPages,
    /// A process drops a large space as soon as it is released.
    EarlyDrop,
    /// Processes that were not used for seconds return memory to the host.
    IdleTrim,
    /// A lock is tried for a while before a sleep.
    LockSpins,
    /// Accessed bits that the guest cleared are set again.
    PageAging,
}

impl LayerHeuristic {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Costs,
        Self::HaltPolls,
        Self::FaultAround,
        Self::ShortRuns,
        Self::TextMatch,
        Self::SpareProcesses,
        Self::KeptMappings,
        Self::ReplacedPages,
        Self::EarlyDrop,
        Self::IdleTrim,
        Self::LockSpins,
        Self::PageAging,
    ];

    /// The bit of `phv_shared.flags` that turns it off.
    fn off(self) -> u64 {
        match self {
            Self::Costs => ph::PHV_FLAG_NO_COSTS,
            Self::HaltPolls => ph::PHV_FLAG_NO_POLLS,
            Self::FaultAround => ph::PHV_FLAG_NO_AROUND,
            Self::ShortRuns => ph::PHV_FLAG_NO_SHORT_RUNS,
            Self::TextMatch => ph::PHV_FLAG_NO_TEXT_MATCH,
            Self::SpareProcesses => ph::PHV_FLAG_NO_SPARES,
            Self::KeptMappings => ph::PHV_FLAG_NO_KEEPING,
            Self::ReplacedPages => ph::PHV_FLAG_NO_REPLACING,
            Self::EarlyDrop => ph::PHV_FLAG_NO_EARLY_DROP,
            Self::IdleTrim => ph::PHV_FLAG_NO_TRIM,
            Self::LockSpins => ph::PHV_FLAG_NO_SPINS,
            Self::PageAging => ph::PHV_FLAG_NO_AGING,
        }
    }
}

/// Which heuristics of the layer are on: all, by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct LayerHeuristics {
    off: u64,
}

impl LayerHeuristics {
    /// The same without one.
    #[must_use]
    pub fn without(self, heuristic: LayerHeuristic) -> Self {
        LayerHeuristics {
            off: self.off | heuristic.off(),
        }
    }

    /// The bits of `phv_shared.flags`.
    pub(super) fn flags(self) -> u64 {
        self.off
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_bit_of_its_own() {
        let mut all = LayerHeuristics::default();
        assert_eq!(all.flags(), 0);
        for heuristic in LayerHeuristic::ALL {
            let before = all.flags();
            all = all.without(heuristic);
            assert_eq!((all.flags() ^ before).count_ones(), 1, "{heuristic:?}");
        }
        let others = ph::PHV_FLAG_DEBUGGABLE | ph::PHV_FLAG_ASK;
        assert_eq!(all.flags() & others, 0);
    }
}
