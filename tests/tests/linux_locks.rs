// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Spinlocks of VMI-Linux that wait in the layer, by their statistics.

// Alone: it measures shares of processors.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::busy::Busy;
use paravane_tests::lines::Lines;
use paravane_tests::one_cpu::{Cpus, OneCpu};
use paravane_tests::planted::Planted;
use paravane_tests::program::Ends;
use paravane_tests::worker::{Worker, sum};
use paravane_tests::{linux, lock_code, program, source_root, vm};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

const LOCKS: &str = "/sys/kernel/debug/vmi/locks";
/// Runs of a sound machine, one of which must have the counts that depend on when the host takes a
/// processor from a vCPU.
const TRIES: usize = 3;

/// Compiles a program for the guest into a folder.
fn compile(program: &str, folder: &Path) {
    let source = source_root().join("tests/guest").join(program);
    linux::compile(&source, &folder.join(program));
}

/// Runs a script in a machine with the program that contends for a lock, and the one that makes
/// interrupts. Returns what it printed.
fn run(cpus: &str, append: &str, script: &str) -> String {
    run_in(None, &["--cpus", cpus], append, script)
}

/// Runs the script with these options, and with this layer in place of the program's own.
fn run_in(layer: Option<&Planted>, options: &[&str], append: &str, script: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    compile("contend", folder.path());
    compile("interrupts", folder.path());
    let volume = format!("{}:/x:ro", folder.path().display());
    let mut command = match layer {
        None => vm::command(["--net", "none"]),
        Some(layer) => {
            let mut command = vm::command_with_hooks(["--plant-layer"]);
            command.arg(layer.rom());
            command
        }
    };
    command.args(options);
    command.args(["--volume", &volume, "--append", append]);
    let script = format!("mount -t debugfs none /sys/kernel/debug; L={LOCKS}; {script}");
    let run = program::finish(command.args(["--", "sh", "-c", &script]));
    assert_eq!(run.code, 0, "{run:?}");
    run.stdout
}

fn figures(text: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, value)| (name.to_string(), value.parse().unwrap()))
        .collect()
}

/// The sum of a histogram's buckets.
fn buckets(figures: &BTreeMap<String, u64>, histogram: &str) -> u64 {
    figures
        .iter()
        .filter(|(name, _)| name.starts_with(&format!("{histogram}[")))
        .map(|(_, count)| count)
        .sum()
}

/// The least and the most time that the counts of a histogram can be: bucket N has times from N up
/// to, but not, twice N, and the first one those of 0, too. The last one has no upper end, so a
/// count there is an error: 2 s of wait.
fn bounds(figures: &BTreeMap<String, u64>, histogram: &str) -> (u64, u64) {
    let (mut least, mut most) = (0, 0);
    for (name, &count) in figures {
        let Some(rest) = name.strip_prefix(&format!("{histogram}[")) else {
            continue;
        };
        let from: u64 = rest.strip_suffix(']').unwrap().parse().unwrap();
        assert!(from.is_power_of_two(), "{name}");
        assert!(from < 1 << 31 || count == 0, "{name} {count}");
        least += count * if from == 1 { 0 } else { from };
        most += count * (2 * from - 1);
    }
    (least, most)
}

/// A reset of a machine that does nothing else leaves nothing but the few locks that the shell and
/// the reading wait for. The load had far more, and more on each CPU.
fn assert_reset(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) {
    const FEW: u64 = 16;
    assert!(before["taken_slow"] > 20 * FEW, "{before:?}");
    assert!(before["waits"] > 4 * FEW, "{before:?}");
    for (name, &left) in after {
        if name.starts_with("time_") {
            assert!(left <= before[name] / 10, "{name}: {before:?} {after:?}");
        } else {
            assert!(left <= FEW, "{name}: {before:?} {after:?}");
        }
    }
    for histogram in ["histo_spinning_ns", "histo_blocked_ns"] {
        assert!(buckets(after, histogram) <= FEW, "{histogram}: {after:?}");
    }
}

