// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mutation tests: each fault that can be planted in a layer (`layers/faults.txt`) is caught by the
//! test named for it, which passes without the fault. `make test` tries a quarter of them
//! (`planted_turns`).

use crate::{alone, beside_others, suite};
use libtest_mimic::{Failed, Trial};
use paravane_tests::planted::Planted;
use paravane_tests::program::Run;
use paravane_tests::{planted_turns, source_root};
use std::fs;
use std::sync::Arc;

/// A line of the list: `<FAULT_NAME> <layer> <cpus> <test> [<call>]`.
#[derive(Clone, Debug)]
struct Fault {
    name: String,
    layer: String,
    /// Where it shows: without KVM, or on a host that has it.
    needs_kvm: bool,
    cpus: String,
    test: String,
    /// The call that is wrong: most tests have its name.
    call: String,
}

impl Fault {
    /// Does its test say the same on a host that does something else as well? It must pass there
    /// without the fault.
    fn crowd_proof(&self) -> bool {
        let timed = ["time.", "lock.", "apic.alarm", "end."];
        self.cpus == "1" && !timed.iter().any(|prefix| self.test.starts_with(prefix))
    }
}

/// A fault that needs luck is found in one of this number of runs.
const TRIES: usize = 48;
/// What each of them does often, where the test has this option.
const EVENTS: &str = "events=1500";

/// The one test of the list that looks at the end of the machine: the suite cannot.
const SHUTDOWN: &str = "end.shutdown";

pub fn trials() -> Vec<Trial> {
    let faults = match faults() {
        Ok(faults) => faults,
        Err(message) => return vec![alone("fault::list", move || Err(message.into()))],
    };
    let all = faults.clone();
    let mut trials = vec![alone("fault::list", move || every_call(&all))];
    // The others need an observer outside (tests/tests/process_birth.rs and attacks.rs), or a host
    // with KVM (kvm_layer.rs).
    let of_the_suite = faults
        .into_iter()
        .filter(|fault| !fault.test.starts_with("outside.") && !fault.needs_kvm);
    trials.extend(of_the_suite.map(|fault| {
        let name = format!(
            "fault::{}::{}::{}_vcpus",
            fault.name, fault.layer, fault.cpus
        );
        let later = !planted_turns::has_turn(&fault.name);
        let trial = if fault.crowd_proof() {
            beside_others(name, move || caught(&fault))
        } else {
            alone(name, move || caught(&fault))
        };
        trial.with_ignored_flag(later)
    }));
    trials
}

/// The tests of a call without a fault could pass anything. A layer's own implementation of another
/// layer's call needs a fault of its own.
fn every_call(faults: &[Fault]) -> Result<(), Failed> {
    let calls: Vec<&str> = paravane_abi::SECTIONS
        .iter()
        .flat_map(|section| section.calls.iter().map(|call| call.name))
        .collect();
    let called = |fault: &&Fault| calls.contains(&fault.call.as_str());
    let nothing = faults.iter().filter(|fault| {
        // The tests that are not named after a call may leave it open.
        let open = ["outside.", "boot.", "exception.", "line.registers."];
        !called(fault) && !open.iter().any(|prefix| fault.test.starts_with(prefix))
    });
    let nothing: Vec<&str> = nothing.map(|fault| fault.call.as_str()).collect();
    let without = |wanted: &[&str], layers: &str| {
        let has = |call: &str| {
            let mut faults = faults.iter().filter(|f| f.layer.starts_with(layers));
            faults.any(|fault| fault.call == call)
        };
        let missing = wanted.iter().filter(|call| !has(call));
        missing.map(ToString::to_string).collect::<Vec<_>>()
    };
    let own = own_calls()?;
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    let (missing, of_kvm) = (without(&calls, ""), without(&own, "kvm"));
    if nothing.is_empty() && missing.is_empty() && of_kvm.is_empty() {
        return Ok(());
    }
    Err(format!(
        "no calls: {nothing:?}; without a fault: {missing:?}, in the layer kvm: {of_kvm:?}"
    )
    .into())
}

/// The calls that the layer `kvm` has itself, of its list.
fn own_calls() -> Result<Vec<String>, Failed> {
    let text = fs::read_to_string(source_root().join("layers/kvm/own.h"))?;
    // #define KVM_OWN_core_init 0,
    let marks = text.lines().filter_map(|line| {
        let name = line.strip_prefix("#define KVM_OWN_")?.strip_suffix(" 0,")?;
        Some(name.replacen('_', ".", 1))
    });
    let calls: Vec<String> = marks.collect();
    if calls.is_empty() {
        return Err("layers/kvm/own.h marks no call".into());
    }
    Ok(calls)
}

