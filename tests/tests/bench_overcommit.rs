// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane bench overcommit` measures its rows and reports them in the agreed form.

// Alone: it measures shares of a processor.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::lines::Lines;
use paravane_tests::one_cpu::OneCpu;
use paravane_tests::program::{self, Ends};
use paravane_tests::{linux, small_root, tree};
use rustix::process::Signal;
use serde_json::Value;
use std::process::Stdio;

#[test]
#[ignore = "takes minutes"]
fn the_tables_are_complete() {
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
        let load = row["case"] != "1x";
        assert_eq!(row["verdict"].is_string(), load, "{row}");
        assert_eq!(row["ideal_ci95"].is_array(), load, "{row}");
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

/// The ticket lock of the conformance guest. Eight vCPUs share a processor. Each of those that spin
/// keeps it for a time slice from the vCPU with the next ticket.
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
    // Of two rounds, it is their range.
    let [low, high] = [0, 1].map(|end| rows[0]["ci95"][end].as_f64().unwrap());
    assert_eq!(rows[0]["ci95"].as_array().unwrap().len(), 2, "{json}");
    let gain = number("gain_percent");
    assert!(low <= gain && gain <= high && high < 100.0, "{json}");
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

/// Measures one load and one workload, the losses, and the table of time.
#[test]
#[ignore = "takes minutes"]
fn parts_are_measured_alone() {
    drop(linux::kernel());
    let one = bench(&["--case", "2x", "--workload", "hackbench-40"]);
    assert_eq!(one["rows"].as_array().unwrap().len(), 1, "{one}");
    assert_eq!(one["rows"][0]["case"], "2x", "{one}");
    assert!(one["idle"].is_null(), "{one}");
    // Also on a host that groups sessions, the load has its share.
    assert_eq!(one["short"], serde_json::json!([]), "{one}");
    // Two rounds decide nothing, and without a row at 1x there is no ideal share.
    assert_eq!(one["rows"][0]["verdict"], "undecided", "{one}");
    assert_eq!(one["rows"][0]["bar"], "gain at least 83 %", "{one}");
    assert!(one["rows"][0]["ideal_percent"].is_null(), "{one}");

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

/// What the driver, kernbench and hackbench run.
const PROGRAMS: [&str; 8] = [
    "cat", "mkdir", "mktemp", "mount", "rm", "sleep", "wc", "xargs",
];

/// `bench overcommit` in a small root whose compiler and `seq` are these scripts. When it has said
/// that it comes to `step`, a signal ends it. Its output.
fn interrupted(words: &[&str], gcc: &str, seq: &str, step: &str, signal: Signal) -> String {
    drop(linux::kernel());
    let root = small_root::make(&PROGRAMS);
    std::fs::create_dir_all(root.path().join("usr/include")).unwrap();
    std::fs::write(root.path().join("usr/include/stdio.h"), "").unwrap();
    small_root::replace(root.path(), "gcc", gcc);
    let count = "for ((i = 1; i <= $1; i++)); do echo $i; done";
    small_root::replace(root.path(), "seq", &format!("{seq}\n{count}"));
    let picture = root.path().join("o.svg");
    std::fs::write(&picture, "an earlier one").unwrap();
    let mut command = program::command();
    command.args(["bench", "overcommit", "--quick", "--vcpus", "2", "--root"]);
    command.arg(root.path()).arg("--plot").arg(&picture);
    command.args(words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut bench = Ends(command.spawn().unwrap());
    let mut output = Lines::of(bench.0.stdout.take());
    let mut said = Lines::of(bench.0.stderr.take());
    let mut lines = said.each_within(program::LONGEST);
    // A step that takes more than a second is reported. The input of this one never ends.
    assert!(lines.any(|line| line.contains(step)), "no {step}");
    tree::signal(bench.0.id(), signal);
    let told = "paravane: interrupted; measured until then, of complete turns:";
    assert!(lines.any(|line| line == told), "it has told nothing");
    let output = output.rest_within(program::PATIENCE);
    let code = 128 + signal.as_raw();
    assert_eq!(
        program::wait_within(&mut bench.0, program::PATIENCE).code(),
        Some(code),
        "{output}"
    );
    let picture = std::fs::read_to_string(picture).unwrap();
    assert_eq!(picture, "an earlier one");
    output
}

/// Both machines have taken one turn, and one of them hangs in the second: the row is of the first.
#[test]
fn a_signal_leaves_the_rounds_that_were_complete() {
    // A turn compiles sixteen files.
    let gcc = "echo >>/tmp/compiled; [ $(wc -l </tmp/compiled) -le 16 ] || exec sleep 1000";
    let words = ["--json", "--case", "1x", "--workload", "kernbench"];
    let step = "1x, kernbench: round 2 of 2";
    let output = interrupted(&words, gcc, "", step, Signal::INT);
    let json: Value = serde_json::from_str(&output).unwrap();
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{json}");
    let turns = rows[0]["turns"].as_array().unwrap().len();
    let found = (&rows[0]["workload"], &rows[0]["case"], turns);
    assert_eq!(found, (&"kernbench".into(), &"1x".into(), 1), "{json}");
    assert!(rows[0]["base_s"].as_f64().unwrap() > 0.0, "{json}");
}

/// With `--no-loss`, a signal ends a round after its first workload. The table has that workload
/// only.
#[test]
fn a_signal_leaves_the_losses_that_were_measured() {
    let words = [
        "--no-loss",
        "--workload",
        "kernbench",
        "--workload",
        "hackbench-40",
    ];
    // It asks for two groups.
    let seq = "[ $1 != 2 ] || exec sleep 1000";
    let step = "round 1 of 2: hackbench-40";
    let table = interrupted(&words, "true", seq, step, Signal::TERM);
    let rows: Vec<_> = table.lines().filter(|l| l.starts_with("| 1x |")).collect();
    assert_eq!(rows.len(), 1, "{table}");
    assert!(rows[0].starts_with("| 1x | kernbench | "), "{table}");
    // One machine decides nothing.
    let end = " | 1 | loss at most 3 % | not decided |";
    assert!(rows[0].ends_with(end), "{table}");
    // Nothing was measured for a table of time.
    assert!(!table.contains("| time |"), "{table}");
}
