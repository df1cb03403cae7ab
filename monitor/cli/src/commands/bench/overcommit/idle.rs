// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of idle machines: processor time of all of their processes.

use super::super::apps::session::{End, Session};
use super::super::stats::median;
use super::report::Idle;
use super::{Bench, machines, processors};
use anyhow::bail;
use paravane_user_io::progress::Progress;
use std::time::{Duration, Instant};

/// How long machines rest before they are measured, and for how long they are; with `--quick`.
const REST: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(8)];
const MEASURED: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(5)];
/// Interval between two looks at signals.
const LOOK: Duration = Duration::from_millis(100);

/// Starts machines, and measures them.
pub fn measure(bench: &Bench<'_>, count: u32, progress: &Progress) -> anyhow::Result<Idle> {
    let mut machines = Vec::new();
    for number in 1..=count {
        let command = machines::idle(bench)?;
        let name = format!("idle machine {number}");
        machines.push(Session::start(&name, command, End::Machine, bench.terms)?);
    }
    progress.step(&format!("{count} machines idle"));
    let quick = usize::from(bench.args.quick);
    rest(bench, REST[quick])?;
    let ids: Vec<u32> = machines.iter().map(Session::id).collect();
    let (before, begun) = (processors::used(&ids)?, Instant::now());
    rest(bench, MEASURED[quick])?;
    let (after, seconds) = (processors::used(&ids)?, begun.elapsed().as_secs_f64());
    let percent: Vec<f64> = before
        .iter()
        .zip(&after)
        .map(|(before, after)| (after - before) / 1e9 / seconds * 100.0)
        .collect();
    Ok(Idle {
        guests: count,
        seconds,
        all_percent: percent.iter().sum(),
        each_percent: median(&percent),
        most_percent: percent.iter().copied().fold(0.0, f64::max),
    })
}

fn rest(bench: &Bench<'_>, time: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if bench.terms.signals.pending().is_some() {
            bail!("interrupted");
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}
