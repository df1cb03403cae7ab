// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane profile`: samples a running machine, and prints where the time of its vCPUs goes.

mod symbols;

use super::OUTPUT;
use super::machines::running;
use crate::arguments;
use anyhow::{Context, bail};
use paravane_machine::control::{Request, ask_json};
use paravane_machine::layout::Layout;
use paravane_machine::stats::Stats;
use paravane_machine::store::{Machine, State, Store};
use paravane_profile::{Counter, DRAIN, Report, Session, Source, Subject, table};
use paravane_user_io::outcome::Outcome;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// How often the monitor is asked for new processes, and the machine's end is noticed.
const LOOK: Duration = Duration::from_millis(500);

/// Runs the command.
pub fn run(args: &arguments::Profile) -> anyhow::Result<Outcome> {
    let machine = running(&Store::open()?, &args.name)?;
    let report = watch(&machine, args).map_err(|error| match machine.state() {
        Ok(State::Running { .. }) | Err(_) => error,
        Ok(_) => anyhow::anyhow!("machine {} ended while it was watched", machine.name),
    })?;
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)
    } else {
        write!(out, "{}", table(&report))
    }
    .context(OUTPUT)?;
    Ok(Outcome::Passed)
}

/// Watches the machine for as long as the arguments say.
fn watch(machine: &Machine, args: &arguments::Profile) -> anyhow::Result<Report> {
    let State::Running { pid } = machine.state()? else {
        bail!("machine {} is not running", machine.name);
    };
    let begin = layout(machine)?;
    let source = Source::from(args.source);
    let mut notes = Vec::new();
    let books = match source {
        // Nothing will be looked up.
        Source::Counters => paravane_profile::Books::default(),
        Source::Auto | Source::Perf => symbols::read(machine, &begin, &mut notes),
    };
    let subject = Subject {
        name: machine.name.clone(),
        monitor: pid,
        vcpus: begin.vcpus,
        books,
        notes,
    };
    let before: Stats = ask_json(machine, &Request::Stat)?;
    let mut session = Session::begin(subject, &begin.processes, source, args.frequency)?;
    let begun = Instant::now();
    let (end, mut look) = (begun + Duration::from_secs(args.seconds), begun + LOOK);
    loop {
        let now = Instant::now();
        if now >= end {
            break;
        }
        if now >= look {
            session.follow(&layout(machine)?.processes);
            look = now + LOOK;
        }
        std::thread::sleep(DRAIN.min(end - now));
        session.drain();
    }
    let last = layout(machine)?.processes;
    let mut report = session.end(&last, usize::try_from(args.top)?)?;
    let after: Stats = ask_json(machine, &Request::Stat)?;
    let counter = |increase: paravane_machine::stats::Increase| Counter {
        name: increase.name,
        what: increase.what,
        total: increase.total,
        vcpus: increase.vcpus,
    };
    let interval = after.uptime_ms.saturating_sub(before.uptime_ms);
    report.counters_seconds = Duration::from_millis(interval).as_secs_f64();
    report.counters = after.since(&before).into_iter().map(counter).collect();
    Ok(report)
}

/// Where the machine's code is.
fn layout(machine: &Machine) -> anyhow::Result<Layout> {
    ask_json(machine, &Request::Layout)
}
