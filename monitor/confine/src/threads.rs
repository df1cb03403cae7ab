// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policies of the monitor's threads, read from `policies/monitor.json`.

use super::kept;
use super::language::{
    AUDIT_ARCH_X86_64, Call, DATA_ARCH, DATA_NUMBER, JUMP_EQUAL, LOAD, RETURN, assemble,
    instruction,
};
use anyhow::{Context, bail};
use rustix::thread::CapabilitySet;
use seccompiler::{BpfProgram, SeccompAction};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::OnceLock;

pub const MONITOR: &str = include_str!("../../policies/monitor.json");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policies {
    #[serde(rename = "license")]
    _license: String,
    #[serde(rename = "about")]
    _about: String,
    pub sets: Vec<Group>,
    pub threads: Vec<Group>,
}

/// Calls of one thread, or a set of calls that several threads need.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    pub name: String,
    #[serde(rename = "about")]
    pub _about: String,
    /// For a thread: the sets that it includes.
    #[serde(default)]
    pub sets: Vec<String>,
    /// For a thread: the capabilities that it keeps, if it has them. Without a list it keeps all.
    pub capabilities: Option<Vec<String>>,
    pub calls: Vec<Call>,
}

/// A compiled policy.
#[derive(Debug)]
pub struct Policy {
    pub filter: BpfProgram,
    /// The capabilities that the thread keeps; `None` for all.
    pub capabilities: Option<CapabilitySet>,
}

/// A call that is not admitted ends the machine: the thread gets a signal, whose handler reports
/// the call.
const OTHERWISE: SeccompAction = SeccompAction::Trap;

/// The name of an existing policy.
pub fn name(thread: &str) -> anyhow::Result<&'static str> {
    match all()?.get_key_value(thread) {
        Some((name, _)) => Ok(name),
        None => bail!("policies/monitor.json has no thread `{thread}`"),
    }
}

/// The policy of a thread.
pub fn policy(thread: &str) -> anyhow::Result<&'static Policy> {
    all()?.get(thread).context("no such policy")
}

/// All policies, compiled once.
fn all() -> anyhow::Result<&'static BTreeMap<String, Policy>> {
    static ALL: OnceLock<BTreeMap<String, Policy>> = OnceLock::new();
    if let Some(all) = ALL.get() {
        return Ok(all);
    }
    let made = compile(MONITOR)?;
    Ok(ALL.get_or_init(|| made))
}

/// Compiles the policies of all threads of this process.
pub fn compile(text: &str) -> anyhow::Result<BTreeMap<String, Policy>> {
    let policies: Policies = serde_json::from_str(text).context("policies/monitor.json")?;
    // A filter compares with numbers that only this process knows: its own id, and the reserved
    // descriptors by which it may end processes.
    let (first, last) = kept::numbers().context("descriptors of processes")?;
    let names = |name: &str| match name {
        "SELF" => Some(std::process::id().into()),
        "KEPT_FIRST" => u64::try_from(first).ok(),
        "KEPT_LAST" => u64::try_from(last).ok(),
        "BEFORE_KEPT" => u64::try_from(first - 1).ok(),
        "AFTER_KEPT" => u64::try_from(last + 1).ok(),
        _ => None,
    };
    let mut all = BTreeMap::new();
    for thread in &policies.threads {
        let complain = || format!("policies/monitor.json, thread {}", thread.name);
        let calls = calls(&policies, thread).with_context(complain)?;
        let filter = assemble(prologue(), &calls, &OTHERWISE, &names).with_context(complain)?;
        let capabilities = thread
            .capabilities
            .as_ref()
            .map(|names| capabilities(names));
        let capabilities = capabilities.transpose().with_context(complain)?;
        all.insert(
            thread.name.clone(),
            Policy {
                filter,
                capabilities,
            },
        );
    }
    Ok(all)
}

/// Capabilities by their names, without the `CAP_` of the kernel's headers.
fn capabilities(names: &[String]) -> anyhow::Result<CapabilitySet> {
    let known = |name: &String| {
        CapabilitySet::from_name(name).with_context(|| format!("`{name}` is no capability"))
    };
    names.iter().map(known).collect()
}

/// The calls of a thread: those of its sets in their order, then its own. The rules of a call that
/// is listed twice are merged.
pub fn calls(policies: &Policies, thread: &Group) -> anyhow::Result<Vec<Call>> {
    let mut all: Vec<Call> = Vec::new();
    let mut add = |call: &Call| match all.iter_mut().find(|known| known.number == call.number) {
        None => all.push(call.clone()),
        Some(known) => {
            known.rules.extend(call.rules.iter().cloned());
            if known.rules.iter().any(Vec::is_empty) {
                known.rules = vec![Vec::new()];
            }
            known.otherwise = known.otherwise.take().or_else(|| call.otherwise.clone());
        }
    };
    for name in &thread.sets {
        let set = policies.sets.iter().find(|set| set.name == *name);
        let set = set.with_context(|| format!("no set `{name}`"))?;
        set.calls.iter().for_each(&mut add);
    }
    thread.calls.iter().for_each(&mut add);
    Ok(all)
}

/// Refuses calls of other architectures, and leaves the call's number in the accumulator.
fn prologue() -> BpfProgram {
    vec![
        instruction(LOAD, 0, 0, DATA_ARCH),
        instruction(JUMP_EQUAL, 1, 0, AUDIT_ARCH_X86_64),
        instruction(RETURN, 0, 0, OTHERWISE.into()),
        instruction(LOAD, 0, 0, DATA_NUMBER),
    ]
}