/// Four vCPUs on two processors: some wait for a holder that does not run. Another vCPU may take a
/// lock between two lines, so the sums are compared in a machine that does nothing else.
#[test]
fn contended_locks_wait_in_the_layer() {
    let _two = Cpus::take_two();
    let text = run(
        "4",
        "",
        "for i in 1 2 3 4 5 6; do /x/contend 4 500 >/dev/null; done; sleep 1; cat $L; \
         echo reset 0; echo 0 > $L; cat $L",
    );
    let (before, after) = text.split_once("reset 0\n").unwrap();
    let (before, after) = (figures(before), figures(after));
    println!("{before:?}");
    assert!(before["taken_slow"] > 0, "{before:?}");
    assert!(before["waits"] > 0, "{before:?}");
    assert!(before["released_kicked"] > 0, "{before:?}");
    assert!(before["waits_spurious"] <= before["waits"], "{before:?}");
    assert!(
        before["taken_slow_pickup"] <= before["taken_slow"],
        "{before:?}"
    );
    for (histogram, count) in [
        ("histo_spinning_ns", "taken_slow"),
        ("histo_blocked_ns", "waits"),
    ] {
        let all = buckets(&before, histogram);
        assert!(all.abs_diff(before[count]) <= 8, "{histogram}: {before:?}");
    }
    assert!(before["time_blocked_ns"] > 0, "{before:?}");
    let (least, most) = bounds(&before, "histo_blocked_ns");
    // The wait that falls between the reading of the time and of the buckets.
    let between = before["time_blocked_ns"] / 100;
    assert!(least <= before["time_blocked_ns"] + between, "{before:?}");
    assert!(before["time_blocked_ns"] <= most + between, "{before:?}");
    assert_reset(&before, &after);
}

/// A layer that never says that a vCPU is preempted.
fn never_preempted() -> Planted {
    Planted::build("PREEMPTED_NEVER").unwrap()
}

/// A vCPU that interrupts three others on its own processor, and waits for them, gives it to one of
/// them. Without paravirtual locks, or a layer that knows which vCPU is preempted, it does not.
#[test]
fn a_sender_of_interrupts_yields_to_a_preempted_target() {
    const SCRIPT: &str = "echo 0 >$L; /x/interrupts 3 2000; cat $L";
    let _one = OneCpu::take();
    let yields = |layer: Option<&Planted>, append| {
        let text = run_in(layer, &["--cpus", "4"], append, SCRIPT);
        println!("{append}: {text}");
        figures(&text)["ipi_yields"]
    };
    assert!(yields(None, "") > 10);
    assert_eq!(yields(None, "vmi.pv_locks=0"), 0);
    assert_eq!(yields(Some(&never_preempted()), ""), 0);
}

/// A vCPU that interrupts a single target yields to it while it waits for the answer. Linux uses
/// another function for one target than for several.
#[test]
fn a_wait_for_an_answer_yields_to_a_preempted_target() {
    const SCRIPT: &str = "echo 0 >$L; /x/interrupts 1 2000 >/dev/null; cat $L";
    let _one = OneCpu::take();
    let yields = |layer: Option<&Planted>, append| {
        let text = run_in(layer, &["--cpus", "2"], append, SCRIPT);
        println!("{append}: {text}");
        figures(&text)["csd_yields"]
    };
    assert!(yields(None, "") > 10);
    assert_eq!(yields(None, "vmi.pv_locks=0"), 0);
    assert_eq!(yields(Some(&never_preempted()), ""), 0);
}

/// A vCPU does not spin for long in a queue if the vCPU before it is preempted.
#[test]
fn a_wait_behind_a_preempted_vcpu_begins_early() {
    const SCRIPT: &str = "echo 0 >$L; for i in 1 2 3 4 5 6; do /x/contend 4 500 >/dev/null; done; \
        cat $L";
    let _one = OneCpu::take();
    let counts = |layer: Option<&Planted>| {
        let text = run_in(layer, &["--cpus", "4"], "", SCRIPT);
        println!("{text}");
        let figures = figures(&text);
        (figures["waits"], figures["waits_early"])
    };
    let found = (0..TRIES).any(|_| {
        let (waits, early) = counts(None);
        assert!(early <= waits, "{early} of {waits}");
        early > 0
    });
    assert!(found, "no early wait in {TRIES} runs");
    assert_eq!(counts(Some(&never_preempted())).1, 0);
}

/// Programs of the host that burn one processor each, of those with these numbers.
fn strangers(processors: &[usize]) -> Vec<Busy> {
    let start = |&number: &usize| {
        let _one = OneCpu::take_nth(number);
        Busy::start(1)
    };
    processors.iter().map(start).collect()
}

/// What a machine of two vCPUs on two processors counts while a script runs: the statistics of its
/// locks, and calls of section lock. A layer with a fault counts no calls.
fn counts(layer: Option<&Planted>, append: &str, script: &str) -> BTreeMap<String, u64> {
    let script = format!(
        "S=/sys/kernel/debug/vmi/stats; for f in $L $S; do [ ! -e $f ] || echo 0 >$f; done; \
         {script}; [ ! -e $L ] || cat $L; [ ! -e $S ] || \
         sed -n 's/^\\(lock[.][a-z_]*\\) \\([0-9]*\\) .*/\\1 \\2/p' $S"
    );
    let mut options = vec!["--cpus", "2"];
    options.extend(layer.is_none().then_some("--count-calls"));
    let text = run_in(layer, &options, append, &script);
    println!("{append}: {text}");
    figures(&text)
}

