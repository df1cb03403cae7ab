// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The whole suite, with each layer.

use crate::alone;
use libtest_mimic::{Failed, Trial};
use paravane_tests::program::{self, Run};
use paravane_tests::rom;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub const LAYERS: [&str; 3] = ["none", "native", "native-stats"];

/// The least number of tests in a suite.
const FEWEST_TESTS: usize = 100;
/// Repetitions in the long version, to catch failures that are rare.
const REPETITIONS: usize = 5;

pub fn trials(long: bool) -> Vec<Trial> {
    let mut trials = Vec::new();
    let numbers = |layer: &str| -> &[u32] {
        match layer {
            _ if long => &[1, 2, 3, 4, 8, 16],
            "native" => &[1, 2, 4],
            // Faults are planted in this one, on one vCPU.
            "native-stats" => &[1, 2],
            _ => &[2],
        }
    };
    // The layer `kvm` has no KVM here: each of its calls takes the native way.
    let layers = LAYERS.into_iter().chain(["kvm"]);
    for layer in layers {
        for &cpus in numbers(layer) {
            let name = format!("suite::{layer}::{cpus}_vcpus");
            trials.push(alone(name, move || {
                whole_suite(&whole("qemu", layer, &cpus.to_string()))?;
                for _ in 1..if long { REPETITIONS } else { 1 } {
                    whole_suite(&run(&["--layer", layer, "--cpus", &cpus.to_string()]))?;
                }
                Ok(())
            }));
        }
    }
    trials.push(alone("suite::list_names_every_test", list));
    trials.push(alone("suite::filter_chooses", filter));
    trials.push(alone(
        "suite::another_layer_than_expected_is_a_failure",
        wrong_layer,
    ));
    trials.push(alone(
        "suite::refused_rom_leaves_the_guest_native",
        refused_rom,
    ));
    for layer in ["native", "native-stats"] {
        for mode in ["soft", "hard"] {
            trials.push(alone(format!("end::reboot_{mode}::{layer}"), move || {
                reboot(layer, mode)
            }));
        }
        trials.push(alone(format!("end::shutdown::{layer}"), move || {
            shutdown(layer)
        }));
    }
    trials.push(alone("end::panic_is_reported", panic));
    trials.push(alone("end::exception_without_a_gate", early));
    trials.push(alone("bench::native_counts_are_exact", bench));
    trials
}

/// A run on bare metal with TAP as its output.
pub fn run(more: &[&str]) -> Run {
    run_on("qemu", more)
}

/// A run with TAP as its output.
pub fn run_on(hypervisor: &str, more: &[&str]) -> Run {
    let mut words = vec!["conformance", "--hypervisor", hypervisor, "--tap"];
    words.extend(more);
    if !more.contains(&"--timeout") {
        // A hang is still noticed, and a busy host is not a failure.
        words.extend(["--timeout", "600"]);
    }
    program::run(words)
}

/// Runs of the whole suite, by hypervisor, layer and number of vCPUs.
static WHOLE: Mutex<BTreeMap<[String; 3], Arc<Run>>> = Mutex::new(BTreeMap::new());

/// A run of the whole suite without a fault. There is one of each kind, which all tests share.
pub fn whole(hypervisor: &str, layer: &str, cpus: &str) -> Arc<Run> {
    let mut runs = WHOLE.lock().unwrap_or_else(PoisonError::into_inner);
    let run = runs
        .entry([hypervisor, layer, cpus].map(String::from))
        .or_insert_with(|| Arc::new(run_on(hypervisor, &["--layer", layer, "--cpus", cpus])));
    Arc::clone(run)
}

/// Within this time a run of one test ends, unless the host is very busy.
const SOON: Duration = Duration::from_secs(5);
/// After this time it hangs on any host.
const HANG: Duration = Duration::from_secs(25);

/// A run of one test with a fault that may make it hang. Both functions get the run's limit, in
/// seconds. A run that does not end soon hangs if one without the fault ends soon right after it.
/// Otherwise the host is busy, and it gets more time.
pub fn faulty(faulty: impl Fn(&str) -> Run, sound: impl Fn(&str) -> Run) -> Run {
    let limit = |time: Duration| time.as_secs().to_string();
    let start = Instant::now();
    let run = faulty(&limit(SOON));
    if start.elapsed() < SOON || passed(&sound(&limit(SOON))).is_ok() {
        return run;
    }
    faulty(&limit(HANG))
}

/// Passes if the run has passed. Otherwise reports what the run printed.
pub fn passed(run: &Run) -> Result<(), Failed> {
    if run.code == 0
        && run.last_line().contains(" passed, 0 failed")
        && !run.last_line().starts_with("0 ")
    {
        return Ok(());
    }
    Err(format!("exit code {}\n{}{}", run.code, run.stdout, run.stderr).into())
}

fn whole_suite(run: &Run) -> Result<(), Failed> {
    passed(run)?;
    let count = run
        .last_line()
        .split(' ')
        .next()
        .and_then(|n| n.parse::<usize>().ok())
        .unwrap_or(0);
    if count < FEWEST_TESTS {
        return Err(format!("only {count} tests have passed").into());
    }
    Ok(())
}

fn names() -> Result<Vec<String>, Failed> {
    let run = program::run(["conformance", "--hypervisor", "qemu", "--list"]);
    if run.code != 0 {
        return Err(format!("{run:?}").into());
    }
    Ok(run.stdout.lines().map(String::from).collect())
}

