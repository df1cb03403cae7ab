// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--without NAME`: heuristics of the layer (docs/tuning.md). The layer is complete without them,
//! and each one that is off changes what the layer does.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::worker::{COMMANDS, Worker};
use paravane_tests::{linux, program, source_root, tree};
use std::path::Path;
use std::time::Duration;

const ALL: [&str; 12] = [
    "costs",
    "halt-polls",
    "fault-around",
    "short-runs",
    "text-match",
    "spare-processes",
    "kept-mappings",
    "replaced-pages",
    "early-drop",
    "idle-trim",
    "lock-spins",
    "page-aging",
];

/// Programs run one after the other, ten live at the same time, and shells fork.
const SCRIPT: &str = "while read line; do \
    for i in 1 2 3 4 5; do true | true; done; \
    for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.3 & done; wait; \
    for i in 1 2 3 4 5 6 7 8 9 10; do /bin/true; (/bin/true; true); done; echo; done";

/// Idle processes are trimmed after 4 s.
const REST: Duration = Duration::from_secs(6);

fn suite(words: &[&str]) -> program::Run {
    let mut command = program::command();
    command.args(["conformance", "--hypervisor", "process"]);
    program::finish(command.args(words))
}

#[test]
fn the_suite_passes_without_them() {
    let off = ALL.iter().filter(|name| **name != "page-aging");
    let off: Vec<_> = off.flat_map(|name| ["--without", name]).collect();
    for cpus in ["1", "2"] {
        let run = suite(&[&["--cpus", cpus], &off[..]].concat());
        assert_eq!(run.code, 0, "{run:?}");
    }
}

/// A mapped page is compared with the guest's entry once in a second, or at a flush.
#[test]
fn without_page_aging_accessed_bits_stay_clear() {
    let filter = ["--filter", "memory.accessed.ages"];
    assert_eq!(suite(&filter).code, 0);
    let run = suite(&[&filter[..], &["--without", "page-aging"]].concat());
    assert_eq!(run.code, 1, "{run:?}");
}

#[test]
fn what_the_layer_does_not_have_is_refused() {
    for (words, error) in [
        (
            ["--hypervisor", "process", "--without", "device-place"],
            "the layer has no such heuristic",
        ),
        (
            ["--hypervisor", "qemu", "--without", "costs"],
            "--without are for --hypervisor process",
        ),
    ] {
        let mut command = program::command();
        let run = program::finish(
            command
                .args(["conformance", "--layer", "native"])
                .args(words),
        );
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.stderr.contains(error), "{run:?}");
    }
}

/// A machine without one of them, or with all.
fn machine(without: Option<&str>, script: &str, more: &[&str]) -> Worker {
    let mut words = vec!["--cpus", "1", "--net", "none"];
    words.extend(without.iter().flat_map(|name| ["--without", name]));
    words.extend(more);
    Worker::start(None, script, |_| words)
}

/// What the layer did for programs that ran a moment ago, and after a rest.
#[derive(Debug)]
struct Work {
    /// In the median, and after a rest.
    faults: [u64; 2],
    fills: u64,
    host_calls: u64,
    /// Processes after all.
    processes: usize,
}

fn work(without: Option<&str>) -> Work {
    let mut machine = machine(without, SCRIPT, &[]);
    let fields = ["faults_hidden", "fills", "host_calls"];
    let median = |mut all: Vec<u64>| {
        all.sort_unstable();
        all[all.len() / 2]
    };
    let processes = tree::spaces(machine.pid()).len();
    let [faults, fills, host_calls] = machine.costs(Duration::ZERO, 5, fields).map(median);
    let [rested] = machine.costs(REST, 1, ["faults_hidden"]).map(median);
    let work = Work {
        faults: [faults, rested],
        fills,
        host_calls,
        processes,
    };
    machine.end();
    println!("{without:?}: {work:?}");
    work
}

#[test]
fn each_changes_the_work_of_the_layer() {
    let all = work(None);
    let off = |name| work(Some(name));
    // The pages around what a program touches first.
    let one = off("fault-around");
    assert!(
        one.faults[1] > 4 * all.faults[1],
        "{one:?}, with all {all:?}"
    );
    // What the last program in the process had, too.
    let one = off("kept-mappings");
    assert!(one.fills > 4 * all.fills, "{one:?}, with all {all:?}");
    // What fork has copied: a run is mapped at once, or unmapped and mapped later.
    let one = off("replaced-pages");
    assert!(
        one.host_calls > all.host_calls + 30,
        "{one:?}, with all {all:?}"
    );
    // Processes of the host that lose their mappings in a rest.
    let one = off("idle-trim");
    assert!(
        one.faults[1] < all.faults[1] / 2,
        "{one:?}, with all {all:?}"
    );
    let one = off("spare-processes");
    assert!(one.processes < all.processes, "{one:?}, with all {all:?}");
    // After a rest, many processes have text, and the oldest one is seldom the right one.
    let one = off("text-match");
    assert!(
        one.faults[1] > all.faults[1] * 5 / 4,
        "{one:?}, with all {all:?}"
    );
}

/// Mappings of the process that has the most.
fn most_mappings(machine: &Worker) -> usize {
    let spaces = tree::spaces(machine.pid());
    let maps = spaces.into_iter().filter_map(tree::figures);
    maps.map(|one| one.maps).max().unwrap_or_default()
}

/// A program with 600 mappings ends.
#[test]
fn without_early_drop_mappings_stay() {
    let folder = tempfile::tempdir().unwrap();
    linux::compile(
        &source_root().join("tests/guest/sparse"),
        &folder.path().join("sparse"),
    );
    let mappings = |without: Option<&str>, folder: &Path| {
        let volume = format!("{}:/x:ro", folder.display());
        let more = [
            "--volume",
            &volume,
            "--append",
            "transparent_hugepage=never",
        ];
        let mut machine = machine(without, COMMANDS, &more);
        let before = most_mappings(&machine);
        machine.tell("/x/sparse 600 65536 >/dev/null");
        let after = most_mappings(&machine);
        machine.end();
        (before, after)
    };
    let (before, after) = mappings(None, folder.path());
    let (_, stay) = mappings(Some("early-drop"), folder.path());
    println!("{before}, then {after}, without early-drop {stay}");
    assert!(
        after < before + 200 && stay > before + 500,
        "{before}, {after}, {stay}"
    );
}
