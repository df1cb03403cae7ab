// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The layer `kvm` on an emulated host that has KVM: the conformance suite, tests for which vCPUs
//! share a processor, the exits that it saves, and faults that are planted in it.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::kvm_host::{KvmHost, Parts};
use paravane_tests::planted::Planted;
use paravane_tests::source_root;
use std::fs;

/// The tests of calls that are the layer's own.
const OWN: [&str; 6] = [
    "boot.",
    "apic.eoi.",
    "apic.send_ipi.every_vector",
    "lock.",
    "time.read.",
    "mmu.flush_preempted.",
];
/// What is special about a host: what stands before the command, and after it.
type Around = (&'static str, &'static str);
/// The vCPUs of a machine share one processor of the host.
const SHARED: Around = ("taskset 1 ", "");
/// The program and a loop share a processor.
const BUSY: Around = (
    "taskset 1 sh -c 'while :; do :; done' & B=$!; trap 'kill $B' EXIT; taskset 1 ",
    "",
);
/// The host's date jumps by an hour when the only test has run for two seconds.
const STEP: Around = (
    "",
    " | while read -r line; do echo \"$line\"; [ \"$line\" != 1..1 ] || \
     { sleep 2; date -s @$(($(date +%s) + 3600)) >/dev/null; }; done",
);
const USUAL: Around = ("", "");

/// Runs the suite, with a limit of seconds. Returns what it printed.
fn conformance(host: &mut KvmHost, around: Around, words: &str, seconds: u64) -> String {
    let (before, after) = around;
    let reply = host.run(
        &format!(
            "{before}paravane conformance --hypervisor kvm --tap --timeout {} {words}{}{after}",
            host.limit(seconds).as_secs(),
            host.suite_options()
        ),
        seconds + 20,
    );
    reply.output
}

/// Whether tests have run, to the end of the list, and none has failed.
fn good(output: &str) -> bool {
    let count = |start: &str| {
        let lines = output.lines();
        lines.filter(|line| line.starts_with(start)).count()
    };
    let whole = !output.contains("Bail out!") && !output.contains("did not run");
    let skipped = output.matches("# SKIP").count();
    whole && count("not ok ") == 0 && count("ok ") > skipped
}

fn passes(host: &mut KvmHost, words: &str, seconds: u64) {
    let output = conformance(host, USUAL, words, seconds);
    assert!(good(&output), "{words}: {output}");
}

/// Runs the tests of the calls that the layer implements itself. `kvm_emulated.rs` runs the whole
/// suite.
#[test]
fn the_suite_passes() {
    let mut host = Parts::new(2).start();
    for layer in ["kvm", "native"] {
        for test in OWN {
            let words = format!("--layer {layer} --cpus 2 --filter {test}");
            passes(&mut host, &words, 60);
        }
    }
    // The native layer does not offer it, nor do old ones.
    passes(&mut host, "--layer kvm --cpus 2 --filter bus.", 120);
}

/// A fault of the list: the run that must show it, which passes without it.
struct Fault {
    name: String,
    test: String,
    cpus: String,
}

impl Fault {
    fn words(&self) -> String {
        let test = match self.test.as_str() {
            FLUSHES => "mmu.flush_preempted.shared_space",
            IO_DELAY => "cpu.io_delay.*",
            YIELDS => "lock.preempted.shared_processor",
            REBOOT => "core.reboot.errors --append end=reboot-hard",
            test => test,
        };
        let host = self.host().0;
        format!("--layer kvm --cpus {} {host} --filter {test}", self.cpus)
    }

    /// What is special about the host: options for the suite, and what stands around the command.
    fn host(&self) -> (&'static str, Around) {
        match self.test.as_str() {
            FLUSHES | YIELDS | "lock.preempted.shared_processor" => ("--append shared", SHARED),
            "time.set_alarm.available_is_not_real" | "lock.run_state.stolen" => {
                ("--append steal", BUSY)
            }
            "time.wallclock_updated.step" => ("--append step=3600", STEP),
            _ => ("", USUAL),
        }
    }

    /// Whether the suite says in a run that the layer is right.
    fn said_well(&self, output: &str) -> bool {
        match self.test.as_str() {
            // The machine ends without a test.
            REBOOT => output.contains("# end=reboot-hard") && !output.contains("came back"),
            _ => good(output),
        }
    }

    /// Whether the host's trace of a run shows that the layer is right.
    fn traced_well(&self, trace: &str) -> bool {
        match self.test.as_str() {
            // Flushes that a guest has asked for in the steal page.
            FLUSHES => trace.contains("need_flush_tlb true"),
            IO_DELAY => !trace.contains("kvm_pio: pio_write at 0x80 "),
            // To whom the host's scheduler gives the processor is its own matter.
            YIELDS => trace.contains("kvm_hypercall: nr 0xb "),
            // The kernel that starts next gets a memory into which the host does not write.
            REBOOT => trace.contains(UNSHARED),
            _ => true,
        }
    }
}

