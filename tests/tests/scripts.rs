// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How `make test` reports a failure (scripts/failed.sh), and runs programs beside each other
//! (scripts/lanes.sh), with a cargo of the test's own. A first build that would fill a disk
//! (scripts/setup.sh), with disks of the test's own.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::program::{self, Run};
use paravane_tests::skip::{skip, skip_part};
use paravane_tests::{source_root, tree};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::thread;

/// What cargo prints of two programs with a failure each.
const TWO: &str = "
     Running unittests src/lib.rs (target/debug/deps/paravane_abi-df1241a0284e8f2f)
test sums::adds ... ok
test sums::steady ... FAILED
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out
     Running tests/conformance.rs (target/debug/deps/conformance-df1241a0284e8f2f)
test fault::BROKEN::native::1_vcpus   ... FAILED
test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out
error: 2 targets failed:
    `-p paravane-abi --lib`
    `-p paravane-tests --test conformance`
";

/// Sources the script with a cargo that passes for arguments with the word `steady`, and runs more.
fn script(log: &str, more: &str) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let cargo = folder.path().join("cargo");
    fs::write(
        &cargo,
        "#!/bin/sh\necho \"cargo $*\" >&2\ncase $* in\n\
         *steady*) echo 'test result: ok. 1 passed; 0 failed'; exit 0 ;;\n\
         *unknown*) echo 'test result: ok. 0 passed; 0 failed'; exit 0 ;;\nesac\nexit 101\n",
    )
    .unwrap();
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
    let file = folder.path().join("log");
    fs::write(&file, log).unwrap();
    let all = format!(
        ". {0}/lib.sh; . {0}/failed.sh; PATH={1}:$PATH; log={2}; {more}",
        source_root().join("scripts").display(),
        folder.path().display(),
        file.display()
    );
    program::finish(Command::new("bash").arg("-c").arg(all))
}

#[test]
fn a_failure_runs_again_alone() {
    let run = script(TWO, "failed_again \"$log\" 2 --release");
    assert_eq!((run.code, run.stdout.as_str()), (0, "1\n"), "{run:?}");
    for line in [
        "cargo test --locked --package paravane-abi --lib --release -- --include-ignored --exact \
         sums::steady",
        "==> unsteady: sums::steady failed beside other tests and passed alone",
        "cargo test --locked --workspace --test conformance --release -- --include-ignored --exact \
         fault::BROKEN::native::1_vcpus",
        "==> failed: fault::BROKEN::native::1_vcpus",
    ] {
        assert!(
            run.stderr.lines().any(|said| said == line),
            "{line}: {run:?}"
        );
    }
}

#[test]
fn what_has_no_name_has_failed() {
    // More failures than names, more than a few, none.
    for (count, expected) in [(3, "3\n"), (40, "40\n"), (0, "0\n")] {
        let run = script(TWO, &format!("failed_again \"$log\" {count}"));
        assert_eq!((run.code, run.stdout.as_str()), (0, expected), "{run:?}");
        assert!(!run.stderr.contains("cargo test"), "{run:?}");
    }
    // Output of another process has cut the line with the name.
    let cut =
        "test sums::adds ... noise FAILED\ntest sums::\ntest result: FAILED. 0 passed; 1 failed;\n";
    let run = script(cut, "failed_again \"$log\" 1");
    assert_eq!((run.code, run.stdout.as_str()), (0, "1\n"), "{run:?}");
    assert!(!run.stderr.contains("cargo test"), "{run:?}");
    // No program has a test of that name.
    let unknown = TWO.replace("sums::steady", "sums::unknown");
    let run = script(&unknown, "failed_again \"$log\" 2");
    assert_eq!((run.code, run.stdout.as_str()), (0, "2\n"), "{run:?}");
    // A test in documentation.
    let documentation = "   Doc-tests paravane_abi\ntest abi/src/lib.rs - (line 3) ... FAILED\n";
    let run = script(documentation, "failed_again \"$log\" 1");
    assert_eq!((run.code, run.stdout.as_str()), (0, "1\n"), "{run:?}");
    assert!(!run.stderr.contains("cargo test"), "{run:?}");
}

