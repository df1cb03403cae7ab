// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane bench block` measures every path and reports it in the agreed form. The figures are
//! not checked: a machine that runs tests is busy.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::{linux, program, vm};
use serde_json::Value;

const PATHS: [&str; 6] = [
    "host",
    "virtio-blk",
    "vblk",
    "vbusd-pread",
    "vbusd-uring",
    "vbusd-auto",
];

#[test]
fn every_path_is_measured() {
    measures(&[], &PATHS[..3], 3);
    // Each with the host and with virtio's, and those by vbusd with its first engine.
    measures(&["--engines"], &PATHS, 3 + 3 * 2 + 2);
}

fn measures(options: &[&str], paths: &[&str], compared: usize) {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("plot.svg");
    let kernel = vm::kernel().unwrap_or_else(linux::kernel);
    let words = [
        "bench",
        "block",
        "--quick",
        "--json",
        "--kernel",
        kernel.to_str().unwrap(),
        "--plot",
        plot.to_str().unwrap(),
    ];
    let run = program::run(words.iter().chain(options));
    assert_eq!(run.code, 0, "{}", run.stderr);
    let result: Value = serde_json::from_str(&run.stdout).unwrap();
    let rows = result["rows"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["path"].as_str()).collect();
    let expected: Vec<_> = paths.iter().map(|path| Some(*path)).collect();
    assert_eq!(names, expected);
    for row in rows {
        assert_eq!(row["rounds"], 2);
        for field in [
            "read4k_qd1_s",
            "read4k_us",
            "read4k_p99_us",
            "read4k_qd16_s",
            "read_mb_s",
            "write_mb_s",
        ] {
            let value = row[field].as_f64().unwrap_or_default();
            assert!(value.is_finite() && value > 0.0, "{field}: {row}");
        }
        let cpu = row["cpu_s_per_gb"].as_f64();
        assert!(cpu.is_some_and(|cpu| cpu >= 0.0), "{row}");
    }
    let ratios = result["ratios"].as_array().unwrap();
    assert_eq!(ratios.len(), 5 * compared);
    for ratio in ratios.iter().filter(|r| r["figure"] != "cpu_s_per_gb") {
        let [low, middle, high] = [&ratio["ci95"][0], &ratio["median"], &ratio["ci95"][1]]
            .map(|value| value.as_f64().unwrap());
        assert!(0.0 < low && low <= middle && middle <= high, "{ratio}");
    }
    let picture = std::fs::read_to_string(plot).unwrap();
    assert_eq!(picture.matches("vblk, ").count(), 4, "{picture}");
}

/// With an empty cache, every benchmark refuses at once: it builds Linux only after that.
#[test]
fn a_place_that_is_none_is_refused_in_a_line() {
    for words in [
        "block --quick --folder /nonexistent",
        "block --quick --plot /nonexistent/p",
        "net --plot /nonexistent/p",
        "net --older /nonexistent",
        "net --older /dev/null --older-kernel /nonexistent",
        "overcommit --root /nonexistent",
        "overcommit --plot /nonexistent/p",
        "apps bash --root /nonexistent",
        "micro --write /nonexistent",
    ] {
        let mut command = program::command();
        let cache = tempfile::tempdir().unwrap();
        command.arg("bench").args(words.split(' '));
        let run = program::finish(command.env("XDG_CACHE_HOME", cache.path()));
        assert_eq!((run.code, run.stderr.lines().count()), (2, 1), "{run:?}");
        assert!(run.stderr.contains("/nonexistent"), "{run:?}");
    }
}