/// The list and a run have the same names.
fn list() -> Result<(), Failed> {
    let names = names()?;
    let run = whole("qemu", "native", "2");
    let missing: Vec<_> = names
        .iter()
        .filter(|n| run.tap_result(n).is_none())
        .collect();
    let count = run
        .stdout
        .lines()
        .filter(|l| l.starts_with("ok ") || l.starts_with("not ok "))
        .count();
    if !missing.is_empty() || count != names.len() || names.len() < FEWEST_TESTS {
        return Err(format!(
            "{} names listed, {count} tests ran; not run: {missing:?}",
            names.len()
        )
        .into());
    }
    Ok(())
}

fn filter() -> Result<(), Failed> {
    let names = names()?;
    let name = names.first().ok_or("no names")?;
    let one = run(&["--layer", "none", "--filter", name]);
    passed(&one)?;
    if one.tap_result(name) != Some(true) {
        return Err(format!("{name} did not run: {}", one.stdout).into());
    }
    let none = run(&["--layer", "none", "--filter", "no.such.test"]);
    if none.code != 2 || none.stderr.lines().count() != 1 {
        return Err(format!("{none:?}").into());
    }
    Ok(())
}

/// The guest's command line names the layer, so a layer that is silently not found cannot pass.
fn wrong_layer() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("layer.rom");
    std::fs::write(&file, paravane_blobs::NATIVE_ROM)?;
    let file = file.to_string_lossy();
    let run = run(&["--layer", "native-stats", "--rom", &file]);
    if run.code != 1 || run.last_line().contains(" 0 failed") {
        return Err(format!("{run:?}").into());
    }
    Ok(())
}

/// A guest that gets an invalid layer says so and stays native.
fn refused_rom() -> Result<(), Failed> {
    let other_major = rom::with(paravane_blobs::NATIVE_ROM, rom::API_MAJOR, &[9]);
    let mut damaged = paravane_blobs::NATIVE_ROM.to_vec();
    if let Some(byte) = damaged.last_mut() {
        *byte ^= 1;
    }
    for (image, word) in [(other_major, "version"), (damaged, "")] {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("layer.rom");
        std::fs::write(&file, image)?;
        let file = file.to_string_lossy();
        let run = run(&["--layer", "none", "--rom", &file, "--unchecked-rom"]);
        passed(&run)?;
        let says_so = run
            .stdout
            .lines()
            .any(|l| l.starts_with('#') && l.contains(word));
        if !says_so {
            return Err(format!("the guest does not say why it is native:\n{}", run.stdout).into());
        }
    }
    Ok(())
}

/// core.reboot does not return: the machine is reset, which ends it here.
fn reboot(layer: &str, mode: &str) -> Result<(), Failed> {
    let run = run(&["--layer", layer, "--append", &format!("end=reboot-{mode}")]);
    if run.code != 1
        || !run.stdout.contains("the machine was reset")
        || run.stdout.contains("came back")
    {
        return Err(format!("{run:?}").into());
    }
    Ok(())
}

/// core.shutdown stops the processor: nothing more is printed or executed.
fn shutdown(layer: &str) -> Result<(), Failed> {
    let run = run(&[
        "--layer",
        layer,
        "--append",
        "end=shutdown",
        "--timeout",
        "10",
    ]);
    shut_down(&run)
}

/// Whether a run with `end=shutdown` and ten seconds ended as it must: the machine stands still.
pub fn shut_down(run: &Run) -> Result<(), Failed> {
    if run.code != 1
        || !run.stdout.contains("not ended after 10 s")
        || run.stdout.contains("came back")
    {
        return Err(format!("{run:?}").into());
    }
    Ok(())
}

/// An unexpected exception ends the guest with its registers and a reason.
fn panic() -> Result<(), Failed> {
    let run = run(&["--layer", "none", "--append", "end=panic"]);
    if run.code != 1 || !run.stdout.contains("Bail out!") || !run.stdout.contains("# vector 6") {
        return Err(format!("{run:?}").into());
    }
    Ok(())
}

/// Where a hypervisor enters the kernel, an exception before cpu.set_idt ends the machine.
fn early() -> Result<(), Failed> {
    let run = run_on("process", &["--append", "end=early", "--timeout", "20"]);
    if run.code != 1 || !run.stdout.contains("triple fault") {
        return Err(format!("{run:?}").into());
    }
    Ok(())
}

/// Counts of instructions are exact: two runs agree in every figure. A call with a plain
/// instruction costs exactly that instruction at a site, without a layer and with the native one.
fn bench() -> Result<(), Failed> {
    let run = || program::run(["bench", "native", "--json"]);
    let (one, two) = (run(), run());
    if one.code != 0 || one.stdout != two.stdout {
        return Err(format!("{one:?}\n{two:?}").into());
    }
    let json: serde_json::Value = serde_json::from_str(&one.stdout)?;
    let operations = json["operations"].as_array().ok_or("no operations")?;
    if operations.is_empty() || json["layers"] != serde_json::json!(LAYERS) {
        return Err(one.stdout.into());
    }
    let plain = operations.iter().filter(|o| !o["plain"].is_null());
    let dearer: Vec<_> = plain
        .filter(|o| o["site"][0] != o["plain"] || o["site"][1] != o["plain"])
        .map(|o| &o["name"])
        .collect();
    if !dearer.is_empty() {
        return Err(format!(
            "not the cost of the plain instruction: {dearer:?}\n{}",
            one.stdout
        )
        .into());
    }
    Ok(())
}
