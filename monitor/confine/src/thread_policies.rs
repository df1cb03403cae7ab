// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policies of the monitor's threads, read from `monitor/policies/monitor.json`.

use super::policy_language::{
    AUDIT_ARCH_X86_64, Call, DATA_ARCH, DATA_NUMBER, JUMP_EQUAL, LOAD, RETURN, assemble,
    instruction,
};
use super::process_handles;
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
    pub variants: Vec<Variant>,
}

/// Threads that another back end has too: those that use the set `of`. Each gets a further policy,
/// with the variant's name and a hyphen before its own name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    pub name: String,
    #[serde(rename = "about")]
    _about: String,
    pub of: String,
    /// Sets, and what replaces them.
    pub instead: BTreeMap<String, Vec<String>>,
}

/// A set of calls for several threads, or the calls of one thread.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    pub name: String,
    #[serde(rename = "about")]
    pub _about: String,
    /// For a thread: the sets that it uses.
    #[serde(default)]
    pub sets: Vec<String>,
    /// The capabilities that a thread with these calls keeps if it has them.
    #[serde(default)]
    pub capabilities: Vec<String>,
    pub calls: Vec<Call>,
}

/// What a thread enters.
#[derive(Debug)]
pub struct Policy {
    pub filter: BpfProgram,
    /// The capabilities that it keeps.
    pub capabilities: CapabilitySet,
}

/// Ends the machine: the thread gets a signal, whose handler reports the call.
const OTHERWISE: SeccompAction = SeccompAction::Trap;

/// The policy's name, if the policy exists.
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
    // A filter compares numbers. The policies name this process and the descriptors with which it
    // may end processes; the numbers are known only now.
    let (first, last) = process_handles::numbers().context("descriptors of processes")?;
    let names = |name: &str| match name {
        "SELF" => Some(std::process::id().into()),
        "KEPT_FIRST" => u64::try_from(first).ok(),
        "KEPT_LAST" => u64::try_from(last).ok(),
        "BEFORE_KEPT" => u64::try_from(first - 1).ok(),
        "AFTER_KEPT" => u64::try_from(last + 1).ok(),
        _ => None,
    };
    let mut all = BTreeMap::new();
    for thread in policies.threads.iter().chain(&variants(&policies)) {
        let complain = || format!("policies/monitor.json, thread {}", thread.name);
        let calls = calls(&policies, thread).with_context(complain)?;
        let filter = assemble(prologue(), &calls, &OTHERWISE, &names).with_context(complain)?;
        let capabilities = capabilities(&policies, thread).with_context(complain)?;
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

/// The threads of the variants.
pub fn variants(policies: &Policies) -> Vec<Group> {
    let mut all = Vec::new();
    for variant in &policies.variants {
        let of = |set: &String| variant.instead.get(set);
        for thread in &policies.threads {
            if !thread.sets.contains(&variant.of) {
                continue;
            }
            let mut copy = thread.clone();
            copy.name = format!("{}-{}", variant.name, thread.name);
            copy.sets = Vec::new();
            for set in &thread.sets {
                match of(set) {
                    Some(others) => copy.sets.extend(others.iter().cloned()),
                    None => copy.sets.push(set.clone()),
                }
            }
            all.push(copy);
        }
    }
    all
}

/// A thread's capabilities: those of its sets, and its own. Their names lack the prefix `CAP_` of
/// the kernel's headers.
fn capabilities(policies: &Policies, thread: &Group) -> anyhow::Result<CapabilitySet> {
    let known = |name: &String| {
        CapabilitySet::from_name(name).with_context(|| format!("`{name}` is no capability"))
    };
    let of_sets = policies.sets.iter();
    let of_sets = of_sets.filter(|set| thread.sets.contains(&set.name));
    of_sets
        .chain([thread])
        .flat_map(|group| &group.capabilities)
        .map(known)
        .collect()
}

/// A thread's calls: those of its sets in their order, then its own. Entries of the same call are
/// merged.
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

/// Traps calls of another architecture, and leaves the call's number in the accumulator.
fn prologue() -> BpfProgram {
    vec![
        instruction(LOAD, 0, 0, DATA_ARCH),
        instruction(JUMP_EQUAL, 1, 0, AUDIT_ARCH_X86_64),
        instruction(RETURN, 0, 0, OTHERWISE.into()),
        instruction(LOAD, 0, 0, DATA_NUMBER),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::str::FromStr;

    fn policies() -> Policies {
        serde_json::from_str(MONITOR).unwrap()
    }

    #[test]
    fn numbers_belong_to_their_names_and_all_sets_are_used() {
        let policies = policies();
        for group in policies.sets.iter().chain(&policies.threads) {
            for call in &group.calls {
                let known = syscalls::Sysno::from_str(&call.name).unwrap();
                assert_eq!(
                    usize::try_from(call.number).unwrap(),
                    known.id() as usize,
                    "{}",
                    call.name
                );
                assert!(call.reason.len() > 5, "{}: {}", group.name, call.name);
            }
        }
        let variants = variants(&policies);
        let used: BTreeSet<&String> = policies
            .threads
            .iter()
            .chain(&variants)
            .flat_map(|thread| &thread.sets)
            .collect();
        let made: BTreeSet<&String> = policies.sets.iter().map(|set| &set.name).collect();
        assert_eq!(used, made);
    }

    #[test]
    fn what_stands_twice_adds_up() {
        let policies = policies();
        let console = policies
            .threads
            .iter()
            .find(|t| t.name == "console")
            .unwrap();
        let all = calls(&policies, console).unwrap();
        let signals = all.iter().find(|call| call.name == "tgkill").unwrap();
        // To interrupt; to wake the watch and to abort.
        assert_eq!(signals.rules.len(), 3);
        let numbers: BTreeSet<u32> = all.iter().map(|call| call.number).collect();
        assert_eq!(numbers.len(), all.len());
    }

    #[test]
    fn a_variant_has_its_own_sets() {
        let policies = policies();
        let variants = variants(&policies);
        let names: Vec<&str> = variants.iter().map(|group| group.name.as_str()).collect();
        assert!(
            names.contains(&"kvm-rng") && !names.contains(&"kvm-main"),
            "{names:?}"
        );
        for group in &variants {
            let all = calls(&policies, group).unwrap();
            let signals = all.iter().find(|call| call.name == "tgkill").unwrap();
            // Not to interrupt; to wake the watch and to abort.
            assert_eq!(signals.rules.len(), 2, "{}", group.name);
            assert!(all.iter().any(|call| call.name == "read"), "{}", group.name);
        }
        assert!(name("kvm-rng").is_ok());
    }

    #[test]
    fn there_is_no_such_thread() {
        let error = name("nobody").unwrap_err().to_string();
        assert!(error.contains("no thread `nobody`"), "{error}");
    }

    #[test]
    fn bad_policies_are_told() {
        for (from, to, why) in [
            (
                "\"FUTEX_WAIT\"",
                "\"FUTEX_WAITT\"",
                "`FUTEX_WAITT` is not known",
            ),
            ("\"EACCES\"", "\"EODD\"", "`EODD` is not known"),
            ("\"kick\", \"epoll\"", "\"kik\", \"epoll\"", "no set `kik`"),
            (
                "\"reason\": \"The log",
                "\"reason\": \"\", \"x\": \"",
                "unknown field",
            ),
            ("[\"KILL\"]", "[\"KIL\"]", "`KIL` is no capability"),
        ] {
            assert!(MONITOR.contains(from), "{from}");
            let error = format!("{:#}", compile(&MONITOR.replace(from, to)).unwrap_err());
            assert!(error.contains(why), "{error}");
        }
    }
}
