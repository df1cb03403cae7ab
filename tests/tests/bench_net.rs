// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane bench net` measures every path and reports it in the agreed form. The figures are not
//! checked, except for a shaped link: a host that runs tests is busy.

// Alone: it measures a link.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::skip::skip;
use paravane_tests::{linux, program, vm};
use rustix::thread::sched_getaffinity;
use serde_json::Value;
use std::process::Command;

const PATHS: [&str; 9] = [
    "host",
    "host-apart",
    "virtio-net",
    "venet",
    "virtio-net-tap",
    "venet-tap",
    "virtio-net-guests",
    "venet-guests",
    "venet-guests-share",
];

/// Those that this host can have: client and server of `host-apart` need a processor each.
fn paths() -> Vec<&'static str> {
    let one = sched_getaffinity(None).unwrap().count() < 2;
    let all = PATHS.into_iter();
    all.filter(|&path| !(one && path == "host-apart")).collect()
}

/// Whether this user can have network namespaces, taps and a bridge.
fn possible() -> bool {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let script = "ip link add br0 type bridge && ip tuntap add vm0 mode tap";
    let done = program::finish(command.args(["--net", "sh", "-c", script]));
    if done.code != 0 {
        skip(&format!("no network namespace: {}", done.stderr));
    }
    done.code == 0
}

/// Whether figures can be measured here: in an optimized program, as it is shipped.
fn measurable() -> bool {
    if cfg!(debug_assertions) {
        eprintln!("NOT TESTED: the program is not optimized.");
        return false;
    }
    possible()
}

/// The rows, the comparisons and the bars of few and short rounds.
fn bench(words: &[&str]) -> [Vec<Value>; 3] {
    full_bench(&[&["--quick"], words].concat())
}

/// The rows, the comparisons and the bars. None is missed.
fn full_bench(words: &[&str]) -> [Vec<Value>; 3] {
    let (code, found) = measured(words);
    assert_eq!(code, 0, "{:?}", found[2]);
    found
}

/// The exit code, which says whether a bar is missed; the rows, the comparisons and the bars.
fn measured(words: &[&str]) -> (i32, [Vec<Value>; 3]) {
    let kernel = vm::kernel().unwrap_or_else(linux::kernel);
    let mut all = vec!["bench", "net", "--json", "--kernel"];
    all.push(kernel.to_str().unwrap());
    all.extend(words);
    let run = program::run(all);
    assert!(matches!(run.code, 0 | 1), "{}", run.stderr);
    let result: Value = serde_json::from_str(&run.stdout).unwrap();
    let list = |list| result[list].as_array().unwrap().clone();
    (run.code, ["rows", "comparisons", "promises"].map(list))
}

#[test]
fn every_path_is_measured() {
    if !possible() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("plot.svg");
    let [rows, comparisons, bars] = bench(&["--mtu", "1500", "--plot", plot.to_str().unwrap()]);
    let names: Vec<_> = rows.iter().map(|row| row["path"].as_str()).collect();
    assert_eq!(names, paths().into_iter().map(Some).collect::<Vec<_>>());
    for row in &rows {
        assert_eq!(row["mtu"], 1500);
        for field in [
            "tput_mbps",
            "tput_receive_mbps",
            "rtt_us",
            "rtt_p99_us",
            "requests_s",
            "rtt_ratio",
        ] {
            let value = row[field].as_f64().unwrap_or_default();
            assert!(value.is_finite() && value > 0.0, "{field}: {row}");
        }
        assert!(
            row["cpu_s_per_gb"].as_f64().is_some_and(|cpu| cpu >= 0.0),
            "{row}"
        );
    }
    for (path, with) in [
        ("venet", "virtio-net"),
        ("venet-tap", "virtio-net-tap"),
        ("venet-guests", "virtio-net-guests"),
    ] {
        let found = |row: &&Value| row["path"] == path && row["with"] == with;
        let row = comparisons.iter().find(found).unwrap();
        for field in ["rtt_ratio", "tput_ratio", "tput_receive_ratio"] {
            assert!(
                row[field].as_f64().is_some_and(|ratio| ratio > 0.0),
                "{row}"
            );
        }
    }
    // Each but the first two, and these two beside each other.
    let apart = comparisons.iter().filter(|row| row["with"] == "host-apart");
    let expected = if paths().len() == PATHS.len() {
        PATHS.len() - 1
    } else {
        0
    };
    assert_eq!(apart.count(), expected, "{comparisons:?}");
    // Of each card of the bus, two of round trips and two of streams. Between guests, there is no
    // bar beside the host. Few rounds decide nothing.
    assert_eq!(bars.len(), 4 + 4 + 3, "{bars:?}");
    assert!(bars.iter().all(|bar| bar["verdict"] == "undecided"));
    let picture = std::fs::read_to_string(plot).unwrap();
    assert_eq!(
        picture.matches("MTU 1500<").count(),
        paths().len(),
        "{picture}"
    );
}

