// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guesses of VMI-Linux (the list in docs/tuning.md) cost a program time at its start only: a
//! program that runs long is as fast in its last run in a machine as in its first. Each guess can
//! be turned off.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::worker::Worker;
use paravane_tests::{linux, program, source_root, vm};
use std::time::Duration;

/// Bytes that go back and forth in a run, each with two switches of spaces.
const TIMES: u32 = 5000;
const RUNS: u32 = 12;
/// How many more host calls for a hundred switches a run may take than the cheapest one. On a busy
/// host there are more clock interrupts and a few more wake-ups. A program for which cpuid faults
/// makes a hundred more.
const MORE: u64 = 30;

/// Runs a script several times and returns the host calls for a hundred switches of each run,
/// without those that put the thread of a hand-over to sleep and wake it: whether there are any is
/// up to the host's scheduler. The host claims that it can make cpuid fault, so that the cost of
/// learning is the same everywhere.
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
            // The vCPU stays on its CPU, so that nothing else changes.
            ["--cpus", "1", "--volume", &volume, "--without", "cpu-turns"]
                .map(String::from)
                .to_vec()
        },
    );
    let fields = ["host_calls", "parks", "switches"];
    let [calls, parks, switches] = machine.costs(Duration::ZERO, RUNS, fields);
    machine.end();
    println!("{calls:?} host calls, {parks:?} parks, {switches:?} switches");
    let least = u64::from(2 * TIMES);
    assert!(switches.iter().all(|&count| count >= least), "{switches:?}");
    (calls.iter().zip(parks).zip(switches))
        .map(|((calls, parks), switches)| calls.saturating_sub(2 * parks) * 100 / switches)
        .collect()
}

fn the_same_each_time(script: &str) {
    let costs = costs(script);
    println!("{costs:?} host calls for 100 switches");
    let least = costs.iter().min().unwrap();
    let expensive: Vec<_> = costs.iter().filter(|&&cost| cost > least + MORE).collect();
    assert!(
        expensive.is_empty(),
        "{expensive:?} of {costs:?} host calls for 100 switches"
    );
}

/// The processes are like a server with many clients.
#[test]
fn many_clients_of_a_server() {
    the_same_each_time(
        "/x/switch serve a & while read line; do /x/switch ask a TIMES; echo; done; kill $!",
    );
}

/// Starts both programs each time. One has run often before, so the kernel does not learn from both
/// in the same runs.
#[test]
fn many_pairs() {
    the_same_each_time(
        "cp /x/switch /tmp/new; cp /x/switch /tmp/known
        for i in 1 2 3 4 5 6 7 8 9 10; do /tmp/known; done
        while read line; do /tmp/known once a & /tmp/new ask a TIMES; wait; echo; done",
    );
}

/// A line is a parameter's file and its value, or empty: then ordinary programs run.
const PROGRAMS: &str = r#"
    mount -t debugfs debug /sys/kernel/debug
    while read line; do
        case $line in
            *=*) echo ${line#*=} > ${line%=*} || exit 1;;
            *) i=0; while [ $i -lt 100 ]; do /bin/true; i=$((i+1)); done;;
        esac
        echo
    done"#;

/// Tests each switch for work that exec, fork and faults do ahead. With a switch off, more work is
/// left for later.
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

/// Anonymous memory: at most 16 pages for each one that is used, and 512 where it is shared and
/// that long; one page where a program says so.
#[test]
fn large_folios_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    linux::compile(
        &source_root().join("tests/guest/sparse"),
        &folder.path().join("sparse"),
    );
    let volume = format!("{}:/x:ro", folder.path().display());
    let never = "transparent_hugepage=never";
    for (memory, append, arguments, least, most) in [
        ("256M", "", "500 65536", 2, 16),
        ("256M", never, "500 65536", 1, 1),
        ("1G", "", "50 2097152 shared", 257, 512),
        // A large page, and smaller folios in the rest, in which no other fits.
        ("1G", "", "40 65536 shared", 15, 16),
        ("1G", never, "50 2097152 shared", 1, 1),
        // Linux turns large pages off where there is so little memory.
        ("256M", "", "50 2097152 shared", 1, 1),
    ] {
        let mut command = vm::command(["--memory", memory, "--volume", &volume]);
        command.args(["--append", append, "--", "/x/sparse"]);
        let run = program::finish(command.args(arguments.split(' ')));
        let pages: u64 = run.stdout.trim().parse().unwrap();
        println!("{memory} {append} {arguments}: {pages}");
        assert!(
            (least..=most).contains(&pages),
            "{memory} {append} {arguments}: {pages} pages for one"
        );
    }
}

