// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What VMI-Linux guesses (the list in docs/tuning.md): it costs a program something
//! at its start alone, so that one that runs long runs as fast in a machine's fourth run of it as
//! in its first; and each guess can be turned off.

#![allow(clippy::unwrap_used)] // What cannot be set up has failed.

use paravane_tests::worker::Worker;
use paravane_tests::{linux, program, source_root, vm};
use std::time::Duration;

/// Bytes that go to and fro in a run, each of them two switches of spaces.
const TIMES: u32 = 5000;
const RUNS: u32 = 12;
/// In a hundredth: what a run may take more than the one that took least. On a busy host the
/// clock's interrupts and a few wake-ups more come in.
const MORE: u64 = 130;

/// Host calls for a hundred switches, of each run of a script that is told to run. The host is one
/// that says that it can make cpuid fault: what it costs to learn from that is the same there,
/// wherever this runs.
fn costs(script: &str) -> Vec<u64> {
    let script = script.replace("TIMES", &TIMES.to_string());
    let mut machine = Worker::start(
        Some(env!("CARGO_BIN_EXE_says_cpuid_faults")),
        &script,
        |folder| {
            linux::compile(
                &source_root().join("tests/guest/switch"),
                &folder.join("switch"),
            );
            let volume = format!("{}:/x:ro", folder.display());
            ["--cpus", "1", "--volume", &volume]
                .map(String::from)
                .to_vec()
        },
    );
    let [calls, switches] = machine.costs(Duration::ZERO, RUNS, ["host_calls", "switches"]);
    machine.end();
    let least = u64::from(2 * TIMES);
    assert!(switches.iter().all(|&count| count >= least), "{switches:?}");
    calls
        .iter()
        .zip(switches)
        .map(|(calls, switches)| calls * 100 / switches)
        .collect()
}

fn the_same_each_time(script: &str) {
    let costs = costs(script);
    println!("{costs:?} host calls for 100 switches");
    let least = costs.iter().min().unwrap();
    let dear: Vec<_> = costs
        .iter()
        .filter(|&&cost| cost * 100 > least * MORE)
        .collect();
    assert!(
        dear.is_empty(),
        "{dear:?} of {costs:?} host calls for 100 switches"
    );
}

/// As a server has many clients.
#[test]
fn many_clients_of_a_server() {
    the_same_each_time(
        "/x/switch serve a & while read line; do /x/switch ask a TIMES; echo; done; kill $!",
    );
}

/// Both are started each time. One has been run often before, so that it is not they both that are
/// learnt from in the same runs.
#[test]
fn many_pairs() {
    the_same_each_time(
        "cp /x/switch /tmp/new; cp /x/switch /tmp/known; for i in 1 2 3 4 5 6 7 8 9 10; do /tmp/known; done
        while read line; do /tmp/known once a & /tmp/new ask a TIMES; wait; echo; done",
    );
}

/// A line is a parameter's file and its value, or is empty: then programs run, as ordinary as they
/// can be.
const PROGRAMS: &str = r#"
    mount -t debugfs debug /sys/kernel/debug
    while read line; do
        case $line in
            *=*) echo ${line#*=} > ${line%=*} || exit 1;;
            *) i=0; while [ $i -lt 100 ]; do /bin/true; i=$((i+1)); done;;
        esac
        echo
    done"#;

/// Each switch of what exec, fork and faults do ahead: off, there is more to do later.
#[test]
fn each_guess_can_be_turned_off() {
    const OURS: &str = "/sys/module/vmi/parameters";
    let mut machine = Worker::start(None, PROGRAMS, |_| vec!["--cpus", "1"]);
    machine.work();
    let cost = |machine: &mut Worker| -> [u64; 3] {
        machine
            .costs(
                Duration::ZERO,
                2,
                ["host_calls", "faults_injected", "fills"],
            )
            .map(|all| all.iter().sum())
    };
    let ours = [
        "exec_fill",
        "exec_expect",
        "fork_copies",
        "populate",
        "neighbours",
    ];
    let switches = ours.map(|name| (format!("{OURS}/{name}"), "1", "0"));
    let around = (
        "/sys/kernel/debug/fault_around_bytes".to_string(),
        "1048576",
        "4096",
    );
    for (file, on, off) in switches.into_iter().chain([around]) {
        let with = cost(&mut machine);
        machine.tell(&format!("{file}={off}"));
        let without = cost(&mut machine);
        machine.tell(&format!("{file}={on}"));
        println!("{file}: {with:?}, off {without:?}");
        let more = without
            .iter()
            .zip(with)
            .any(|(&without, with)| without > with + 200);
        assert!(more, "{file}: {with:?}, off {without:?}");
    }
    machine.end();
}

/// Of anonymous memory there are at most 16 pages for one that is used, and one where somebody says
/// so.
#[test]
fn large_folios_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    linux::compile(
        &source_root().join("tests/guest/sparse"),
        &folder.path().join("sparse"),
    );
    let volume = format!("{}:/x:ro", folder.path().display());
    for (append, most) in [("", 16), ("transparent_hugepage=never", 1)] {
        let mut command = vm::command(["--volume", &volume, "--append", append]);
        let run = program::finish(command.args(["--", "/x/sparse", "500"]));
        let pages: u64 = run.stdout.trim().parse().unwrap();
        println!("{append}: {pages}");
        assert!(pages <= most, "{append}: {pages} pages for one");
        assert!(!append.is_empty() || pages > 1, "it does not guess");
    }
}
