// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane doctor`: reports what this host offers for running guests, and the consequences.
//!
//! Where possible it tries a mechanism instead of reading about it: a sandbox around this program
//! may refuse what the kernel has.

#[expect(unsafe_code, reason = "forks")]
mod child;
#[expect(unsafe_code, reason = "host calls that are tried")]
mod host;
mod kvm;
mod network;
mod trial_machine;

use crate::arguments::Doctor;
use paravane_user_io::outcome::Outcome;
use serde::Serialize;
use std::io::{self, Write};

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    /// Guests run, with limitations.
    Note,
    /// Guests cannot run.
    Bad,
}

/// The result of one check.
#[derive(Clone, Debug, Serialize)]
struct Finding {
    name: &'static str,
    status: Status,
    /// For programs: a number, a word, or a truth value.
    value: serde_json::Value,
    /// For people: what was found, and the consequences.
    text: String,
}

impl Finding {
    fn new(
        name: &'static str,
        status: Status,
        value: impl Into<serde_json::Value>,
        text: impl Into<String>,
    ) -> Self {
        Finding {
            name,
            status,
            value: value.into(),
            text: text.into(),
        }
    }

    /// A finding about something that is present or missing, with the consequences of either case.
    fn of(name: &'static str, there: bool, without: Status, yes: &str, no: &str) -> Self {
        let (status, text) = if there {
            (Status::Ok, yes)
        } else {
            (without, no)
        };
        Finding::new(name, status, there, text)
    }
}

#[derive(Debug, Serialize)]
struct Report {
    can_run: bool,
    findings: Vec<Finding>,
}

/// Runs the command.
pub fn run(args: &Doctor) -> anyhow::Result<Outcome> {
    let mut findings = host::findings();
    findings.push(network::finding());
    findings.push(kvm::finding());
    findings.push(trial_machine::finding());
    let can_run = findings.iter().all(|f| f.status != Status::Bad);
    let report = Report { can_run, findings };
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        write!(io::stdout(), "{}", text(&report))?;
    }
    Ok(if can_run {
        Outcome::Passed
    } else {
        Outcome::Failed
    })
}

fn text(report: &Report) -> String {
    let width = report
        .findings
        .iter()
        .map(|f| f.name.len())
        .max()
        .unwrap_or(0);
    let mut out = String::new();
    for finding in &report.findings {
        let status = match finding.status {
            Status::Ok => "ok  ",
            Status::Note => "note",
            Status::Bad => "BAD ",
        };
        out += &format!("{status}  {:width$}  {}\n", finding.name, finding.text);
    }
    out += if report.can_run {
        "\nGuests can run here with --hypervisor process.\n"
    } else {
        "\nGuests cannot run here with --hypervisor process: see the lines that say BAD.\n"
    };
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let report = Report {
            can_run: false,
            findings: vec![
                Finding::new("kernel", Status::Ok, "6.1", "Linux 6.1"),
                Finding::of("fsgsbase", false, Status::Bad, "yes", "no"),
            ],
        };
        let text = text(&report);
        assert!(
            text.contains("ok    kernel    Linux 6.1\nBAD   fsgsbase  no\n"),
            "{text}"
        );
        assert!(text.ends_with("say BAD.\n"));
        let json: serde_json::Value = serde_json::to_value(&report).unwrap();
        assert_eq!(json["findings"][1]["status"], "bad");
        assert_eq!(json["findings"][1]["value"], false);
        assert_eq!(json["can_run"], false);
    }
}