fn faults() -> Result<Vec<Fault>, String> {
    let path = source_root().join("layers/faults.txt");
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty() && !l.starts_with('#'));
    lines
        .map(
            |line| match line.split_whitespace().collect::<Vec<_>>()[..] {
                [
                    name,
                    layer @ ("native" | "native-stats" | "kvm" | "kvm/qemu" | "process"
                    | "process-stats"),
                    cpus,
                    test,
                    ref call @ ..,
                ] if call.len() < 2 => Ok(Fault {
                    name: name.to_string(),
                    layer: layer.trim_end_matches("/qemu").to_string(),
                    needs_kvm: layer == "kvm",
                    cpus: cpus.to_string(),
                    test: test.to_string(),
                    call: call.first().map_or_else(
                        || test.splitn(3, '.').take(2).collect::<Vec<_>>().join("."),
                        ToString::to_string,
                    ),
                }),
                _ => Err(format!("{}: not a fault: {line}", path.display())),
            },
        )
        .collect()
}

/// With as many events, the test passes without the fault: in one of three runs, for busy hosts.
fn passes_often(test: &str, sound: impl Fn() -> Run) -> Result<(), Failed> {
    let mut runs = (0..3).map(|_| sound());
    match runs.find(|run| run.tap_result(test) == Some(true)) {
        Some(_) => Ok(()),
        None => Err(format!("{test} does not pass with {EVENTS} and without the fault").into()),
    }
}

fn caught(fault: &Fault) -> Result<(), Failed> {
    let planted = Planted::of(&fault.layer, &fault.name)?;
    let rom = planted.rom();
    let rom = rom.to_string_lossy();
    let process = fault.layer.starts_with("process");
    let hypervisor = if process { "process" } else { "qemu" };
    let layer = ["--layer", fault.layer.as_str()];
    if fault.test == SHUTDOWN {
        let end = ["--append", "end=shutdown", "--timeout", "10"];
        suite::shut_down(&suite::run_on(hypervisor, &[&layer[..], &end].concat()))?;
        let words = [&layer[..], &end, &["--rom", &rom]].concat();
        return match suite::shut_down(&suite::run_on(hypervisor, &words)) {
            Ok(()) => Err("the fault does not show".into()),
            Err(_) => Ok(()),
        };
    }
    let filter = ["--cpus", &fault.cpus, "--filter", &fault.test];
    let words = [&layer[..], &filter].concat();

    let mut sound = suite::whole(hypervisor, &fault.layer, &fault.cpus);
    if sound.tap_result(&fault.test) != Some(true) {
        // That was on a busy host, perhaps.
        sound = Arc::new(suite::run_on(hypervisor, &words));
    }
    // A layer without this section cannot have the fault.
    if sound
        .stdout
        .lines()
        .any(|line| line.contains(&format!(" - {} # SKIP the host cannot", fault.test)))
    {
        return Ok(());
    }
    if sound.tap_result(&fault.test) != Some(true) {
        return Err(format!(
            "{} does not pass without the fault:\n{}",
            fault.test, sound.stdout
        )
        .into());
    }
    // On real processors some faults show only when an interrupt hits one of a few instructions.
    let tries = if process { TRIES } else { 1 };
    let mut last = None;
    for _ in 0..tries {
        let often: &[&str] = if process { &["--append", EVENTS] } else { &[] };
        let run = |more: &[&str]| suite::run_on(hypervisor, &[&words[..], often, more].concat());
        let faulty = suite::faulty(
            |limit| run(&["--rom", &rom, "--timeout", limit]),
            |limit| run(&["--timeout", limit]),
        );
        // A fault may end the whole machine. A test that did not run to its end has not passed.
        if faulty.code == 1 && faulty.tap_result(&fault.test) != Some(true) {
            return if process {
                passes_often(&fault.test, || run(&[]))
            } else {
                Ok(())
            };
        }
        last = Some(faulty);
    }
    let said = last.map_or(String::new(), |run| run.stdout + &run.stderr);
    Err(format!(
        "{} does not fail with the fault, in {tries} tries:\n{said}",
        fault.test
    )
    .into())
}