#[test]
fn a_program_without_a_result_is_seen() {
    let judge = "all_have_results \"$log\" && echo all || echo some";
    assert_eq!(script(TWO, judge).stdout, "all\n");
    let died = format!("{TWO}    `-p paravane-tests --test gdb`\n");
    assert_eq!(script(&died, judge).stdout, "some\n");
}

/// A test that was skipped has not passed, however often it ran. One that ran in part has.
#[test]
fn skipped_tests_are_counted_and_told() {
    let log = "\
test long_one ... ignored, takes minutes
test conformance::kept   ... ignored
test ignored_words ... ok
test result: ok. 3 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out
";
    let said = "\
kvm linux_runs: no /dev/kvm: not there
kvm gdb::linux_runs: the same
kvm linux_runs: no /dev/kvm, a second time
vbusd linux_runs: only root can mount
profile busy (in part): this host allows no perf
";
    let more = format!(
        "printf %s '{said}' >\"$log.said\"; skipped_tests \"$log.said\"; \
         tell_skipped \"$log.said\" \"$log\"; : >\"$log.said\"; \
         skipped_tests \"$log.said\""
    );
    let run = script(log, &more);
    assert_eq!((run.code, run.stdout.as_str()), (0, "3\n0\n"), "{run:?}");
    let mut told: Vec<&str> = run.stderr.lines().collect();
    told.sort_unstable();
    let mut expected: Vec<String> = said
        .lines()
        .chain([
            "long_one: #[ignore] takes minutes",
            "conformance::kept: #[ignore]",
        ])
        .map(|line| format!("==> skipped: {line}"))
        .collect();
    expected.sort_unstable();
    assert_eq!(told, expected);
}

