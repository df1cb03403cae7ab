// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A report for people.

use crate::report::{Report, Row, Shares};
use std::fmt::Write;

/// With more vCPUs than this, lists of functions and counters show only the sum.
const COLUMNS: usize = 8;
/// Smaller shares are not worth a line.
const VISIBLE: f64 = 0.05;

/// The text of a report.
pub fn table(report: &Report) -> String {
    let mut out = String::new();
    let (vcpus, plural) = (
        report.vcpus.len(),
        if report.vcpus.len() == 1 { "" } else { "s" },
    );
    let _ = write!(
        out,
        "{}: {:.1} s, {vcpus} vCPU{plural}, ",
        report.machine, report.seconds
    );
    let _ = match report.frequency {
        Some(frequency) => writeln!(
            out,
            "{} samples of perf at {frequency} Hz, {} lost",
            report.samples, report.lost
        ),
        None => writeln!(out, "no samples"),
    };
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    shares(&mut out, report);
    list(
        &mut out,
        report,
        "guest kernel: functions",
        &report.guest_kernel,
    );
    list(&mut out, report, "layer: functions", &report.layer);
    list(
        &mut out,
        report,
        "host kernel: entered for",
        &report.host_kernel,
    );
    monitor(&mut out, &report.monitor);
    counters(&mut out, report);
    out
}

