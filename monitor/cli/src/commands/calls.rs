// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane calls`: which calls of its layer a machine's kernel has made, and what they took.
//!
//! The agent reads what the guest's kernel shows of the layer's section `stats`. So it is the same
//! for each layer that counts. Data from the guest is hostile: it is bounded and checked.

use super::far::{Far, Stream};
use crate::arguments;
use anyhow::Context;
use paravane_user_io::outcome::Outcome;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{self, Read, Write};

/// The most that is read from a guest, in bytes: far more than all calls need.
const MOST: u64 = 1 << 20;
/// The longest name of a call, in bytes.
const NAME: usize = 64;

/// The counts of one call since the last reset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Call {
    /// `section.call`
    name: String,
    /// How often it was made.
    calls: u64,
    /// Processor cycles of all of them.
    cycles: u64,
    /// The number of calls in each range of cycles.
    histogram: Vec<Bucket>,
}

/// Calls that took at least this many cycles, and less than twice as many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Bucket {
    from: u64,
    calls: u64,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report<'a> {
    machine: &'a str,
    calls: &'a [Call],
}

/// Runs the command.
pub fn run(args: &arguments::Calls) -> anyhow::Result<Outcome> {
    let what = if args.reset { "reset" } else { "read" };
    let mut far = Far::start(&args.name, Stream::Output, || Ok(["--layer-stats", what]))?;
    let output = far.child.stdout.take().context("no output")?;
    let mut text = String::new();
    let read = output.take(MOST).read_to_string(&mut text);
    let machine = || format!("machine {}", args.name);
    far.finish().with_context(machine)?;
    read.with_context(machine)?;
    let mut calls = parse(&text).with_context(machine)?;
    calls.sort_by(|a, b| (b.cycles, b.calls, &a.name).cmp(&(a.cycles, a.calls, &b.name)));
    let mut out = io::stdout().lock();
    if args.json {
        let report = Report {
            machine: &args.name,
            calls: &calls,
        };
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        write!(out, "{}", table(&calls))?;
    }
    Ok(Outcome::Passed)
}

/// Reads lines of a name, calls, cycles, and buckets `FROM:CALLS`.
fn parse(text: &str) -> anyhow::Result<Vec<Call>> {
    text.lines()
        .map(|line| {
            call(line).context(
                "its kernel's counts have an unknown form; was it built by another version?",
            )
        })
        .collect()
}

fn call(line: &str) -> Option<Call> {
    let mut words = line.split(' ');
    let name = words.next()?;
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.".contains(c);
    if name.is_empty() || name.len() > NAME || !name.chars().all(letter) {
        return None;
    }
    let mut number = || words.next()?.parse().ok();
    let (calls, cycles) = (number()?, number()?);
    let histogram = words
        .map(|word| {
            let (from, calls) = word.split_once(':')?;
            Some(Bucket {
                from: from.parse().ok()?,
                calls: calls.parse().ok()?,
            })
        })
        .collect::<Option<_>>()?;
    Some(Call {
        name: name.to_string(),
        calls,
        cycles,
        histogram,
    })
}

/// The table, the call with the most cycles first.
fn table(calls: &[Call]) -> String {
    let all: u128 = calls.iter().map(|call| u128::from(call.cycles)).sum();
    let mut out = String::new();
    // Writing to a string does not fail, here and below.
    let _ = writeln!(
        out,
        "{:28}  {:>12}  {:>16}  {:>7}  {:>10}  {:>10}  {:>10}",
        "call", "calls", "cycles", "of all", "a call", "50 % below", "99 % below"
    );
    for call in calls {
        let _ = write!(out, "{:28}  {:>12}  ", call.name, call.calls);
        let timed: u128 = call.histogram.iter().map(|b| u128::from(b.calls)).sum();
        // Calls that do not return have none.
        if timed == 0 {
            let _ = writeln!(out, "{:>16}", "-");
            continue;
        }
        let tenths = u128::from(call.cycles) * 1000 / all.max(1);
        let _ = writeln!(
            out,
            "{:>16}  {:>5}.{}  {:>10}  {:>10}  {:>10}",
            call.cycles,
            tenths / 10,
            tenths % 10,
            u128::from(call.cycles) / timed,
            below(&call.histogram, timed.div_ceil(2)),
            below(&call.histogram, (timed * 99).div_ceil(100)),
        );
    }
    out
}

/// An upper bound of the cycles of the fastest `calls` calls.
fn below(histogram: &[Bucket], calls: u128) -> String {
    let mut seen = 0;
    for bucket in histogram {
        seen += u128::from(bucket.calls);
        if seen >= calls {
            return (u128::from(bucket.from) * 2).to_string();
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "cpu.iret 9 0\nmmu.fill 100 30000 128:50 256:49 4096:1\n";

    #[test]
    fn lines_of_the_kernel() {
        let calls = parse(TEXT).unwrap();
        assert_eq!(calls.len(), 2);
        assert_eq!((calls[0].name.as_str(), calls[0].calls), ("cpu.iret", 9));
        let last = Bucket {
            from: 4096,
            calls: 1,
        };
        assert_eq!(calls[1].histogram.last(), Some(&last));
        assert!(parse("").unwrap().is_empty());
        for bad in [
            "x",
            "x 1",
            "x 1 2 3",
            "x 1 2 3:",
            "\x1b[2J 1 2",
            " 1 2",
            "x -1 2",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        assert!(parse(&format!("{} 1 2", "x".repeat(65))).is_err());
    }

    #[test]
    fn the_table_has_shares_and_limits() {
        let table = table(&parse(TEXT).unwrap());
        let rows: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[1], ["cpu.iret", "9", "-"]);
        let wanted = ["mmu.fill", "100", "30000", "100.0", "300", "256", "512"];
        assert_eq!(rows[2], wanted);
    }
}
