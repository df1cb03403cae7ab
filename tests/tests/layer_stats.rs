// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The counts of a machine's layer: `run --count-calls`, `paravane calls`, and the layer that
//! counts.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use object::{Object, ObjectSymbol};
use paravane_tests::program;
use paravane_tests::worker::Worker;
use serde_json::Value;
use std::collections::BTreeMap;

/// Starts programs.
const SCRIPT: &str = "while read line; do \
    i=0; while [ $i -lt 50 ]; do /bin/true; i=$((i+1)); done; echo; done";

/// Calls by name: how often, cycles, and the sum of the histogram. In the order of the report.
fn calls(machine: &Worker, more: &[&str]) -> (Vec<u64>, BTreeMap<String, [u64; 3]>) {
    let words = [&["calls", "one", "--json"], more].concat();
    let run = program::finish(&mut machine.command(&words));
    assert_eq!(run.code, 0, "{run:?}");
    let json: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(json["machine"], "one");
    let calls = json["calls"].as_array().unwrap();
    let number = |value: &Value| value.as_u64().unwrap();
    let order = calls.iter().map(|call| number(&call["cycles"])).collect();
    let calls = calls.iter().map(|call| {
        let buckets = call["histogram"].as_array().unwrap();
        for bucket in buckets {
            assert!(number(&bucket["from"]).is_power_of_two(), "{call}");
        }
        let sum = buckets.iter().map(|bucket| number(&bucket["calls"])).sum();
        let counts = [number(&call["calls"]), number(&call["cycles"]), sum];
        (call["name"].as_str().unwrap().to_string(), counts)
    });
    (order, calls.collect())
}

#[test]
fn a_machine_counts_the_calls_of_its_kernel() {
    let mut machine = Worker::start(None, SCRIPT, |_| vec!["--count-calls", "--cpus", "2"]);
    let (order, before) = calls(&machine, &[]);
    assert!(order.is_sorted_by(|a, b| a >= b), "{order:?}");
    machine.work();
    let (_, after) = calls(&machine, &["--reset"]);
    println!("{after:?}");
    // A program: a new space, its page tables, its faults, its system calls.
    for (call, least) in [
        ("mmu.set_cr3", 50),
        ("mmu.fill", 500),
        ("mmu.flush_space", 50),
        ("mmu.register_page_table", 50),
        ("cpu.irq_disable", 5000),
        ("cpu.irq_enable", 5000),
        ("apic.eoi", 1),
    ] {
        let none = [0; 3];
        let (then, now) = (before.get(call).unwrap_or(&none), after[call]);
        assert!(now[0] >= then[0] + least, "{call}: {then:?} {now:?}");
        assert!(now[1] > then[1], "{call}: {then:?} {now:?}");
        // A call takes a cycle, and no more than one is counted by half when the counts are read.
        assert!(now[1] >= now[0], "{call}: {now:?}");
        assert!(
            now[0].abs_diff(now[2]) <= now[0] / 100 + 10,
            "{call}: {now:?}"
        );
    }
    // A call that does not return has no cycles.
    let [calls_of_iret, cycles, buckets] = after["cpu.iret"];
    assert!(calls_of_iret > 1000 && cycles == 0 && buckets == 0);

    let (_, reset) = calls(&machine, &[]);
    for call in ["mmu.set_cr3", "mmu.fill", "cpu.irq_disable", "cpu.iret"] {
        let now = reset.get(call).map_or(0, |counts| counts[0]);
        assert!(now < after[call][0] / 2, "{call}: {now} {after:?}");
    }

    let run = program::finish(&mut machine.command(&["calls", "one"]));
    let mut lines = run.stdout.lines();
    assert!(lines.next().unwrap().starts_with("call  "), "{run:?}");
    assert!(
        lines.any(|line| line.starts_with("mmu.set_cr3  ")),
        "{run:?}"
    );

    // A profile of such a machine has the functions of its layer.
    let words = ["profile", "one", "--seconds", "1"];
    let run = program::finish(&mut machine.command(&words));
    assert_eq!(run.code, 0, "{run:?}");
    assert!(!(run.stdout + &run.stderr).contains("no functions of the layer"));
    machine.end();
}

#[test]
fn a_machine_that_does_not_count_says_so() {
    let machine = Worker::start(None, SCRIPT, |_| Vec::<&str>::new());
    let run = program::finish(&mut machine.command(&["calls", "one"]));
    let wanted = "paravane: machine one: its layer counts nothing: \
                  start it with `paravane run --count-calls`\n";
    assert_eq!((run.code, run.stderr.as_str()), (2, wanted), "{run:?}");
    machine.end();
}

/// The whole suite passes on the layer that counts, and every call is counted.
#[test]
fn the_layer_that_counts_passes_the_suite() {
    let run = program::run([
        "conformance",
        "--hypervisor",
        "process",
        "--layer",
        "process-stats",
        "--cpus",
        "2",
        "--timeout",
        "600",
        "--tap",
    ]);
    assert_eq!(run.code, 0, "{run:?}");
    for name in ["stats.read.all_vcpus", "stats.coverage", "stats.reset.zero"] {
        assert!(
            run.stdout.contains(&format!(" - {name}\n")),
            "{name}: {run:?}"
        );
    }
}

/// The layer that counts is a program of its own: the usual layer has no code for counting.
#[test]
fn the_usual_layer_has_no_code_that_counts() {
    let symbols = |program: &[u8]| -> Vec<String> {
        let file = object::File::parse(program).unwrap();
        let names = file
            .symbols()
            .map(|symbol| symbol.name().unwrap().to_string());
        names
            .filter(|name| name.starts_with("counted_") || name.starts_with("stats_"))
            .collect()
    };
    assert!(symbols(paravane_blobs::PROCESS_STATS_LAYER).len() > 100);
    assert!(symbols(paravane_blobs::PROCESS_LAYER).is_empty());
}
