// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane bench apps` measures applications on both sides of the same root and reports them in
//! the agreed form. The figures are not checked: a host that runs tests is busy. The root is a
//! folder with programs of the host; with Debian's packages the long test measures.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::lines::Lines;
use paravane_tests::program::{self, Ends, Run};
use paravane_tests::small_root::{self, replace};
use paravane_tests::{linux, tree, vm};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What the applications `bash` and `text` run, and the driver.
const PROGRAMS: [&str; 17] = [
    "awk",
    "cat",
    "grep",
    "gzip",
    "ip",
    "mkdir",
    "mktemp",
    "mount",
    "rm",
    "sed",
    "seq",
    "sha256sum",
    "sleep",
    "sort",
    "sync",
    "tail",
    "wc",
];

/// A root with these programs.
fn small_root() -> tempfile::TempDir {
    small_root::make(&PROGRAMS)
}

/// `bench apps` with these options, one quick round.
fn bench(cache: &Path, words: &[&str]) -> Run {
    program::finish(&mut command(cache, words))
}

fn command(cache: &Path, words: &[&str]) -> Command {
    let mut command = program::command();
    command.args(["bench", "apps", "--quick", "--rounds", "1"]);
    // The user's cache may have no kernel of this program, and must not get folders for work.
    let kernel = vm::kernel().unwrap_or_else(linux::kernel);
    command.arg("--kernel").arg(kernel);
    command.args(words).env("XDG_CACHE_HOME", cache);
    command
}

fn check_row(row: &serde_json::Value) {
    for field in ["host", "guest", "ratio", "low", "high"] {
        let value = row[field].as_f64().unwrap_or(f64::NAN);
        assert!(value.is_finite() && value > 0.0, "{row}: {field}");
    }
    let number = |field: &str| row[field].as_f64().unwrap();
    assert!(
        number("low") <= number("ratio") && number("ratio") <= number("high"),
        "{row}"
    );
    assert_eq!(
        (row["rounds"].as_u64(), row["system"].as_str()),
        (Some(1), Some("paravane"))
    );
    let speed = if row["unit"].as_str().unwrap().ends_with("/s") {
        number("guest") / number("host")
    } else {
        number("host") / number("guest")
    };
    assert!((speed / number("ratio") - 1.0).abs() < 1e-6, "{row}");
}

