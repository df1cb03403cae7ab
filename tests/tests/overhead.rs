// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of an idle machine for the host: CPU time, and memory beyond the guest's own. A control
//! group counts the memory, including page tables and the kernel's own structures, but without
//! shared memory, which is the guest's.

// Alone: it measures what an idle machine costs.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::control_group::{ControlGroup, Names};
use paravane_tests::program::{self, Ends};
use paravane_tests::skip::skip;
use paravane_tests::{tree, vm};
use std::process::Stdio;
use std::time::Duration;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Limit for a machine of 256 MiB in which nothing happens.
const MOST: u64 = 8 * MIB;
/// Limit for each process in the guest.
const MOST_EACH: u64 = 200 * KIB;
const PROCESSES: u64 = 40;
/// Address-space processes that no vCPU has used for four seconds are trimmed. The one that is
/// loaded when the machine falls asleep, and those that wake then, are trimmed some seconds later.
const REST: Duration = Duration::from_secs(9);
/// Limit of CPU time in a minute. The monitor of a debug build takes longer for the same.
const MOST_TIME: Duration = Duration::from_millis(if cfg!(debug_assertions) { 15 } else { 5 });

/// Bytes in use by a control group.
const USED: Names = ("memory.current", "memory.usage_in_bytes");

/// Bytes of a group that are neither shared nor of a file. The host may drop pages of files at any
/// time, and charges them to the next reader.
fn own(group: &ControlGroup) -> u64 {
    // Version 1 calls them cache, version 2 file. Both include shared memory.
    let stat = group.read(("memory.stat", "memory.stat"));
    let files = stat
        .lines()
        .find_map(|line| line.strip_prefix("cache ").or(line.strip_prefix("file ")))
        .unwrap();
    group.read(USED).trim().parse::<u64>().unwrap() - files.parse::<u64>().unwrap()
}

/// Bytes beyond the guest's memory with `processes` sleeping processes in the guest.
fn overhead(group: &ControlGroup, processes: u64) -> u64 {
    let script = format!(
        "for i in $(seq {processes}); do sleep 1000 & done; sleep 1; echo ready; wait; read forever"
    );
    // Not by passt, whose process takes 15 MiB of its own.
    let options = ["--memory", "256M", "--net", "stack"];
    let machine = vm::command([&options[..], &["--", "sh", "-c", &script]].concat());
    let mut child = group
        .with(&machine)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let line = program::first_line(&mut child);
    let _machine = Ends(child);
    assert_eq!(line, "ready\n");
    // Memory of the start is returned.
    std::thread::sleep(REST);
    own(group)
}

#[test]
#[ignore = "two minutes: make test-release"]
fn an_idle_machine_takes_little_time() {
    let child = vm::command(["--", "sleep", "1000"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let machine = Ends(child);
    // Work that is done once after the start.
    std::thread::sleep(Duration::from_secs(60));
    let time = || Duration::from_nanos(tree::cpu_time(&tree::everything(machine.0.id())));
    let before = time();
    std::thread::sleep(Duration::from_secs(60));
    let taken = time() - before;
    println!("{taken:?} in a minute");
    assert!(taken <= MOST_TIME, "{taken:?}");
}

/// Limit for many machines that idle at once, of one processor. The monitor of a debug build takes
/// longer for the same.
const MOST_PERCENT: f64 = if cfg!(debug_assertions) { 1.5 } else { 0.5 };
const MANY: usize = 50;

#[test]
#[ignore = "minutes: make test-release"]
fn many_idle_machines_take_little_time() {
    let start = || {
        let mut command = vm::command(["--memory", "64M", "--net", "none", "--", "sh", "-c"]);
        let mut child = command
            .arg("echo ready; sleep 100000")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let line = program::first_line(&mut child);
        assert_eq!(line, "ready\n");
        Ends(child)
    };
    let machines: Vec<Ends> = (0..MANY).map(|_| start()).collect();
    std::thread::sleep(Duration::from_secs(60));
    let time = || -> u64 {
        let all = machines.iter().map(|m| tree::everything(m.0.id()));
        all.map(|pids| tree::cpu_time(&pids)).sum()
    };
    let (before, begun) = (time(), std::time::Instant::now());
    std::thread::sleep(Duration::from_secs(60));
    let taken = Duration::from_nanos(time() - before).as_secs_f64();
    let percent = taken / begun.elapsed().as_secs_f64() * 100.0;
    println!("{MANY} idle machines take {percent:.3} % of a processor");
    assert!(percent < MOST_PERCENT, "{percent} %");
}

#[test]
fn an_idle_machine_takes_little_memory() {
    // Files that are read for the first time would be counted.
    assert_eq!(vm::run(&["true"]).code, 0);
    let Some(group) = ControlGroup::new("memory", USED) else {
        skip("this user may not make a control group for memory");
        return;
    };
    let few = overhead(&group, 0);
    let many = overhead(&group, PROCESSES);
    let each = many.saturating_sub(few) / PROCESSES;
    println!(
        "{} KiB beyond the guest's memory, {} KiB for each process",
        few / KIB,
        each / KIB
    );
    assert!(few <= MOST, "{} KiB", few / KIB);
    assert!(each <= MOST_EACH, "{} KiB for each process", each / KIB);
}

#[test]
fn what_rested_is_as_it_was() {
    const SCRIPT: &str = r#"
        for i in 1 2 3 4 5 6; do
            (a=$(seq $i 20000); sleep 12
            [ "$(echo "$a" | md5sum)" = "$(seq $i 20000 | md5sum)" ] && echo same) &
        done
        wait
    "#;
    let got = program::finish(&mut vm::command(["--cpus", "2", "--", "sh", "-c", SCRIPT]));
    assert_eq!(
        (got.code, got.stdout.as_str()),
        (0, "same\n".repeat(6).as_str()),
        "{}",
        got.stderr
    );
}
