// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The seccomp filter of an address-space process, made from `policies/address-space.json`.
//!
//! In front of the policy is a prologue made by hand: a call that does not come from the layer's one host-call
//! instruction is a system call of the guest's, and is trapped, so that the layer can hand it to the guest's kernel.
//! Each admitted call is then a program of its own, behind a chain of comparisons in the policy's order: a filter runs
//! with every call, and the hand-over of a vCPU is what it must not slow down.

use anyhow::{Context, bail};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The policy.
pub const ADDRESS_SPACE: &str = include_str!("../../policies/address-space.json");

/// What the policy's text cannot know.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// Address behind the layer's host-call instruction.
    pub host_call: u64,
    /// Descriptors of guest memory.
    pub ram_first: u64,
    pub ram_last: u64,
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    name: String,
    number: u32,
    reason: String,
    rules: Vec<Vec<Condition>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Condition {
    arg: u8,
    bits: u8,
    is: Option<String>,
    at_least: Option<String>,
    at_most: Option<String>,
}

/// Offsets in `struct seccomp_data`.
const DATA_NUMBER: u32 = 0;
const DATA_ARCH: u32 = 4;
const DATA_POINTER_LOW: u32 = 8;
const DATA_POINTER_HIGH: u32 = 12;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
/// Instructions: load a word, jump if equal, jump, return.
const LOAD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const JUMP: u16 = 0x05;
const RETURN: u16 = 0x06;
const RET_KILL_PROCESS: u32 = 0x8000_0000;
const RET_TRAP: u32 = 0x0003_0000;

/// Compiles a policy.
pub fn compile(text: &str, parameters: &Parameters) -> anyhow::Result<BpfProgram> {
    let policy: Policy = serde_json::from_str(text).context("seccomp policy")?;
    let mut programs = Vec::new();
    for call in &policy.calls {
        let program = call
            .compile(parameters)
            .with_context(|| format!("seccomp policy, call {}", call.name))?;
        programs.push((call.number, program));
    }
    let mut result = prologue(parameters.host_call);
    // The chain: two instructions for each call, and the one at its end; then the programs in the same order.
    let mut behind_chain = 0;
    for (index, (number, program)) in programs.iter().enumerate() {
        let rest_of_chain = (programs.len() - index - 1) * 2 + 1;
        result.push(instruction(JUMP_EQUAL, 0, 1, *number));
        result.push(instruction(JUMP, 0, 0, u32::try_from(rest_of_chain + behind_chain)?));
        behind_chain += program.len();
    }
    result.push(instruction(RETURN, 0, 0, RET_KILL_PROCESS));
    result.extend(programs.into_iter().flat_map(|(_, program)| program));
    Ok(result)
}

/// Traps what is not the layer's call, and leaves the call's number in the accumulator.
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

fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

impl Call {
    /// A program that decides about this call alone.
    fn compile(&self, parameters: &Parameters) -> anyhow::Result<BpfProgram> {
        if self.reason.is_empty() {
            bail!("no reason is given");
        }
        let mut rules = Vec::new();
        for conditions in &self.rules {
            // No condition: whatever the arguments are. seccompiler wants that said by no rule at all.
            if conditions.is_empty() {
                if self.rules.len() != 1 {
                    bail!("a rule without conditions makes the others void");
                }
                break;
            }
            let conditions: anyhow::Result<Vec<_>> = conditions.iter().map(|c| c.compile(parameters)).collect();
            rules.push(SeccompRule::new(conditions?)?);
        }
        if self.rules.is_empty() {
            bail!("no rule is given");
        }
        let calls = BTreeMap::from([(i64::from(self.number), rules)]);
        let (no, yes) = (SeccompAction::KillProcess, SeccompAction::Allow);
        Ok(SeccompFilter::new(calls, no, yes, TargetArch::x86_64)?.try_into()?)
    }
}

impl Condition {
    fn compile(&self, parameters: &Parameters) -> anyhow::Result<SeccompCondition> {
        let length = match self.bits {
            32 => SeccompCmpArgLen::Dword,
            64 => SeccompCmpArgLen::Qword,
            other => bail!("{other} bits"),
        };
        let (operator, text) = match (&self.is, &self.at_least, &self.at_most) {
            (Some(text), None, None) => (SeccompCmpOp::Eq, text),
            (None, Some(text), None) => (SeccompCmpOp::Ge, text),
            (None, None, Some(text)) => (SeccompCmpOp::Le, text),
            _ => bail!("a condition has one of is, at_least, at_most"),
        };
        Ok(SeccompCondition::new(
            self.arg,
            length,
            operator,
            value(text, parameters)?,
        )?)
    }
}

/// The value of names with `|` between them.
fn value(text: &str, parameters: &Parameters) -> anyhow::Result<u64> {
    let mut sum = 0;
    for name in text.split('|') {
        sum |= match name {
            "RAM_FIRST" => parameters.ram_first,
            "RAM_LAST" => parameters.ram_last,
            _ => constant(name).with_context(|| format!("`{name}` is not known"))?,
        };
    }
    Ok(sum)
}

fn constant(name: &str) -> Option<u64> {
    let value = match name {
        "FUTEX_WAIT" => libc::FUTEX_WAIT,
        "FUTEX_WAKE" => libc::FUTEX_WAKE,
        "FUTEX_WAIT_BITSET" => libc::FUTEX_WAIT_BITSET,
        "MAP_SHARED" => libc::MAP_SHARED,
        "MAP_FIXED" => libc::MAP_FIXED,
        "MAP_POPULATE" => libc::MAP_POPULATE,
        "SIGURG" => libc::SIGURG,
        "CLOCK_THREAD_CPUTIME_ID" => libc::CLOCK_THREAD_CPUTIME_ID,
        "CLOCK_MONOTONIC" => libc::CLOCK_MONOTONIC,
        "MADV_POPULATE_READ" => libc::MADV_POPULATE_READ,
        "MADV_POPULATE_WRITE" => libc::MADV_POPULATE_WRITE,
        _ => return None,
    };
    u64::try_from(value).ok()
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "policy_calls_tests.rs"]
mod calls_tests;