#[test]
fn applications_are_measured_in_each_place() {
    let (root, cache) = (small_root(), tempfile::tempdir().unwrap());
    let picture = cache.path().join("plot.svg");
    let run = bench(
        cache.path(),
        &[
            "bash",
            "text",
            "--vcpus",
            "1",
            "--json",
            "--plot",
            picture.to_str().unwrap(),
            "--root",
            root.path().to_str().unwrap(),
        ],
    );
    assert_eq!(run.code, 0, "{}\n{}", run.stdout, run.stderr);
    let result: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        result["missing"].as_array().map(Vec::len),
        Some(0),
        "{result}"
    );
    let rows = result["rows"].as_array().unwrap();
    let names: Vec<(&str, &str)> = rows
        .iter()
        .map(|row| {
            (
                row["name"].as_str().unwrap(),
                row["place"].as_str().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("bash", "rootfs"),
        ("bash-loop", "rootfs"),
        ("text", "rootfs"),
        ("text", "disk"),
        ("text", "volume"),
    ];
    assert_eq!(names, expected);
    rows.iter().for_each(check_row);
    let picture = fs::read_to_string(picture).unwrap();
    assert_eq!(picture.matches("<rect x=").count(), rows.len(), "{picture}");
    // Nothing is left of the work.
    let left: Vec<_> = fs::read_dir(cache.path().join("paravane/bench"))
        .unwrap()
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn mistakes_are_one_line() {
    let cache = tempfile::tempdir().unwrap();
    for (words, told) in [
        (&["rediss"][..], "no application rediss: there are bash, "),
        (&["bash", "--place", "publish"], "nothing to measure"),
        (&["bash", "--ablate=luck"], "--ablate luck: there are all, "),
        (
            &["bash", "--root", "/nonexistent"],
            "/nonexistent: No such file",
        ),
        (
            &["bash", "--root", "/proc"],
            "--root /proc: it has no /bin/bash",
        ),
    ] {
        let run = bench(cache.path(), words);
        let lines = run.stderr.lines().count();
        assert_eq!((run.code, lines), (2, 1), "{words:?}: {}", run.stderr);
        assert!(run.stderr.contains(told), "{}", run.stderr);
    }
}

/// `bench apps` of a root, quick, with one vCPU, as JSON; and its result.
fn result(root: &Path, words: &[&str]) -> (Run, serde_json::Value) {
    let cache = tempfile::tempdir().unwrap();
    let common = ["--vcpus", "1", "--json", "--root", root.to_str().unwrap()];
    let run = bench(cache.path(), &[words, &common].concat());
    let result = serde_json::from_str(&run.stdout).unwrap_or_default();
    (run, result)
}

/// The start of a script: whether it is on the host.
fn if_on_host() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    format!(
        "read -r release </proc/sys/kernel/osrelease; if [ \"$release\" = '{}' ]",
        release.trim()
    )
}

/// Machines beside the one that has all guesses, each with its own folder and files.
#[test]
fn a_guess_is_turned_off_in_a_machine_of_its_own() {
    let root = small_root();
    let guesses = "--ablate=populate,folder-names,tx-delay";
    let (run, result) = result(root.path(), &["text", "--place", "volume", guesses]);
    assert_eq!(run.code, 0, "{}\n{}", run.stdout, run.stderr);
    let rows = result["rows"].as_array().unwrap();
    let systems: Vec<&str> = rows
        .iter()
        .map(|row| row["system"].as_str().unwrap())
        .collect();
    // A folder sends no frames.
    let expected = ["paravane", "without populate", "without folder-names"];
    assert_eq!(systems, expected, "{result}");
    let guest = |row: &serde_json::Value| row["guest"].as_f64().unwrap();
    assert!(rows[0]["beside_all"].is_null(), "{result}");
    for row in &rows[1..] {
        let beside = row["beside_all"][0].as_f64().unwrap();
        let expected = guest(&rows[0]) / guest(row);
        assert!((beside / expected - 1.0).abs() < 1e-6, "{row}");
    }
}

/// Prints requests in a second. It has a figure for each port, in the order of their first use:
/// that of the host's side, of the machine, of the one over venet, and of those without a guess.
const WRK: &str = r#"for url; do :; done
rates=(100 100 50 50 80)
count=0 found=
: >>ports
while read -r known; do
	[ "$known" != "$url" ] || found=$count
	count=$((count + 1))
done <ports
[ -n "$found" ] || { found=$count; echo "$url" >>ports; }
printf 'Latency 1.00ms\n99%% 2.00ms\nRequests/sec: %s\n' "${rates[found]}""#;

/// A card of the virtual bus is compared with virtio-net, and a card that does not poll with one
/// that does.
#[test]
fn a_card_that_is_slower_than_virtio_net_misses_its_bar() {
    let (root, cache) = (small_root(), tempfile::tempdir().unwrap());
    for program in ["head", "tr"] {
        small_root::add(Path::new("/usr/bin").join(program).as_path(), root.path());
    }
    replace(root.path(), "nginx", "exit 0");
    replace(root.path(), "wrk", WRK);
    let bench = |options: &[&str]| {
        let mut command = program::command();
        command.args(["bench", "apps", "nginx-1", "--place", "publish"]);
        command.args(["--vcpus", "1", "--rounds", "6", "--json", "--root"]);
        let kernel = vm::kernel().unwrap_or_else(linux::kernel);
        command.arg(root.path()).arg("--kernel").arg(kernel);
        command.args(options).env("XDG_CACHE_HOME", cache.path());
        program::finish(&mut command)
    };
    let run = bench(&["--check", "--ablate=card-looks,costs"]);
    assert_eq!(run.code, 1, "{}\n{}", run.stdout, run.stderr);
    let missed = "paravane: bars are not met: nginx-1 (publish, 1 vCPU) over venet beside \
                  virtio-net: 0.50 (0.50 to 0.50), bar 1";
    assert_eq!(run.stderr.lines().last(), Some(missed), "{}", run.stderr);
    let result: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let rows = result["rows"].as_array().unwrap();
    let own = |system: &str| {
        let found = rows.iter().find(|row| row["system"] == system);
        found.filter(|row| row["name"] == "nginx-1").unwrap()
    };
    assert_eq!(own("paravane")["verdict"], "met", "{result}");
    let venet = own("venet");
    assert_eq!(venet["beside_virtio_net_verdict"], "missed", "{result}");
    // Each beside the machine with the same card.
    for (system, beside) in [("without costs", 0.5), ("without card-looks", 1.6)] {
        let found = own(system)["beside_all"][0].as_f64().unwrap();
        assert!((found - beside).abs() < 1e-9, "{system}: {result}");
    }
    // Without --check, the same is no failure.
    let run = bench(&[]);
    assert_eq!(run.code, 0, "{}\n{}", run.stdout, run.stderr);
}

/// The rounds of two runs are joined into the rows of one.
#[test]
fn rounds_of_an_earlier_run_are_joined() {
    let root = small_root();
    let words = ["bash-loop", "--place", "rootfs"];
    let (run, first) = result(root.path(), &words);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let file = root.path().join("earlier.json");
    fs::write(&file, &run.stdout).unwrap();
    let earlier = file.to_str().unwrap();
    let words = ["bash-loop", "text", "--place", "rootfs", "--add", earlier];
    let (run, second) = result(root.path(), &words);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let rows = second["rows"].as_array().unwrap();
    let told: Vec<_> = rows
        .iter()
        .map(|row| (row["name"].as_str().unwrap(), row["rounds"].as_u64()))
        .collect();
    assert_eq!(told, [("bash-loop", Some(2)), ("text", Some(1))]);
    let turns = |row: &serde_json::Value| row["turns"]["guest"].as_array().unwrap().clone();
    let (before, both) = (turns(&first["rows"][0]), turns(&rows[0]));
    assert_eq!((both.len(), &both[..1]), (2, &before[..]), "{second}");
    let seconds = |index: usize| both[index].as_f64().unwrap();
    let median = f64::midpoint(seconds(0), seconds(1));
    let guest = rows[0]["guest"].as_f64().unwrap();
    assert!((guest / median - 1.0).abs() < 1e-6, "{second}");
    assert_eq!(second["means"][0]["rows"], 2, "{second}");

    let words = ["text", "--place", "rootfs", "--add", earlier];
    let refused = |more: &[&str]| {
        let (run, _) = result(root.path(), &[&words[..], more].concat());
        let lines = run.stderr.lines().count();
        assert_eq!((run.code, lines), (2, 1), "{}", run.stderr);
        run.stderr
    };
    let told = refused(&["--ablate=populate"]);
    assert!(told.ends_with(" other settings than this run: --ablate\n"));
    let mut other = second.clone();
    other["build"] = "0".into();
    fs::write(&file, other.to_string()).unwrap();
    let told = refused(&[]);
    assert!(told.contains("measured by another build"), "{told}");
}

/// The kernel ignores a parameter that it does not know.
#[test]
fn guesses_are_parameters_of_the_kernel() {
    let list = program::run(["bench", "apps", "--list"]);
    assert_eq!(list.code, 0, "{}", list.stderr);
    let lines = list.stdout.lines();
    let switches: Vec<&str> = lines
        .filter_map(|line| line.split_once("--append ")?.1.split(' ').next())
        .filter(|switch| switch.ends_with("=0"))
        .collect();
    assert!(switches.len() > 10, "{}", list.stdout);
    let (mut words, mut script) = (Vec::new(), String::new());
    for switch in switches {
        let (module, name) = switch.trim_end_matches("=0").split_once('.').unwrap();
        words.extend(["--append", switch]);
        script.push_str(&format!(
            "read -r is </sys/module/{module}/parameters/{name}; echo {switch} $is\n"
        ));
    }
    let run = program::finish(vm::command(&words).args(["--", "sh", "-ec", &script]));
    assert_eq!(run.code, 0, "{}", run.stderr);
    let off = |line: &&str| line.ends_with("=0 N") || line.ends_with("=0 0");
    let count = run.stdout.lines().filter(off).count();
    assert_eq!(count, words.len() / 2, "{}", run.stdout);
}

/// A program that is missing in the root: its rows are reported as missing, the others measured.
#[test]
fn what_cannot_be_measured_does_not_stop_the_rest() {
    let root = small_root();
    fs::remove_file(root.path().join("usr/bin/gzip")).unwrap();
    let words = ["bash-loop", "text", "--place", "rootfs"];
    let (run, result) = result(root.path(), &words);
    assert_eq!(run.code, 1, "{}\n{}", run.stdout, run.stderr);
    assert_eq!(result["rows"].as_array().map(Vec::len), Some(1), "{result}");
    assert_eq!(result["missing"][0]["name"], "text");
    let why = result["missing"][0]["why"].as_str().unwrap();
    assert!(why.contains("gzip: command not found"), "{why}");
}

/// One of two rows fails, on one of the sides: it has no ratio, and the other one has.
#[test]
fn a_row_that_fails_on_one_side_is_an_error() {
    for (side, then, otherwise) in [
        ("host", "echo no luck >&2; exit 3", "exec cat"),
        ("paravane", "exec cat", "echo no luck >&2; exit 3"),
    ] {
        let root = small_root();
        let script = format!("{}; then {then}; else {otherwise}; fi", if_on_host());
        replace(root.path(), "wc", &script);
        let (run, result) = result(root.path(), &["bash"]);
        assert_eq!(run.code, 1, "{}\n{}", run.stdout, run.stderr);
        let rows = result["rows"].as_array().unwrap();
        assert_eq!((rows.len(), &rows[0]["name"]), (1, &"bash-loop".into()));
        rows.iter().for_each(check_row);
        let missing = result["missing"].as_array().unwrap();
        assert_eq!(missing.len(), 1, "{result}");
        assert_eq!(
            (&missing[0]["name"], &missing[0]["system"]),
            (&"bash".into(), &side.into())
        );
        let why = missing[0]["why"].as_str().unwrap();
        assert!(why.ends_with(": a script failed with 3: no luck"), "{why}");
    }
}

/// A process, and those below it.
fn family(pid: u32) -> Vec<u32> {
    let below = tree::children(pid).into_iter().flat_map(family);
    below.chain([pid]).collect()
}

/// Whether the script of `text` has come to its `gzip` on this side, whose files are in the cache.
fn is_at_gzip(cache: &Path, side: &str) -> bool {
    let works = fs::read_dir(cache.join("paravane/bench"));
    let mut works = works.into_iter().flatten().flatten();
    works.any(|work| work.path().join(side).join("text.gz").exists())
}

/// Ends the command in the middle of a script of the host's side, and of one of the machine's side.
#[test]
fn nothing_outlives_the_command() {
    for signal in [Signal::TERM, Signal::KILL] {
        for (side, then, otherwise) in [
            ("host", "exec sleep 1000", "exec cat"),
            ("guest", "exec cat", "exec sleep 1000"),
        ] {
            let (root, cache) = (small_root(), tempfile::tempdir().unwrap());
            // What follows unpacks it.
            let script = format!("{}; then {then}; else {otherwise}; fi", if_on_host());
            replace(root.path(), "gzip", &script);
            let folder = root.path().to_str().unwrap();
            let words = [
                "text", "--place", "volume", "--vcpus", "1", "--root", folder,
            ];
            let mut command = command(cache.path(), &words);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            let mut program = Ends(command.spawn().unwrap());
            let deadline = Instant::now() + Duration::from_secs(120);
            while !is_at_gzip(cache.path(), side) {
                assert!(program.0.try_wait().unwrap().is_none(), "it has ended");
                assert!(Instant::now() < deadline, "{side}: no gzip");
                std::thread::sleep(Duration::from_millis(20));
            }
            let all = family(program.0.id());
            assert!(all.len() > 4, "{all:?}");
            tree::signal(program.0.id(), signal);
            tree::wait_gone(&all).unwrap();
            let status = program::wait_within(&mut program.0, program::PATIENCE);
            if signal == Signal::TERM {
                assert_eq!(status.code(), Some(128 + 15));
                let left: Vec<_> = fs::read_dir(cache.path().join("paravane/bench"))
                    .unwrap()
                    .collect();
                assert!(left.is_empty(), "{left:?}");
            }
        }
    }
}

/// After a signal, exactly the complete rows are printed.
#[test]
fn a_signal_leaves_the_rows_that_were_measured() {
    let (root, cache) = (small_root(), tempfile::tempdir().unwrap());
    replace(root.path(), "gzip", "exec sleep 1000");
    let folder = root.path().to_str().unwrap();
    let words = ["bash-loop", "text", "--place", "rootfs", "--vcpus", "1"];
    let mut command = command(cache.path(), &words);
    command.args(["--json", "--root", folder]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut program = Ends(command.spawn().unwrap());
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is_at_gzip(cache.path(), "host") {
        assert!(program.0.try_wait().unwrap().is_none(), "it has ended");
        assert!(Instant::now() < deadline, "no gzip");
        std::thread::sleep(Duration::from_millis(20));
    }
    tree::signal(program.0.id(), Signal::INT);
    let told = Lines::of(program.0.stdout.take()).rest_within(program::PATIENCE);
    let result: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        program::wait_within(&mut program.0, program::PATIENCE).code(),
        Some(128 + 2)
    );
    let rows = result["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["name"]), (1, &"bash-loop".into()));
    rows.iter().for_each(check_row);
}

#[test]
#[ignore = "minutes, with roots to be made: make test-release"]
fn every_application_of_debian_is_measured() {
    let words = ["bench", "apps", "--quick", "--rounds", "1", "--json"];
    // It builds a kernel, among others.
    let limit = Duration::from_secs(3600);
    let run = program::finish_within(program::command().args(words), limit).unwrap();
    assert_eq!(run.code, 0, "{}\n{}", run.stdout, run.stderr);
    let result: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let rows = result["rows"].as_array().unwrap();
    assert!(rows.len() > 100, "{}", rows.len());
    rows.iter().for_each(check_row);
}