/// Tests that look at the host's trace.
const FLUSHES: &str = "outside.kvm_flushes";
const IO_DELAY: &str = "outside.kvm_io_delay";
const YIELDS: &str = "outside.kvm_yields";
const REBOOT: &str = "outside.kvm_reboot";
const TRACE: &str = "/sys/kernel/tracing";
/// The guest has the host forget where its stolen time is.
const UNSHARED: &str = "msr_write 4b564d03 = 0x0";

fn faults() -> Vec<Fault> {
    let text = fs::read_to_string(source_root().join("layers/faults.txt")).unwrap();
    let lines = text.lines().map(|l| l.split(' ').collect::<Vec<_>>());
    lines
        .filter(|words| words.len() > 3 && words[1] == "kvm")
        .map(|words| Fault {
            name: words[0].to_string(),
            cpus: words[2].to_string(),
            test: words[3].to_string(),
        })
        .collect()
}

/// What a run of a fault's test has shown.
struct Shown {
    /// The test of the suite passes.
    suite: bool,
    /// So does the look at the host's trace.
    trace: bool,
    said: String,
}

/// Runs the test of a fault.
fn run(host: &mut KvmHost, fault: &Fault, rom: Option<&str>) -> Shown {
    let mut words = fault.words();
    if let Some(rom) = rom {
        words = format!("{words} --rom {rom}");
    }
    host.ok(&format!("echo > {TRACE}/trace"), 10);
    let output = conformance(host, fault.host().1, &words, 30);
    let trace = host.ok(
        &format!(
            "for words in . 'need_flush_tlb true' 'at 0x80 ' 'nr 0xb ' '{UNSHARED}'; do
             grep -m 1 -e \"$words\" {TRACE}/trace; done; true"
        ),
        30,
    );
    Shown {
        suite: fault.said_well(&output),
        trace: fault.traced_well(&trace),
        said: format!("{output}{trace}"),
    }
}

/// Each fault that is planted in the layer fails its test, which passes without it.
#[test]
#[ignore = "long: make test-release"]
fn planted_faults_are_found() {
    let mut parts = Parts::new(2);
    let faults = faults();
    assert!(!faults.is_empty());
    let mut planted = Vec::new();
    for fault in &faults {
        let layer = Planted::of("kvm", &fault.name).unwrap();
        parts = parts.file(&format!("/{}.rom", fault.name), &layer.rom());
        planted.push(layer);
    }
    let mut host = parts.start();
    // Not the writes that start timers.
    let filter = format!("echo ecx==0x4b564d03 > {TRACE}/events/kvm/kvm_msr/filter");
    host.ok(&filter, 10);
    for event in ["kvm_pv_tlb_flush", "kvm_pio", "kvm_hypercall", "kvm_msr"] {
        host.ok(&format!("echo 1 > {TRACE}/events/kvm/{event}/enable"), 10);
    }
    let mut wrong = Vec::new();
    for fault in &faults {
        let sound = run(&mut host, fault, None);
        if !sound.suite || !sound.trace {
            let (name, test, said) = (&fault.name, &fault.test, sound.said);
            wrong.push(format!("{name}: {test} fails without it\n{said}"));
            continue;
        }
        let faulty = run(&mut host, fault, Some(&format!("/{}.rom", fault.name)));
        // A guest could not see an I/O delay or, once it has ended, what its memory is used for, so
        // only the trace may show it: not the end of the suite's time.
        let found = match fault.test.as_str() {
            IO_DELAY | REBOOT => faulty.suite && !faulty.trace,
            _ => !faulty.suite || !faulty.trace,
        };
        let (suite, trace) = (faulty.suite, faulty.trace);
        eprintln!("{}: suite passes {suite}, trace {trace}", fault.name);
        if !found {
            let (name, test, said) = (&fault.name, &fault.test, faulty.said);
            wrong.push(format!("{name}: not found by {test}\n{said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Today's suite on each layer `kvm` that is kept (`tests/blobs/`).
#[test]
#[ignore = "long: make test-release"]
fn kept_layers_run_on_kvm() {
    let mut parts = Parts::new(2);
    let mut kept = Vec::new();
    for entry in fs::read_dir(source_root().join("tests/blobs")).unwrap() {
        let rom = entry.unwrap().path().join("kvm.rom");
        if rom.exists() {
            let name = format!("/kept-{}.rom", kept.len());
            parts = parts.file(&name, &rom);
            kept.push((name, rom));
        }
    }
    assert!(!kept.is_empty(), "no layer kvm is kept");
    let mut host = parts.start();
    for (name, rom) in kept {
        eprintln!("{}", rom.display());
        for test in OWN {
            let words = format!("--layer kvm --cpus 2 --rom {name} --filter {test}");
            passes(&mut host, &words, 60);
        }
    }
}
