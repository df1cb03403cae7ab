// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane bench overcommit` measures what it says.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::one_cpu::OneCpu;
use paravane_tests::{linux, program};
use serde_json::Value;

/// The lengths for `make test-release`.
const LONG: &str = "PARAVANE_TEST_LONG";

#[test]
fn the_tables_are_complete() {
    if std::env::var_os(LONG).is_none() {
        eprintln!("skipped: takes minutes; {LONG} asks for it");
        return;
    }
    drop(linux::kernel());
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("o.svg");
    let mut command = program::command();
    command.args(["bench", "overcommit", "--quick", "--json", "--vcpus", "2"]);
    command.args(["--workload", "hackbench-40", "--idle", "2", "--plot"]);
    let run = program::finish(command.arg(&picture));
    assert_eq!(run.code, 0, "{run:?}");
    let json: Value = serde_json::from_str(&run.stdout).unwrap();
    let rows = json["rows"].as_array().unwrap();
    let cases: Vec<_> = rows
        .iter()
        .map(|row| row["case"].as_str().unwrap())
        .collect();
    assert_eq!(cases, ["1x", "2x", "3x"], "{json}");
    for row in rows {
        assert_eq!(row["workload"], "hackbench-40");
        let number = |name: &str| row[name].as_f64().unwrap();
        assert!(number("base_s") > 0.0 && number("pv_s") > 0.0, "{row}");
        let (low, gain, high) = (
            row["ci95"][0].as_f64().unwrap(),
            number("gain_percent"),
            row["ci95"][1].as_f64().unwrap(),
        );
        assert!(low <= gain && gain <= high && gain < 100.0, "{row}");
    }
    // Twice the load takes longer.
    assert!(
        rows[2]["pv_s"].as_f64() > rows[0]["pv_s"].as_f64(),
        "{json}"
    );
    assert_eq!(json["clocks"].as_array().unwrap().len(), 3, "{json}");
    assert_eq!(json["idle"]["guests"], 2, "{json}");
    assert!(
        json["idle"]["all_percent"].as_f64().unwrap() > 0.0,
        "{json}"
    );
    let picture = std::fs::read_to_string(&picture).unwrap();
    assert_eq!(picture.matches("hackbench-40").count(), 3, "{picture}");
}

/// The ticket lock of the conformance guest. Where eight vCPUs share a processor, those that spin
/// keep it from the one with the next ticket for a time slice each.
#[test]
fn a_ticket_lock_that_spins_collapses() {
    drop(linux::kernel());
    let _one = OneCpu::take();
    let mut command = program::command();
    command.args(["bench", "overcommit", "--quick", "--json"]);
    command.args(["--workload", "ticket", "--case", "1x"]);
    let run = program::finish(&mut command);
    assert_eq!(run.code, 0, "{run:?}");
    let json: Value = serde_json::from_str(&run.stdout).unwrap();
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{json}");
    assert_eq!(
        (&rows[0]["workload"], &rows[0]["case"]),
        (&"ticket".into(), &"1x".into())
    );
    assert_eq!(json["vcpus"], 8, "{json}");
    let number = |name: &str| rows[0][name].as_f64().unwrap();
    assert!(number("base_s") > 0.0 && number("pv_s") > 0.0, "{json}");
    assert!(number("gain_percent") > 50.0, "{json}");
    assert_eq!(rows[0]["turns"].as_array().unwrap().len(), 2, "{json}");
}

/// `bench overcommit` with these words: its JSON.
fn bench(words: &[&str]) -> Value {
    let mut command = program::command();
    command.args(["bench", "overcommit", "--quick", "--json", "--vcpus", "2"]);
    let run = program::finish(command.args(words));
    assert_eq!(run.code, 0, "{run:?}");
    serde_json::from_str(&run.stdout).unwrap()
}

/// One load and one workload; the loss; the table of time.
#[test]
fn parts_are_measured_alone() {
    if std::env::var_os(LONG).is_none() {
        eprintln!("skipped: takes minutes; {LONG} asks for it");
        return;
    }
    drop(linux::kernel());
    let one = bench(&["--case", "2x", "--workload", "hackbench-40"]);
    assert_eq!(one["rows"].as_array().unwrap().len(), 1, "{one}");
    assert_eq!(one["rows"][0]["case"], "2x", "{one}");
    assert!(one["idle"].is_null(), "{one}");

    let loss = bench(&["--no-loss", "--workload", "hackbench-40"]);
    let row = &loss["rows"][0];
    let number = |value: &Value| value.as_f64().unwrap();
    assert_eq!(row["case"], "1x", "{loss}");
    let most = number(&row["loss_at_most_percent"]);
    assert!((most + number(&row["ci95"][0])).abs() < 1e-9, "{loss}");
    assert!(most >= -number(&row["gain_percent"]), "{loss}");

    let folder = tempfile::tempdir().unwrap();
    let earlier = folder.path().join("earlier.json");
    std::fs::write(&earlier, loss.to_string()).unwrap();
    let earlier = earlier.to_str().unwrap();
    let words = ["--no-loss", "--workload", "hackbench-40", "--add", earlier];
    let more = bench(&words);
    let turns = more["rows"][0]["turns"].as_array().unwrap();
    assert_eq!(turns.len(), 4, "{more}");
    assert_eq!(turns[..2], row["turns"].as_array().unwrap()[..], "{more}");

    let time = bench(&["--time", "--case", "1x", "--case", "3x", "--idle", "2"]);
    assert_eq!(time["rows"].as_array().unwrap().len(), 0, "{time}");
    let clocks = time["clocks"].as_array().unwrap();
    assert_eq!(clocks.len(), 2, "{time}");
    for clock in clocks {
        let accounted = number(&clock["accounted_percent"]);
        assert!((90.0..110.0).contains(&accounted), "{time}");
    }
    assert_eq!(time["idle"]["guests"], 2, "{time}");
}
