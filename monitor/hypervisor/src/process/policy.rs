// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The seccomp filter of an address-space process, compiled from
//! `monitor/policies/address-space.json`.
//!
//! A prologue in this file precedes the policy. A call that does not come from the layer's
//! host-call instruction is a system call of the guest: it is trapped, so that the layer can pass
//! it to the guest kernel. Each admitted call is a program of its own after a chain of comparisons
//! in the policy's order: the filter runs on every call and must not slow down the hand-over of a
//! vCPU.

use crate::process::signal_scope::SignalScope;
use anyhow::Context;
use paravane_confine::policy_language::AUDIT_ARCH_X86_64;
use paravane_confine::policy_language::{
    self, Call, DATA_ARCH, DATA_NUMBER, JUMP_EQUAL, LOAD, RETURN, instruction,
};
use seccompiler::{BpfProgram, SeccompAction};
use serde::Deserialize;

/// The policy.
pub const ADDRESS_SPACE: &str = include_str!("../../../policies/address-space.json");

/// Values that the policy names and that are known only at run time.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// The address after the layer's host-call instruction.
    pub host_call: u64,
    /// The first and the last descriptor of guest memory and register pages.
    pub ram_first: u64,
    pub ram_last: u64,
    /// What keeps signals inside the machine.
    pub signal_scope: SignalScope,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Policy {
    #[serde(rename = "license")]
    _license: String,
    #[serde(rename = "about")]
    _about: String,
    calls: Vec<Call>,
}

/// Offsets in `struct seccomp_data`.
const DATA_POINTER_LOW: u32 = 8;
const DATA_POINTER_HIGH: u32 = 12;
const RET_TRAP: u32 = 0x0003_0000;

/// Compiles a policy.
///
/// # Errors
/// The policy is invalid.
pub fn compile(text: &str, parameters: &Parameters) -> anyhow::Result<BpfProgram> {
    let policy: Policy = serde_json::from_str(text).context("seccomp policy")?;
    let names = |name: &str| match name {
        "RAM_FIRST" => Some(parameters.ram_first),
        "RAM_LAST" => Some(parameters.ram_last),
        // In a PID namespace the parent is process 1. Elsewhere its id is not known yet.
        "FIRST_PROCESS" => Some(if parameters.signal_scope == SignalScope::PidNamespace {
            2
        } else {
            1
        }),
        "SIGNALS_STAY_INSIDE" => Some((parameters.signal_scope != SignalScope::Monitor).into()),
        _ => None,
    };
    let prologue = prologue(parameters.host_call);
    policy_language::assemble(prologue, &policy.calls, &SeccompAction::KillProcess, &names)
}

/// Traps calls that are not the layer's, and leaves the call's number in the accumulator.
fn prologue(host_call: u64) -> BpfProgram {
    let [b0, b1, b2, b3, b4, b5, b6, b7] = host_call.to_le_bytes();
    let (low, high) = (
        u32::from_le_bytes([b0, b1, b2, b3]),
        u32::from_le_bytes([b4, b5, b6, b7]),
    );
    vec![
        instruction(LOAD, 0, 0, DATA_POINTER_LOW),
        instruction(JUMP_EQUAL, 0, 4, low),
        instruction(LOAD, 0, 0, DATA_POINTER_HIGH),
        instruction(JUMP_EQUAL, 0, 2, high),
        instruction(LOAD, 0, 0, DATA_ARCH),
        instruction(JUMP_EQUAL, 1, 0, AUDIT_ARCH_X86_64),
        instruction(RETURN, 0, 0, RET_TRAP),
        instruction(LOAD, 0, 0, DATA_NUMBER),
    ]
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;

#[cfg(test)]
#[expect(unsafe_code, reason = "calls that only a filter stops")]
#[path = "policy_calls_tests.rs"]
mod calls_tests;
