// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane bench vmi` measures all rows and reports them in the agreed form. The figures are not
//! checked: a host that runs tests is busy.

use paravane_tests::program;

const ROWS: [&str; 13] = [
    "syscall_injected",
    "syscall_trapped",
    "address_space_switch",
    "fault_first_touch",
    "fault_first_touch_scattered",
    "fault_hidden",
    "fault_contiguous_16",
    "flush",
    "address_space_create_drop",
    "interrupt",
    "ipi",
    "halt_wake",
    "kick",
];

#[test]
fn every_row_is_measured() {
    let run = program::run(["bench", "vmi", "--rounds", "2", "--json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let result: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let rows = result["rows"].as_array().unwrap();
    // Call stubs need a descriptor for each thread, which a host may refuse.
    let missing = result["missing"].as_array().unwrap();
    assert!(
        missing.iter().all(|name| name == "syscall_injected"),
        "{missing:?}"
    );
    for name in ROWS
        .into_iter()
        .filter(|name| !missing.iter().any(|m| m == name))
    {
        let row = rows.iter().find(|row| row["name"] == name);
        let row = row.unwrap_or_else(|| panic!("no row {name}: {}", run.stdout));
        for field in ["guest_ns", "host_ns", "ratio"] {
            let value = row[field].as_f64().unwrap();
            assert!(
                value.is_finite() && value > 0.0,
                "{name}: {field} is {value}"
            );
        }
        let interval: Vec<f64> = row["ci95"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|v| v.as_f64())
            .collect();
        let ratio = row["ratio"].as_f64().unwrap();
        assert_eq!(interval.len(), 2, "{name}");
        assert!(
            0.0 < interval[0] && interval[0] <= ratio && ratio <= interval[1],
            "{name}: {interval:?}"
        );
        for field in ["host_calls", "signals", "switches"] {
            assert!(
                row[field].as_f64().is_some_and(|v| v >= 0.0),
                "{name}: {field}"
            );
        }
    }
}

#[test]
fn the_table_goes_between_its_markers() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.md");
    std::fs::write(
        &page,
        "a\n<!-- bench:vmi begin -->\nold\n<!-- bench:vmi end -->\nz\n",
    )
    .unwrap();
    let words = ["bench", "vmi", "--rounds", "1", "--row", "flush", "--write"];
    let run = program::finish(program::command().args(words).arg(&page));
    assert_eq!(run.code, 0, "{}", run.stderr);
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(
        text.starts_with("a\n<!-- bench:vmi begin -->\n")
            && text.ends_with("<!-- bench:vmi end -->\nz\n")
    );
    assert!(
        text.contains("| flush | ") && !text.contains("old"),
        "{text}"
    );
}

#[test]
fn an_unknown_row_is_refused() {
    let run = program::run(["bench", "vmi", "--row", "flash"]);
    assert_eq!(
        (run.code, run.stderr.lines().count()),
        (2, 1),
        "{}",
        run.stderr
    );
    assert!(
        run.stderr.contains("flash") && run.stderr.contains("flush"),
        "{}",
        run.stderr
    );
}