/// A column of the first table.
type Column = (&'static str, fn(&Shares) -> Option<f64>);

fn shares(out: &mut String, report: &Report) {
    let mut columns: Vec<Column> = vec![
        ("programs", |s| s.programs),
        ("guest-kernel", |s| s.guest_kernel),
        ("layer", |s| s.layer),
    ];
    if report.all.programs.is_none() {
        columns = vec![("guest+layer", |s| Some(s.guest_and_layer))];
    }
    if report
        .all
        .elsewhere
        .is_some_and(|percent| percent >= VISIBLE)
    {
        columns.push(("elsewhere", |s| s.elsewhere));
    }
    columns.push(("host-kernel", |s| Some(s.host_kernel)));
    columns.push(("no-CPU", |s| Some(s.ready)));
    columns.push(("waiting", |s| Some(s.waiting)));

    let _ = write!(out, "\n{:8}", "time, %");
    for (name, _) in &columns {
        let _ = write!(out, "  {name:>12}");
    }
    out.push('\n');
    let mut line = |name: &str, shares: &Shares| {
        let _ = write!(out, "{name:8}");
        for (_, value) in &columns {
            let _ = write!(out, "  {:>12.1}", value(shares).unwrap_or(0.0));
        }
        out.push('\n');
    };
    line("all", &report.all);
    if report.vcpus.len() > 1 {
        for (number, shares) in report.vcpus.iter().enumerate() {
            line(&format!("vCPU {number}"), shares);
        }
    }
}

/// The number of columns for vCPUs.
fn columns(report: &Report) -> usize {
    match report.vcpus.len() {
        1 => 0,
        count if count > COLUMNS => 0,
        count => count,
    }
}

fn heading(out: &mut String, report: &Report, unit: &str, what: &str) {
    let _ = write!(out, "\n{unit:>10}");
    for vcpu in 0..columns(report) {
        let _ = write!(out, "  {:>10}", format!("vCPU {vcpu}"));
    }
    let _ = writeln!(out, "  {what}");
}

fn list(out: &mut String, report: &Report, what: &str, rows: &[Row]) {
    let mut rows = rows.iter().filter(|row| row.percent >= VISIBLE).peekable();
    if rows.peek().is_none() {
        return;
    }
    heading(out, report, "all, %", what);
    for row in rows {
        let _ = write!(out, "{:>10.1}", row.percent);
        for percent in row.vcpus.iter().take(columns(report)) {
            let _ = write!(out, "  {percent:>10.1}");
        }
        let _ = writeln!(out, "  {}", row.name);
    }
}

fn monitor(out: &mut String, rows: &[Row]) {
    let _ = writeln!(out, "\n{:>10}  monitor: threads", "of a CPU, %");
    let mut rest = 0.0;
    for row in rows {
        if row.percent >= VISIBLE {
            let _ = writeln!(out, "{:>10.1}  {}", row.percent, row.name);
        } else {
            rest += row.percent;
        }
    }
    let _ = writeln!(out, "{rest:>10.1}  (all others)");
}

fn counters(out: &mut String, report: &Report) {
    if report.counters.is_empty() {
        return;
    }
    heading(out, report, "a second", "counted");
    for counter in report.counters.iter().filter(|counter| counter.total > 0) {
        // A guest can make a counter say anything.
        let rate = |count: u64| rate(count, report.counters_seconds);
        let _ = write!(out, "{:>10}", rate(counter.total));
        for vcpu in 0..columns(report) {
            let count = counter.vcpus.get(vcpu).map(|&count| rate(count));
            let _ = write!(out, "  {:>10}", count.unwrap_or_default());
        }
        let _ = writeln!(out, "  {}: {}", counter.name, counter.what);
    }
}

/// The increase in a second.
#[allow(clippy::cast_precision_loss)] // A rate needs few digits.
fn rate(count: u64, seconds: f64) -> String {
    let rate = count as f64 / seconds.max(1e-3);
    if rate < 10.0 {
        format!("{rate:.1}")
    } else {
        format!("{rate:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Counter;

    fn report(vcpus: usize) -> Report {
        let shares = Shares {
            guest_and_layer: 60.0,
            programs: Some(20.25),
            guest_kernel: Some(30.0),
            layer: Some(9.75),
            elsewhere: Some(0.0),
            host_kernel: 5.0,
            ready: 1.0,
            waiting: 34.0,
        };
        let row = |name: &str, percent: f64| Row {
            name: name.to_string(),
            percent,
            vcpus: vec![percent; vcpus],
        };
        Report {
            machine: "web".to_string(),
            seconds: 5.0,
            source: "perf",
            frequency: Some(997),
            samples: 1234,
            lost: 5,
            all: shares,
            vcpus: vec![shares; vcpus],
            guest_kernel: vec![row("clear_page_erms", 12.0), row("rare", 0.01)],
            monitor: vec![row("disk", 3.0), row("watch", 0.01)],
            counters: vec![
                Counter {
                    name: "halts".to_string(),
                    what: "waits".to_string(),
                    total: u64::MAX,
                    vcpus: vec![10; vcpus],
                },
                Counter {
                    name: "never".to_string(),
                    ..Counter::default()
                },
            ],
            counters_seconds: 5.0,
            ..Report::default()
        }
    }

    fn line(text: &str, part: &str) -> String {
        let line = text.lines().find(|line| line.contains(part));
        line.unwrap_or_else(|| panic!("{part} is not in:\n{text}"))
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn one_vcpu_needs_no_columns() {
        let text = table(&report(1));
        assert!(
            text.starts_with("web: 5.0 s, 1 vCPU, 1234 samples of perf at 997 Hz, 5 lost\n"),
            "{text}"
        );
        assert_eq!(line(&text, "all  "), "all 20.2 30.0 9.8 5.0 1.0 34.0");
        assert_eq!(line(&text, "clear_page"), "12.0 clear_page_erms");
        assert_eq!(line(&text, "disk"), "3.0 disk");
        assert_eq!(line(&text, "(all others)"), "0.0 (all others)");
        assert_eq!(line(&text, "halts"), "3689348814741910528 halts: waits");
        assert!(!text.contains("never"), "{text}");
        assert!(
            !text.contains("rare") && !text.contains("elsewhere"),
            "{text}"
        );
        assert!(!text.contains("vCPU 0"), "{text}");
    }

    #[test]
    fn a_few_vcpus_have_columns() {
        let text = table(&report(2));
        assert_eq!(line(&text, "vCPU 1 "), "vCPU 1 20.2 30.0 9.8 5.0 1.0 34.0");
        assert_eq!(line(&text, "clear_page"), "12.0 12.0 12.0 clear_page_erms");
        assert_eq!(
            line(&text, "halts"),
            "3689348814741910528 2.0 2.0 halts: waits"
        );
        let many = table(&report(9));
        assert_eq!(line(&many, "vCPU 8"), "vCPU 8 20.2 30.0 9.8 5.0 1.0 34.0");
        assert_eq!(line(&many, "clear_page"), "12.0 clear_page_erms");
    }

    #[test]
    fn without_samples_guest_and_layer_are_one() {
        let mut report = report(1);
        report.frequency = None;
        report.notes = vec!["perf may not be used".to_string()];
        for shares in [&mut report.all, &mut report.vcpus[0]] {
            shares.programs = None;
        }
        let text = table(&report);
        assert!(
            text.starts_with("web: 5.0 s, 1 vCPU, no samples\nnote: perf may not"),
            "{text}"
        );
        assert_eq!(
            line(&text, "time, %"),
            "time, % guest+layer host-kernel no-CPU waiting"
        );
        assert_eq!(line(&text, "all  "), "all 60.0 5.0 1.0 34.0");
    }

    #[test]
    fn code_in_odd_places_is_shown() {
        let mut report = report(1);
        report.all.elsewhere = Some(7.0);
        assert!(table(&report).contains("elsewhere"));
    }
}