/// A layer that does not know when another program has a vCPU's processor, unless that vCPU was
/// halted just before.
fn blind_to_strangers() -> Planted {
    Planted::build("PREEMPTED_BY_US_ONLY").unwrap()
}

/// A sound machine counts more than twice as much as one with that layer. A single run of either
/// depends on when the host takes the processors, so up to [`TRIES`] runs of each are added.
fn more_than_blind(sound: impl Fn() -> u64, blind: impl Fn() -> u64) {
    let mut sums = [0, 0];
    let found = (0..TRIES).any(|_| {
        sums[0] += sound();
        sums[1] += blind();
        sums[0] > 10 && sums[0] > 2 * sums[1]
    });
    assert!(found, "{} and, blind to strangers, {}", sums[0], sums[1]);
}

/// The holder of a lock loses its processor to another program of the host. The vCPU that waits for
/// the lock learns that, and yields.
#[test]
fn a_waiter_gives_way_to_a_holder_that_lost_its_processor_to_a_stranger() {
    const SCRIPT: &str = "for i in 1 2 3 4 5 6; do /x/contend 2 500 >/dev/null; done";
    let _two = Cpus::take_two();
    let _stranger = strangers(&[1]);
    // Those while it waits for a lock.
    let yields = |figures: &BTreeMap<String, u64>| {
        let of = |name: &str| figures.get(name).copied().unwrap_or(0);
        of("lock.yield") - of("ipi_yields") - of("csd_yields")
    };
    let planted = blind_to_strangers();
    more_than_blind(
        || {
            let sound = counts(None, "", SCRIPT);
            assert!(yields(&sound) > 10, "{sound:?}");
            assert!(sound["waits"] >= yields(&sound), "{sound:?}");
            assert!(sound["time_blocked_ns"] > 0, "{sound:?}");
            sound["waits_early"]
        },
        || counts(Some(&planted), "", SCRIPT)["waits_early"],
    );
    let spinning = counts(None, "vmi.pv_locks=0", SCRIPT);
    assert_eq!((yields(&spinning), spinning["waits"]), (0, 0));
    let none = counts(None, "nopvspin", SCRIPT);
    assert!(!none.contains_key("lock.yield") && !none.contains_key("waits"));
}

/// A vCPU that waits for the answer of an interrupted vCPU yields to it if that vCPU has lost its
/// processor. Another program of the host runs on the processor of each, since either may be the
/// sender.
#[test]
fn a_sender_gives_way_to_a_target_that_lost_its_processor_to_a_stranger() {
    const SCRIPT: &str = "/x/interrupts 1 3000 >/dev/null";
    let _two = Cpus::take_two();
    let _strangers = strangers(&[0, 1]);
    let yields =
        |layer: Option<&Planted>, append: &str| counts(layer, append, SCRIPT)["csd_yields"];
    let planted = blind_to_strangers();
    more_than_blind(|| yields(None, ""), || yields(Some(&planted), ""));
    assert_eq!(yields(None, "vmi.pv_locks=0"), 0);
}

/// A machine without such locks has no statistics of them: with `nopvspin`, and with a single vCPU.
#[test]
fn locks_that_spin_have_no_statistics() {
    for (cpus, append) in [("2", "nopvspin"), ("1", "")] {
        let text = run(
            cpus,
            append,
            "/x/contend 2 200 >/dev/null; test -e $L || echo none",
        );
        assert_eq!(text, "none\n", "{cpus} {append}");
    }
}

/// `vmi.pv_locks` turns the waits off and on while others contend for locks: the two ways of
/// waiting do not know each other's waiters, so a switch at a wrong moment would lose one.
#[test]
fn waits_can_be_turned_off_and_on() {
    let text = run(
        "4",
        "",
        "P=/sys/module/vmi/parameters/pv_locks\n\
         work() { for i in 1 2 3; do /x/contend 4 500 >/dev/null; done; }\n\
         cat $P; echo 0 >$P; cat $P; echo 0 >$L; work; cat $L; echo on 0\n\
         echo 1 >$P; work; cat $L; echo switched 0\n\
         (for i in 1 2 3 4 5 6 7 8 9; do /x/contend 4 500 >/dev/null; done) &\n\
         for i in $(seq 100); do echo $((i % 2)) >$P; done; wait; cat $P; echo 1 >$P; cat $P\n\
         echo x >$P || echo refused",
    );
    let (off, rest) = text.split_once("on 0\n").unwrap();
    let (on, rest) = rest.split_once("switched 0\n").unwrap();
    let off = off.strip_prefix("Y\nN\n").unwrap();
    assert_eq!(figures(off)["taken_slow"], 0, "{off}");
    assert!(figures(on)["taken_slow"] > 0, "{on}");
    assert_eq!(rest, "N\nY\nrefused\n");
}

