// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What machines cost in which nothing happens: processor time of all of their processes.

use super::super::apps::session::{End, Session};
use super::super::stats::median;
use super::report::Idle;
use super::{Bench, cpus, machines};
use anyhow::{Context, bail};
use paravane_user_io::progress::Progress;
use std::collections::BTreeMap;
use std::fs;
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
    let (before, begun) = (times(&machines)?, Instant::now());
    rest(bench, MEASURED[quick])?;
    let (after, seconds) = (times(&machines)?, begun.elapsed().as_secs_f64());
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

/// The processor time of each machine so far, in ns.
fn times(machines: &[Session<'_>]) -> anyhow::Result<Vec<f64>> {
    let children = children()?;
    let time = |machine: &Session<'_>| {
        let mut family = vec![machine.id()];
        let mut next = 0;
        while let Some(&parent) = family.get(next) {
            family.extend(children.get(&parent).into_iter().flatten());
            next += 1;
        }
        family.iter().filter_map(|&pid| cpus::of_process(pid)).sum()
    };
    Ok(machines.iter().map(time).collect())
}

/// The children of each process of the host.
fn children() -> anyhow::Result<BTreeMap<u32, Vec<u32>>> {
    let mut all: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").context("/proc")? {
        let name = entry.context("/proc")?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // It may have ended.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if let Some(parent) = parent(&stat) {
            all.entry(parent).or_default().push(pid);
        }
    }
    Ok(all)
}

/// The parent's id in a line of /proc/PID/stat. The name before it may contain anything.
fn parent(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_found() {
        assert_eq!(parent("7 (a) b) c) S 3 7 7 0"), Some(3));
        assert_eq!(parent("7 (a"), None);
        let own = std::process::id();
        let all = children().unwrap();
        assert!(all.values().any(|list| list.contains(&own)));
    }
}
