// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether constant fields of the shared area still have their values.
//!
//! A guest can write all of the area, and one that does destroys its own machine: it may hang in a
//! way that looks like waiting. Nothing depends on these checks, but an error message is better
//! than a hang.

use super::shared::Shared;
use paravane_abi::process as ph;
use paravane_abi::process::area::{self, VcpuState};
use paravane_abi::view::Enumerated;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Ranges of words that do not change after the machine's start.
const CONSTANT: [Range<usize>; 5] = [
    offset_of!(area::Shared, magic)..offset_of!(area::Shared, proc_limit),
    offset_of!(area::Shared, flags)..offset_of!(area::Shared, doorbell),
    offset_of!(area::Shared, cpuid_faulting)..offset_of!(area::Shared, clock),
    offset_of!(area::Shared, regions)..offset_of!(area::Shared, vcpu_cpu),
    offset_of!(area::Shared, device_gpa)..offset_of!(area::Shared, debug_on),
];

/// The values before guest code runs.
#[derive(Debug)]
pub struct Integrity {
    words: Vec<(usize, u32)>,
    vcpus: usize,
}

impl Integrity {
    /// Copies the values.
    pub fn of(shared: &Shared, vcpus: usize) -> Self {
        let words = CONSTANT
            .into_iter()
            .flat_map(|range| range.step_by(size_of::<u32>()))
            .map(|at| (at, shared.word(at).load(Ordering::Relaxed)))
            .collect();
        Integrity { words, vcpus }
    }

    /// Compares the values.
    ///
    /// # Errors
    /// Which value has changed.
    pub fn check(&self, shared: &Shared) -> Result<(), String> {
        for &(at, was) in &self.words {
            let is = shared.word(at).load(Ordering::Relaxed);
            if is != was {
                return Err(format!(
                    "the shared area is damaged: {is:#x} at offset {at:#x}, which only the monitor \
                     writes, instead of {was:#x}"
                ));
            }
        }
        for vcpu in 0..self.vcpus {
            let words = shared.vcpu(vcpu);
            let state = words.state.word().load(Ordering::Relaxed);
            let process = words.proc.load(Ordering::Relaxed);
            if VcpuState::from_raw(state).is_none() || u64::from(process) >= ph::PHV_MAX_PROCS {
                return Err(format!(
                    "the shared area is damaged: vCPU {vcpu} is in state {state}, \
                     in process {process}"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::size;
    use proptest::prelude::*;

    #[test]
    fn what_the_layer_writes_is_no_damage() {
        let shared = Shared::new(0).unwrap();
        let integrity = Integrity::of(&shared, 2);
        for at in [
            offset_of!(area::Shared, doorbell),
            offset_of!(area::Shared, vm_state),
            offset_of!(area::Shared, proc_wanted),
            offset_of!(area::Shared, proc_limit),
            offset_of!(area::Shared, console_head),
            offset_of!(area::Shared, alarm_word),
            offset_of!(area::Shared, alarm_next_ns),
            offset_of!(area::Shared, wall_offset_ns),
            offset_of!(area::Shared, clock) + 8,
            offset_of!(area::Shared, message),
        ] {
            shared.word(at).store(7, Ordering::Relaxed);
        }
        shared
            .vcpu(1)
            .state
            .store(VcpuState::Halted, Ordering::Relaxed);
        assert_eq!(integrity.check(&shared), Ok(()));
    }

    proptest! {
        #[test]
        fn every_constant_is_guarded(
            part in 0..CONSTANT.len(), at: prop::sample::Index, value in 1u32..,
        ) {
            let shared = Shared::new(0).unwrap();
            let integrity = Integrity::of(&shared, 1);
            let range = CONSTANT[part].clone();
            let at = range.start + at.index(range.len() / 4) * 4;
            shared.word(at).store(value, Ordering::Relaxed);
            prop_assert!(integrity.check(&shared).unwrap_err().contains("damaged"));
        }

        #[test]
        fn a_vcpu_is_somewhere_and_does_something(
            vcpu in 0usize..4, state in 3u32.., process in 1024u32..,
        ) {
            let shared = Shared::new(0).unwrap();
            let integrity = Integrity::of(&shared, 4);
            let words = shared.vcpu(vcpu);
            words.state.word().store(state, Ordering::Relaxed);
            prop_assert!(integrity.check(&shared).is_err());
            words.state.store(VcpuState::Running, Ordering::Relaxed);
            prop_assert!(integrity.check(&shared).is_ok());
            words.proc.store(process, Ordering::Relaxed);
            prop_assert!(integrity.check(&shared).is_err());
            prop_assert!(size(ph::PHV_MAX_PROCS) == 1024);
        }
    }
}