/// Small private memory and libraries are prepared at the start of a program. One that makes many
/// such mappings gets no more than a bound, and its child nothing.
#[test]
fn small_mappings_are_prepared_within_a_bound() {
    const LIBRARY: usize = 256 << 12;
    let folder = tempfile::tempdir().unwrap();
    linux::compile(
        &source_root().join("tests/guest/mappings"),
        &folder.path().join("mappings"),
    );
    std::fs::write(folder.path().join("library"), vec![1; LIBRARY]).unwrap();
    let volume = format!("{}:/x:ro", folder.path().display());
    for (append, file, least, most) in [
        ("", None, 32, 64),
        ("vmi.populate=0", None, 0, 1),
        // The page of data of each is populated, too, and private.
        ("", Some("/x/library"), 1024, 1536),
        ("vmi.exec_fill=0", Some("/x/library"), -16, 64),
    ] {
        // The program's own text must not be mapped again while the pages are counted.
        let append = format!("vmi.shared_sites=0 {append}");
        let mut command = vm::command(["--volume", &volume, "--append", &append]);
        command.args(["--", "/x/mappings", "200"]).args(file);
        let run = program::finish(&mut command);
        let pages: Vec<i64> = run
            .stdout
            .split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        println!("{append} {file:?}: {pages:?}");
        assert!(
            (least..=most).contains(&pages[0]) && pages[1] <= 64,
            "{append} {file:?}: {pages:?} pages"
        );
    }
}

/// A process that writes the same pages after each fork takes few faults on them, and so do its
/// children. Processes that write other pages each time take as many faults as without the guess,
/// and such children cost their parent nothing.
#[test]
fn fork_learns_what_is_written_again() {
    let folder = tempfile::tempdir().unwrap();
    linux::compile(
        &source_root().join("tests/guest/forks"),
        &folder.path().join("forks"),
    );
    let volume = format!("{}:/x:ro", folder.path().display());
    // Faults of the parent and of its children, and pages that a child begins with. No fault copies
    // more than its page.
    let run = |append: &str, steps: &[&str]| -> [u64; 3] {
        let append = format!("vmi.copy_ahead=0 {append}");
        let mut command = vm::command(["--volume", &volume, "--append", &append]);
        let run = program::finish(command.args(["--", "/x/forks"]).args(steps));
        let mut counts = run
            .stdout
            .split_whitespace()
            .map(|word| word.parse().unwrap());
        let counts = [(); 3].map(|()| counts.next().unwrap());
        println!("{append} {steps:?}: {counts:?} faults for 100 forks, and pages");
        counts
    };
    let faults = |append: &str, steps: [&str; 2]| -> [u64; 2] {
        let [parent, children, _] = run(append, &steps);
        [parent, children]
    };
    let off = "vmi.fork_copies=0";
    let ([same, children], [same_off, children_off]) =
        (faults("", ["0", "0"]), faults(off, ["0", "0"]));
    assert!(
        same_off >= 800 && children_off >= 600,
        "{same_off} {children_off}"
    );
    assert!(same <= same_off / 4, "{same} {same_off}");
    assert!(children + 500 <= children_off, "{children} {children_off}");
    let ([mixed, others], [_, others_off]) = (faults("", ["0", "6"]), faults(off, ["0", "6"]));
    assert!(mixed <= same_off / 4, "{mixed} {same_off}");
    assert!(
        others <= others_off + others_off / 10,
        "{others} {others_off}"
    );
    let ([others, _], [others_off, _]) = (faults("", ["8", "0"]), faults(off, ["8", "0"]));
    assert!(
        others <= others_off + others_off / 10,
        "{others} {others_off}"
    );
    // Of 14 pages that are written, those between are copied if they are few. 20 others may be.
    let [close, apart, none] =
        [("", "3"), ("", "9"), (off, "3")].map(|(append, stride)| run(append, &["0", "0", stride]));
    assert!(close[0] <= same_off / 4, "{close:?}");
    assert!(close[2] <= 20 + 14 + 24, "{close:?}");
    assert!((10..=20 + 14).contains(&apart[2]), "{apart:?}");
    assert!(close[2] >= apart[2] + 10, "{close:?} {apart:?}");
    assert_eq!(none[2], 0);
}