#[test]
fn a_shaped_link_bounds_every_path_over_it() {
    if !possible() {
        return;
    }
    let words = ["--mtu", "1500", "--path", "venet", "--rate", "50"];
    let [rows, _, bars] = bench(&words);
    // The comparisons are always there.
    assert_eq!(rows.len(), paths().len() - PATHS.len() + 3, "{rows:?}");
    let of_the_link = |bar: &&Value| bar["with"] == "host" && bar["bar"] == 0.99;
    assert_eq!(bars.iter().filter(of_the_link).count(), 2, "{bars:?}");
    for row in &rows {
        // The bucket holds 2 Mbit, which a short stream to the server gets on top.
        let receive = row["tput_receive_mbps"].as_f64().unwrap_or_default();
        assert!((5.0..75.0).contains(&receive), "{row}");
    }
}

/// The link decides how fast a stream is, and not the machine: its slower direction has at least
/// 99 % of the host's on the same link, in the same turns.
#[test]
#[ignore = "it measures for minutes, and wants the program as it is shipped"]
fn a_link_of_a_gigabit_is_as_fast_as_the_host_s() {
    const LEAST: f64 = 0.99;
    if !measurable() {
        return;
    }
    let words = ["--mtu", "1500", "--rounds", "9", "--rate", "1000"];
    let paths = ["--path", "venet", "--path", "venet-tap"];
    let [rows, _, _] = full_bench(&[&words[..], &paths].concat());
    let row = |path: &str| rows.iter().find(|row| row["path"] == path).unwrap();
    // It is shaped, and the host fills it.
    for field in ["tput_mbps", "tput_receive_mbps"] {
        let host = row("host")[field].as_f64().unwrap();
        assert!((850.0..1020.0).contains(&host), "{}", row("host"));
    }
    for path in ["venet", "venet-tap"] {
        let (ratio, interval) = (&row(path)["tput_ratio"], &row(path)["tput_ratio_ci95"]);
        println!("{path}: {ratio} {interval}");
        assert!(ratio.as_f64().unwrap() >= LEAST, "{}", row(path));
    }
}

/// Cards of the bus meet their bars. A host whose own round trip is short starts its idle
/// processors within some microseconds. There, the bar beside the host is not promised
/// (SPECIFICATION.md).
#[test]
#[ignore = "it measures for minutes, and wants the program as it is shipped"]
fn cards_meet_their_bars() {
    const SHORT_US: f64 = 30.0;
    if !measurable() {
        return;
    }
    let (_, [rows, _, bars]) = measured(&["--rounds", "9"]);
    let host = rows.iter().find(|row| row["path"] == "host").unwrap();
    let fast = host["rtt_us"].as_f64().unwrap() < SHORT_US;
    let missed = |bar: &&Value| {
        println!("{bar}");
        let promised = !(fast && bar["with"] == "host");
        bar["verdict"] != "met" && promised
    };
    let missed: Vec<_> = bars.iter().filter(missed).collect();
    assert!(bars.len() >= 17 && missed.is_empty(), "{missed:?}");
}

#[test]
fn an_unknown_path_is_refused_in_a_line() {
    let run = program::run(["bench", "net", "--path", "carrier-pigeon"]);
    assert_eq!((run.code, run.stderr.lines().count()), (2, 1), "{run:?}");
    assert!(
        run.stderr
            .contains("there are host, host-apart, virtio-net"),
        "{run:?}"
    );
}