/// The scripts count all skipped tests, also when several programs report one at the same time.
#[test]
fn what_skipped_tests_say_is_counted() {
    const AGAIN: &str = "PARAVANE_TEST_SKIPS";
    if std::env::var_os(AGAIN).is_some() {
        skip("a reason\nof two lines");
        skip_part("a part");
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let this = std::env::current_exe().unwrap();
    let both: Vec<_> = [(); 2]
        .map(|()| {
            let mut command = Command::new(&this);
            command
                .args(["--exact", "what_skipped_tests_say_is_counted"])
                .env(AGAIN, "1")
                .env("PARAVANE_SKIPPED", file.path())
                .stdout(std::process::Stdio::null());
            command.spawn().unwrap()
        })
        .into_iter()
        .map(|mut child| program::wait_within(&mut child, program::PATIENCE).code())
        .collect();
    assert_eq!(both, [Some(0); 2]);
    let said = fs::read_to_string(file.path()).unwrap();
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    let name = "scripts what_skipped_tests_say_is_counted";
    let part = format!("{name} (in part): a part");
    let whole = format!("{name}: a reason of two lines");
    assert_eq!(lines, [&part, &part, &whole, &whole]);
    let count = format!("skipped_tests {}", file.path().display());
    assert_eq!(script("", &count).stdout, "1\n");
}

/// A program that needs the host for itself is found in the tests of each crate.
#[test]
fn programs_that_run_alone_are_those_of_every_crate() {
    let folder = tempfile::tempdir().unwrap();
    for (place, text) in [
        (
            "tests/tests/one.rs",
            "//! One.\n\n// Alone: it measures time.\n",
        ),
        ("vbus/daemon/tests/two.rs", "// Alone: it measures time.\n"),
        ("agent/tests/three.rs", "// Alone: it measures time.\n"),
        ("agent/tests/four.rs", "//! // Alone: no line of its own.\n"),
        ("agent/tests/five.rs", ""),
        (
            "vbus/core/tests/five.rs",
            "// Alone: one of two programs.\n",
        ),
    ] {
        let file = folder.path().join(place);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    let more = format!(
        ". {}/lanes.sh; root={}; for name in one two three four five six; do \
         if is_alone $name; then echo $name; fi; done",
        source_root().join("scripts").display(),
        folder.path().display()
    );
    let run = script("", &more);
    assert_eq!(run.stdout, "one\ntwo\nthree\nfive\n", "{run:?}");
}

/// Programs in place of the system's: each prints by a script what a test needs.
fn in_place_of_system(folder: &Path, programs: &[(&str, &str)]) -> String {
    for (name, script) in programs {
        let file = folder.join(name);
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

/// A first build is refused where it would fill a disk, in a line; a later one is not.
#[test]
fn a_full_disk_is_told_before_the_first_build() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for place in ["bin", "a/made", "b/paravane/kernel", "c"] {
        fs::create_dir_all(folder.join(place)).unwrap();
    }
    // Disk a has 8.9 GB, all others have 2.9 GB.
    let df = "echo 'Filesystem 1024-blocks Used Available Capacity Mounted on'\n\
              case $2 in */a) free=8900000 ;; *) free=2900000 ;; esac\n\
              echo \"/dev/vda 1000 500 $free 50% /\"";
    let setup = |disks: &str, purpose: &str, target: &str, cache: &str| {
        let programs = [("df", df), ("stat", disks)];
        let path = in_place_of_system(&folder.join("bin"), &programs);
        let mut command = Command::new(source_root().join("scripts/setup.sh"));
        command
            .arg(purpose)
            .env("PATH", path)
            .env("CARGO_TARGET_DIR", folder.join(target))
            .env("XDG_CACHE_HOME", folder.join(cache));
        let run = program::finish(&mut command);
        assert_eq!(run.stdout, "", "{run:?}");
        (run.code, run.stderr)
    };
    let refusal = |place: &str, takes: u32, free: u32| {
        let place = folder.join(place);
        let place = place.display();
        let line = format!(
            "error: {place}: a first build takes {takes} GB, and {free} GB are free: make room\n"
        );
        (1, line)
    };
    let (one, two) = ("echo 1", "echo \"$3\"");
    // All on one disk.
    assert_eq!(setup(one, "test", "a/none", "a"), refusal("a", 9, 8));
    assert_eq!(setup(one, "test", "c/none", "b"), refusal("c", 6, 2));
    // Linux on another.
    assert_eq!(setup(two, "test", "a/none", "c"), refusal("c", 3, 2));
    assert_eq!(setup(two, "test", "c/none", "a"), refusal("c", 6, 2));
    assert_eq!(setup(two, "run", "a/made", "c"), refusal("c", 3, 2));
    // Nothing more is needed, or there is room for it.
    let good = (0, String::new());
    assert_eq!(setup(one, "build", "c/none", "c"), good);
    assert_eq!(setup(two, "build", "a/none", "c"), good);
    assert_eq!(setup(two, "build", "a/made", "b"), good);
}

/// A cargo that has three test programs, one of which needs the host for itself. Each says when it
/// begins and ends; `failing` fails, `hanging` sleeps, `hanging_once` sleeps the first time, and
/// `busy` computes for two seconds of processor time. The units of libraries and of documentation
/// wait until the other one begins, for ten seconds at most.
fn lanes(names: [&str; 3], end: &str) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let [a, b, c] = names;
    let cargo = format!(
        "case $* in\n*--no-run*)\n\
         for name in {a} {b} {c}; do echo \"  Executable tests/$name.rs (x)\" >&2; done\n\
         exit 0 ;;\nesac\n\
         meet() {{ for i in $(seq 100); do\n\
         ! grep -q \"^begin .* $1 \" {0}/order || return 0; sleep 0.1; done; }}\n\
         echo \"begin $*\" >>{0}/order\n\
         sed -n 's/^SigIgn:[^0-9a-f]*/ignores: /p' /proc/self/status\n\
         echo \"     Running $*\" >&2\n\
         case $* in\n\
         *hanging_once*) echo $$ >{0}/pid; mkdir {0}/once 2>/dev/null && sleep 60 ;;\n\
         *hanging*) echo $$ >{0}/pid; sleep 60 ;;\n\
         *busy*) sh -c 'ulimit -t 2; while :; do :; done' ;;\n\
         *--lib*) meet --doc ;;\n\
         *--doc*) meet --lib ;;\n\
         *) sleep 0.3 ;;\nesac\n\
         echo \"end $*\" >>{0}/order\necho \"test result: ok. 1 passed; $RUST_TEST_THREADS\"\n\
         case $* in *failing*) exit 101 ;; esac",
        folder.display()
    );
    // A small installation has no ps.
    let path = in_place_of_system(folder, &[("cargo", &cargo), ("ps", "exit 127")]);
    let all = format!(
        ". {0}/lib.sh; . {0}/lanes.sh; PATH={path}; cd {1}\n\
         test_units --release >units; {end} run_lanes log units --release -- --include-ignored && \
         echo passed || echo failed\ncat log order; \
         [ ! -e log.died ] || sed 's/^/died: /' log.died; tell_slowest log 3 2>&1",
        source_root().join("scripts").display(),
        folder.display(),
    );
    let mut command = Command::new("bash");
    // This test may run in a lane itself.
    command.arg("-c").arg(all).env_remove("RUST_TEST_THREADS");
    let mut run = program::finish(&mut command);
    if let Ok(pid) = fs::read_to_string(folder.join("pid")) {
        let pid = pid.trim().parse().unwrap();
        let gone = tree::wait_gone(&[pid]).is_ok();
        run.stdout.push_str(if gone { "gone\n" } else { "alive\n" });
    }
    run
}

/// Programs run two at a time, except for those that need the host for themselves.
#[test]
fn programs_run_in_lanes() {
    let run = lanes(["attacks", "latency", "process_time"], "");
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert!(lines.contains(&"passed"), "{run:?}");
    let order: Vec<&str> = lines
        .iter()
        .copied()
        .filter(|line| line.starts_with("begin ") || line.starts_with("end "))
        .collect();
    let of = |unit: &str| format!("test --locked --workspace --no-fail-fast {unit} --release");
    let place = |word: &str, unit: &str| {
        let line = format!("{word} {} -- --include-ignored", of(unit));
        let place = order.iter().position(|said| *said == line);
        place.unwrap_or_else(|| panic!("{line}: {run:?}"))
    };
    assert_eq!(order.len(), 10, "{run:?}");
    // The second begins before the first ends, and those alone when all others have ended.
    assert_eq!(
        place("begin", "--doc").max(place("begin", "--lib --bins")),
        1
    );
    let [latency, time] = ["--test latency", "--test process_time"];
    assert_eq!(place("begin", latency), 6);
    assert_eq!(place("end", latency), 7);
    assert_eq!((place("begin", time), place("end", time)), (8, 9));
    // One test at a time in a lane, and alone unless the program plans more.
    for (unit, threads) in [
        ("--doc", "1"),
        ("--test attacks", "1"),
        (latency, "1"),
        (time, ""),
    ] {
        let begin = format!("     Running {} -- --include-ignored", of(unit));
        let mut after = lines.iter().skip_while(|line| **line != begin);
        let result = after.find(|line| line.starts_with("test result: "));
        let expected = format!("test result: ok. 1 passed; {threads}");
        assert_eq!(result, Some(&expected.as_str()), "{unit}: {run:?}");
    }
    // Tests send SIGINT and SIGQUIT, numbers 2 and 3, to programs.
    let ignored: Vec<_> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("ignores: "))
        .map(|set| u64::from_str_radix(set, 16).unwrap() & 0b110)
        .collect();
    assert!(
        ignored.len() >= 5 && ignored.iter().all(|set| *set == 0),
        "{run:?}"
    );
}

/// The scripts name the programs that take long, and whether they compute or wait. All units are
/// those that it names and two more.
#[test]
fn the_slowest_programs_are_named() {
    let run = lanes(["attacks", "busy", "gdb"], "");
    let mut lines = run.stdout.lines();
    let title = "==> the slowest units: seconds, seconds of processor time";
    assert!(lines.any(|line| line == title), "{run:?}");
    let slowest: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    let numbers: Vec<u32> = slowest[..2].iter().map(|n| n.parse().unwrap()).collect();
    assert_eq!(slowest[2..], ["--test", "busy"], "{run:?}");
    assert!(numbers[0] >= 2 && numbers[1] == 2, "{run:?}");
    let rest: Vec<&str> = lines.collect();
    let all: Vec<&str> = rest[2].split_whitespace().collect();
    assert_eq!(
        (rest.len(), &all[2..]),
        (3, &["all", "units"][..]),
        "{run:?}"
    );
    let sums: Vec<u32> = all[..2].iter().map(|n| n.parse().unwrap()).collect();
    assert!(sums[0] >= numbers[0] && sums[1] >= numbers[1], "{run:?}");
}

#[test]
fn a_program_that_fails_fails_the_lanes() {
    for names in [["attacks", "failing", "gdb"], ["attacks", "gdb", "failing"]] {
        let run = lanes(names, "");
        // Its tests have passed, so that it has failed for another reason.
        for said in ["failed", "died: --test failing"] {
            assert!(
                run.stdout.lines().any(|line| line == said),
                "{said}: {run:?}"
            );
        }
    }
}

/// An interrupted `make test` leaves no test that runs.
#[test]
fn an_interrupt_ends_the_lanes() {
    let end = "(for i in $(seq 300); do [ ! -e pid ] || break; sleep 0.1; done; kill -TERM $$) &";
    let run = lanes(["attacks", "hanging", "gdb"], end);
    assert_eq!(run.code, 130, "{run:?}");
    assert!(run.stdout.ends_with("gone\n"), "{run:?}");
}

/// Programs that hang are ended, with a report of what each of their threads does. A program that
/// does not hang when it runs again has passed, as a test that fails once has.
#[test]
fn a_program_that_hangs_is_ended() {
    let case = |names, hung: &str, good: bool| {
        let run = lanes(names, "unit_seconds=14;");
        let said = |line: &str| run.stdout.lines().any(|said| said == line);
        let ended = format!("==> --test {hung}: ended, it ran for more than 14 s");
        assert!(said(&ended), "{run:?}");
        // The program, what it waits for, and where its thread is in the host.
        for of_the_report in ["sleep 60", "do_wait", "S (sleeping)"] {
            assert!(run.stdout.contains(of_the_report), "{run:?}");
        }
        assert!(said("gone"), "{run:?}");
        assert_eq!(said("passed"), good, "{run:?}");
        let steady = "==> unsteady: --test hanging_once hung and has ended alone";
        assert_eq!(run.stderr.lines().any(|line| line == steady), good);
        assert_eq!(run.stdout.contains("died: --test hanging"), !good);
    };
    // They take their time, beside each other.
    thread::scope(|scope| {
        for (names, hung, good) in [
            (["attacks", "hanging", "gdb"], "hanging", false),
            (["attacks", "hanging_once", "gdb"], "hanging_once", true),
            (["hanging_once", "hanging", "gdb"], "hanging_once", false),
        ] {
            scope.spawn(move || case(names, hung, good));
        }
    });
}

/// A test that needs a processor for itself needs the host for itself.
#[test]
fn tests_of_one_processor_run_alone() {
    let mut seen = 0;
    for entry in fs::read_dir(source_root().join("tests/tests")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        if text.contains(&["OneCpu", "::take"].concat()) {
            seen += 1;
            let alone = text.lines().any(|line| line.starts_with("// Alone: "));
            assert!(alone, "{}: no line `// Alone: REASON`", path.display());
        }
    }
    assert!(seen > 3, "{seen}");
}