/// All guesses of the kernel follow from the costs that the layer reports. A kernel without these
/// costs makes no guesses, unless its command line asks for them.
#[test]
fn without_costs_nothing_is_guessed() {
    const SHOW: &str = "cd /sys/module/vmi/parameters && grep . * && \
        cat /sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled && \
        mount -t debugfs debug /sys/kernel/debug && cat /sys/kernel/debug/fault_around_bytes";
    let guesses = |options: &[&str]| -> Vec<String> {
        let mut command = vm::command(options);
        let run = program::finish(command.args(["--", "sh", "-c", SHOW]));
        run.stdout.lines().map(str::to_string).collect()
    };
    let has = |lines: &[String], line: &str| lines.iter().any(|l| l == line);
    let (with, without) = (guesses(&[]), guesses(&["--without", "costs"]));
    for name in [
        "exec_fill",
        "exec_expect",
        "fork_copies",
        "populate",
        "neighbours",
        "rcu_expedite",
        "wake_here",
        "sites",
        "shared_sites",
    ] {
        assert!(has(&with, &format!("{name}:Y")), "{name}: {with:?}");
        assert!(has(&without, &format!("{name}:N")), "{name}: {without:?}");
    }
    assert!(has(&without, "cpuid:N"), "{without:?}");
    assert!(has(&with, "1048576"), "{with:?}");
    assert!(!has(&without, "1048576"), "{without:?}");
    assert!(has(&with, "[always] inherit madvise never"), "{with:?}");
    assert!(
        !has(&without, "[always] inherit madvise never"),
        "{without:?}"
    );
    let asked = guesses(&["--without", "costs", "--append", "vmi.populate=1"]);
    assert!(has(&asked, "populate:Y"), "{asked:?}");
    assert!(has(&asked, "fork_copies:N"), "{asked:?}");
}

/// Writes in a row to a private mapping of a file, or to pages that fork has shared, copy ahead.
/// Other writes take at most twice the memory that they write, and pages that a file loses are no
/// longer in the mapping.
#[test]
fn rows_of_writes_are_copied_ahead_within_a_bound() {
    const PAGES: u64 = 512;
    let folder = tempfile::tempdir().unwrap();
    linux::compile(
        &source_root().join("tests/guest/rows"),
        &folder.path().join("rows"),
    );
    let volume = format!("{}:/x", folder.path().display());
    // Page faults, and pages of the process's own.
    for (append, pattern, faults, own) in [
        ("", "row", 8..=40, PAGES..=PAGES),
        ("", "seen", 8..=40, PAGES..=PAGES),
        ("vmi.copy_ahead=0", "row", PAGES..=2 * PAGES, PAGES..=PAGES),
        ("", "half", PAGES / 2..=PAGES, PAGES / 2..=PAGES / 2),
        ("", "pairs", PAGES / 16..=PAGES / 8, PAGES / 16..=PAGES / 8),
        ("", "cut", 8..=40, PAGES / 2..=PAGES / 2 + 32),
        // Nothing is copied from a file that is open for writing.
        ("", "open", PAGES..=2 * PAGES, PAGES..=PAGES),
        ("", "shared", PAGES..=3 * PAGES, PAGES..=PAGES),
    ] {
        // In memory, in the shared folder, and what a child shares with its parent. The latter has
        // no file.
        for file in ["/tmp/file", "/x/file", "-f"] {
            if file == "-f" && ["seen", "cut", "open", "shared"].contains(&pattern) {
                continue;
            }
            let pages = PAGES.to_string();
            let mut command = vm::command(["--volume", &volume, "--append", append]);
            command.args(["--", "/x/rows"]);
            if file == "-f" {
                command.arg("-f");
            }
            command.args([file, &pages, pattern]);
            let run = program::finish(&mut command);
            assert_eq!(run.code, 0, "{append} {pattern} {file}: {run:?}");
            let said: Vec<u64> = run
                .stdout
                .split_whitespace()
                .map(|word| word.parse().unwrap())
                .collect();
            println!("{append} {pattern} {file}: {said:?}");
            assert!(
                faults.contains(&said[0]) && own.contains(&said[1]),
                "{append} {pattern} {file}: {said:?}"
            );
        }
    }
}

/// A function that changes again and again costs one fault each time: that of the write. The layer
/// takes the right to write from its page and keeps the page.
#[test]
fn code_that_changes_costs_one_fault() {
    const TIMES: u64 = 2000;
    let script = format!("while read -r line; do /x/jit {TIMES} && echo; done");
    let mut machine = Worker::start(None, &script, |folder| {
        linux::compile(&source_root().join("tests/guest/jit"), &folder.join("jit"));
        let volume = format!("{}:/x:ro", folder.display());
        ["--cpus", "1", "--volume", &volume]
            .map(String::from)
            .to_vec()
    });
    machine.work();
    let [fills] = machine.costs(Duration::ZERO, 3, ["fills"]);
    machine.end();
    println!("{fills:?} fills");
    // The start of the program takes some, too. Two faults each time would be twice as many.
    for fills in fills {
        assert!((TIMES..TIMES * 7 / 4).contains(&fills), "{fills}");
    }
}
