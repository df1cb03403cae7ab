// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The layers that this program carries.

use clap::ValueEnum;

/// A layer that a guest can find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Layer {
    /// No layer: every site keeps its native instruction
    None,
    /// Every call is the native instruction
    Native,
    /// As native, and counts
    NativeStats,
    /// As native, with what KVM offers its guests
    Kvm,
    /// The layer of --hypervisor process
    Process,
    /// As process, and counts
    ProcessStats,
}

impl Layer {
    /// The name on the guest's command line and in the ROM's header.
    pub fn name(self) -> &'static str {
        match self {
            Layer::None => "none",
            Layer::Native => "native",
            Layer::NativeStats => "native-stats",
            Layer::Kvm => "kvm",
            Layer::Process => "process",
            Layer::ProcessStats => "process-stats",
        }
    }

    /// The ROM that this program carries, if this layer has one.
    pub fn rom(self) -> Option<&'static [u8]> {
        match self {
            Layer::None | Layer::Process | Layer::ProcessStats => None,
            Layer::Native => Some(paravane_blobs::NATIVE_ROM),
            Layer::NativeStats => Some(paravane_blobs::NATIVE_STATS_ROM),
            Layer::Kvm => Some(paravane_blobs::KVM_ROM),
        }
    }

    /// The program of a layer of the process hypervisor.
    pub fn program(self) -> Option<&'static [u8]> {
        match self {
            Layer::Process => Some(paravane_blobs::PROCESS_LAYER),
            Layer::ProcessStats => Some(paravane_blobs::PROCESS_STATS_LAYER),
            Layer::None | Layer::Native | Layer::NativeStats | Layer::Kvm => None,
        }
    }
}
