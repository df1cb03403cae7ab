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
use kvm::Kvm;
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
    /// With --hypervisor process.
    can_run: bool,
    #[serde(skip)]
    kvm: Kvm,
    findings: Vec<Finding>,
}

/// Runs the command.
pub fn run(args: &Doctor) -> anyhow::Result<Outcome> {
    let mut findings = host::findings();
    findings.push(network::finding());
    let (finding, kvm) = kvm::finding();
    findings.push(finding);
    findings.push(trial_machine::finding());
    let can_run = findings.iter().all(|f| f.status != Status::Bad);
    let report = Report {
        can_run,
        kvm,
        findings,
    };
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
    out += verdict(report);
    out
}

/// The last lines.
fn verdict(report: &Report) -> &'static str {
    // The monitor of a machine on KVM has seccomp filters, too.
    let filters = |f: &Finding| f.name == host::SECCOMP && f.status == Status::Bad;
    let confined = !report.findings.iter().any(filters);
    match (report.can_run, report.kvm) {
        (true, _) => "\nGuests can run here with --hypervisor process.\n",
        (false, Kvm::Default) if confined => {
            "\nGuests can run here on KVM only, which is the default (--hypervisor auto).\n\
             Guests cannot run here with --hypervisor process: see the lines that say BAD.\n"
        }
        (false, Kvm::OnRequest) if confined => {
            "\nGuests can run here on KVM only, slowly, and only with --hypervisor kvm.\n\
             Guests cannot run here with --hypervisor process: see the lines that say BAD.\n"
        }
        (false, _) => {
            "\nGuests cannot run here, neither with --hypervisor process nor on KVM.\n\
             See the lines that say BAD, and the line `kvm`.\n"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let report = Report {
            can_run: false,
            kvm: Kvm::No,
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
        assert!(text.contains("Guests cannot run here, neither"), "{text}");
        let json: serde_json::Value = serde_json::to_value(&report).unwrap();
        assert_eq!(json["findings"][1]["status"], "bad");
        assert_eq!(json["findings"][1]["value"], false);
        assert_eq!(json["can_run"], false);
        assert_eq!(json.as_object().unwrap().len(), 2);
    }

    #[test]
    fn a_host_where_only_kvm_works_is_told_apart() {
        let of = |can_run, kvm, bad: &[&'static str]| {
            let bad = bad.iter();
            let findings = bad.map(|name| Finding::of(name, false, Status::Bad, "yes", "no"));
            verdict(&Report {
                can_run,
                kvm,
                findings: findings.collect(),
            })
        };
        let only = "Guests can run here on KVM only";
        let default = of(false, Kvm::Default, &["fsgsbase", "guest"]);
        assert!(default.contains(only) && default.contains("is the default"));
        let slow = of(false, Kvm::OnRequest, &["fsgsbase", "guest"]);
        assert!(slow.contains(only) && slow.contains("only with --hypervisor kvm"));
        for (kvm, bad) in [(Kvm::No, "guest"), (Kvm::Default, host::SECCOMP)] {
            assert!(of(false, kvm, &[bad]).contains("neither"), "{kvm:?} {bad}");
        }
        for kvm in [Kvm::No, Kvm::OnRequest, Kvm::Default] {
            let text = of(true, kvm, &[]);
            assert_eq!(text, "\nGuests can run here with --hypervisor process.\n");
        }
    }
}