/// The instructions that take and release locks in a kernel that has patched its sites.
fn instructions(append: &str) -> Vec<String> {
    let mut machine = vm::command(["--cpus", "2", "--append", append, "--gdb", ":0"])
        .args(["--", "sync"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = Lines::of(machine.stderr.take());
    let _machine = Ends(machine);
    // paravane: waiting for gdb -ex 'symbol-file ...' -ex 'target remote ...'
    let line = errors.next_within(program::PATIENCE);
    let attach: Vec<&str> = line.split('\'').skip(1).step_by(2).collect();
    lock_code::listed(&[&attach[..], &["break __x64_sys_sync", "continue"]].concat())
}

/// An uncontended lock takes the same instructions with paravirtual locks as without: the
/// release is a store.
#[test]
fn an_uncontended_lock_is_the_same_instructions() {
    let (locks, plain) = (instructions(""), instructions("nopvspin"));
    assert_eq!(locks, plain);
    let stores = locks.iter().filter(|line| line.contains("movb   $0x0,("));
    assert!(stores.count() >= 3, "{locks:?}");
}

/// Calls that wait for a lock or wake a waiter, by name. `lock.preempted` is not one: the scheduler
/// makes it, too.
fn calls(machine: &Worker) -> BTreeMap<String, u64> {
    let run = program::finish(&mut machine.command(&["calls", "one", "--json", "--reset"]));
    assert_eq!(run.code, 0, "{run:?}");
    let json: Value = serde_json::from_str(&run.stdout).unwrap();
    let calls = json["calls"].as_array().unwrap().iter();
    let all: BTreeMap<String, u64> = calls
        .map(|call| {
            (
                call["name"].as_str().unwrap().to_string(),
                call["calls"].as_u64().unwrap(),
            )
        })
        .collect();
    // It counts, and the machine has worked.
    assert!(all["mmu.set_cr3"] > 50, "{all:?}");
    all.into_iter()
        .filter(|(name, _)| ["lock.wait", "lock.kick", "lock.yield"].contains(&name.as_str()))
        .collect()
}

/// Host calls of a machine that takes uncontended locks for a second, in a million locks. Two are
/// taken for each number that the program counts.
#[allow(clippy::cast_precision_loss)] // counts
fn host_calls(machine: &mut Worker) -> f64 {
    let before = sum(&machine.stat(), "host_calls");
    let times: u64 = machine.tell("locks").trim().parse().unwrap();
    let made = sum(&machine.stat(), "host_calls") - before;
    println!("{made} host calls, {times} times");
    made as f64 / (2 * times) as f64 * 1e6
}

/// A kernel with paravirtual locks makes no call of the layer for an uncontended lock, and so no
/// call of the host. With the other CPUs offline, no CPU can contend.
#[test]
fn an_uncontended_lock_makes_no_calls() {
    const SCRIPT: &str = "while read line; do case $line in \
        [01]) for c in 1 2 3; do echo $line >/sys/devices/system/cpu/cpu$c/online; done;; \
        [YN]) echo $line >/sys/module/vmi/parameters/pv_locks;; esac; \
        [ \"$line\" = locks ] || for i in $(seq 50); do /bin/true; done; /x/contend 4 1000; done";
    let folder = tempfile::tempdir().unwrap();
    compile("contend", folder.path());
    let volume = format!("{}:/x:ro", folder.path().display());
    let mut machine = Worker::start(None, SCRIPT, |_| {
        vec!["--count-calls", "--cpus", "4", "--volume", &volume]
            .into_iter()
            .map(str::to_string)
            .collect()
    });
    machine.tell("0");
    calls(&machine);
    machine.work();
    assert_eq!(calls(&machine), BTreeMap::new());
    // The rest happens in any second, with either kind of wait: a thousand ticks and switches.
    let with = host_calls(&mut machine);
    machine.tell("N");
    let without = host_calls(&mut machine);
    assert!(with < 10_000.0 && without < 10_000.0, "{with} {without}");
    assert!(with < without * 1.5 + 1000.0, "{with} {without}");
    machine.tell("Y");
    machine.tell("1");
    calls(&machine);
    machine.work();
    let both = calls(&machine);
    println!("{both:?}");
    assert!(both.values().sum::<u64>() > 0, "{both:?}");
    machine.end();
}
