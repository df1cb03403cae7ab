// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The heuristics that a machine can be without.

use crate::spec::Spec;
use clap::ValueEnum;
use paravane_hypervisor::process::{Heuristics, LayerHeuristic, LayerHeuristics};
use serde::{Deserialize, Serialize};

/// A guess at what is faster, see `docs/tuning.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Heuristic {
    /// The thread of a device moves to the CPU of the vCPU that waits for it
    DevicePlace,
    /// The thread of a disk waits itself for a read or a flush that is the only request
    LoneReads,
    /// Large reads of a disk bypass the page cache of the host if it has not got the data
    DirectReads,
    /// The host starts to write a disk's first small write after a flush at once
    EarlyWrites,
    /// The host allocates blocks of a disk image ahead of small writes that follow each other
    AllocateAhead,
    /// The user network acknowledges the guest's data a moment later, with an answer
    AckDelay,
    /// The card reports sent frames a moment later, several at once
    TxDelay,
    /// A card of a virtual bus looks for what comes next before it sleeps
    CardLooks,
    /// On KVM, a vCPU that notifies a card of a virtual bus rarely does the card's work itself
    KickerWork,
    /// The host uses large pages for the guest's memory
    LargePages,
    /// The guest's kernel hears what faults, flushes and traps take
    Costs,
    /// A vCPU that halts looks for an interrupt of another one before it sleeps
    HaltPolls,
    /// vCPUs take turns where there are more busy ones than CPUs
    CpuTurns,
    /// A vCPU that waits for a disk tries other CPUs of the host, and stays on the fastest one
    DiskCpus,
    /// A page fault maps pages around it, too
    FaultAround,
    /// Short runs of pages that the guest's kernel expects to be used are mapped, too
    ShortRuns,
    /// A program gets a process of the host that has mapped some of its text
    TextMatch,
    /// Processes of the host are made before they are needed
    SpareProcesses,
    /// A process of the host keeps the mappings that its next program has, too
    KeptMappings,
    /// A process of the host maps the pages that its next program has in place of its own
    ReplacedPages,
    /// A process of the host drops many mappings as soon as the guest ends a program
    EarlyDrop,
    /// Processes of the host that were not used for seconds return memory
    IdleTrim,
    /// A vCPU tries to take a lock of the hypervisor for a while before it sleeps
    LockSpins,
    /// The guest's kernel sees again which pages are used, a second after it has cleared the marks
    PageAging,
}

impl Heuristic {
    /// The one of the layer, if the layer has it.
    pub fn of_layer(self) -> Option<LayerHeuristic> {
        Some(match self {
            Heuristic::Costs => LayerHeuristic::Costs,
            Heuristic::HaltPolls => LayerHeuristic::HaltPolls,
            Heuristic::FaultAround => LayerHeuristic::FaultAround,
            Heuristic::ShortRuns => LayerHeuristic::ShortRuns,
            Heuristic::TextMatch => LayerHeuristic::TextMatch,
            Heuristic::SpareProcesses => LayerHeuristic::SpareProcesses,
            Heuristic::KeptMappings => LayerHeuristic::KeptMappings,
            Heuristic::ReplacedPages => LayerHeuristic::ReplacedPages,
            Heuristic::EarlyDrop => LayerHeuristic::EarlyDrop,
            Heuristic::IdleTrim => LayerHeuristic::IdleTrim,
            Heuristic::LockSpins => LayerHeuristic::LockSpins,
            Heuristic::PageAging => LayerHeuristic::PageAging,
            _ => return None,
        })
    }

    /// Those of the layer, without these.
    pub fn layer(without: &[Heuristic]) -> LayerHeuristics {
        let off = without.iter().filter_map(|heuristic| heuristic.of_layer());
        off.fold(LayerHeuristics::default(), LayerHeuristics::without)
    }
}

impl Spec {
    /// The heuristics of a machine of processes.
    pub fn heuristics(&self) -> Heuristics {
        Heuristics {
            device_place: self.uses(Heuristic::DevicePlace),
            large_pages: self.uses(Heuristic::LargePages),
            layer: Heuristic::layer(&self.without),
            cpu_turns: self.uses(Heuristic::CpuTurns),
            disk_cpus: self.uses(Heuristic::DiskCpus),
        }
    }
}
