// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The result: shares of time, functions, counters.

use crate::perf::Perf;
use crate::place::Place;
use crate::session::{Subject, scope_in_words};
use crate::tally::Tally;
use crate::tasks::Times;
use serde::Serialize;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::time::Duration;

/// What a session has seen.
#[derive(Debug)]
pub struct Watched<'a> {
    /// The machine.
    pub subject: &'a Subject,
    /// The events, if there were any.
    pub perf: Option<&'a Perf>,
    /// The samples of each vCPU.
    pub tallies: &'a [Tally],
    /// The host's accounting of each vCPU.
    pub times: &'a [Times],
    /// CPU time of the monitor's threads by name, in nanoseconds.
    pub helpers: &'a BTreeMap<String, u64>,
    /// How long the accounting went on.
    pub wall: Duration,
    /// How long perf counted.
    pub counted: Duration,
    /// Largest length of a list.
    pub top: usize,
}

/// A profile. Percentages are of the time of one vCPU or, for all, of the sum over all vCPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// The machine's name.
    pub machine: String,
    /// How long it was watched.
    pub seconds: f64,
    /// `perf` or `counters`.
    pub source: &'static str,
    /// What perf watched: `cpus` or `threads`.
    pub scope: Option<&'static str>,
    /// Samples for each second of CPU time.
    pub frequency: Option<u64>,
    /// Samples of vCPUs.
    pub samples: u64,
    /// Samples that the host dropped.
    pub lost: u64,
    /// What is missing and why.
    pub notes: Vec<String>,
    /// All vCPUs together.
    pub all: Shares,
    /// Each vCPU.
    pub vcpus: Vec<Shares>,
    /// Functions of the guest's kernel, the hottest first.
    pub guest_kernel: Vec<Row>,
    /// Functions of the layer.
    pub layer: Vec<Row>,
    /// What the host's kernel was entered for.
    pub host_kernel: Vec<Row>,
    /// CPU time of the monitor's threads, in percent of one CPU.
    pub monitor: Vec<Row>,
    /// What the layer and the devices counted in that time.
    pub counters: Vec<Counter>,
    /// How long they counted.
    pub counters_seconds: f64,
}

/// Where the time of a vCPU went, in percent. Without samples guest and layer are one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Shares {
    /// Guest programs, guest kernel and layer together.
    pub guest_and_layer: f64,
    /// Programs of the guest.
    pub programs: Option<f64>,
    /// The guest's kernel.
    pub guest_kernel: Option<f64>,
    /// The layer.
    pub layer: Option<f64>,
    /// Addresses where no code should be.
    pub elsewhere: Option<f64>,
    /// The host's kernel for this vCPU.
    pub host_kernel: f64,
    /// Ready to run, without a CPU.
    pub ready: f64,
    /// Halted, or waiting for the host.
    pub waiting: f64,
}

/// A line of a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// The function or thread.
    pub name: String,
    /// Its time.
    pub percent: f64,
    /// Its time on each vCPU, in percent of that vCPU's time; empty for threads of the monitor.
    pub vcpus: Vec<f64>,
}

/// The increase of a counter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counter {
    /// Its name.
    pub name: String,
    /// What it counts.
    pub what: String,
    /// The increase on all vCPUs. The layer's counts are in memory that the guest can write.
    pub total: u64,
    /// The increase on each vCPU; empty for a device.
    pub vcpus: Vec<u64>,
}

/// Computes the report, except for the counters.
pub fn make(watched: &Watched<'_>) -> Report {
    let wall = nanoseconds(watched.wall).max(1.0);
    let vcpus: Vec<One> = (0..watched.subject.vcpus)
        .map(|vcpu| One::of(watched, vcpu, wall))
        .collect();
    let shares: Vec<Shares> = vcpus.iter().map(|one| one.shares).collect();
    let perf = watched.perf;
    let books = &watched.subject.books;
    let functions = |of: fn(&Tally) -> &Functions, name: &dyn Fn(&Option<usize>) -> String| {
        rows(watched, &vcpus, |tally| of(tally).iter(), name)
    };
    let in_book = |book: &Option<crate::book::Book>, number: &Option<usize>| match (book, number) {
        (Some(book), Some(number)) => book.name(*number).to_string(),
        _ => "(between functions)".to_string(),
    };
    Report {
        machine: watched.subject.name.clone(),
        seconds: watched.wall.as_secs_f64(),
        source: if perf.is_some() { "perf" } else { "counters" },
        scope: perf.map(|perf| scope_in_words(perf.scope)),
        frequency: perf.map(|perf| 1_000_000_000 / perf.period.max(1)),
        samples: watched.tallies.iter().map(Tally::total).sum(),
        lost: perf.map_or(0, |perf| perf.lost),
        notes: watched.subject.notes.clone(),
        all: mean(&shares),
        vcpus: shares,
        guest_kernel: functions(|t| &t.guest_kernel, &|n| in_book(&books.guest_kernel, n)),
        layer: functions(|t| &t.layer, &|n| in_book(&books.layer, n)),
        host_kernel: rows(watched, &vcpus, |t| t.host_kernel.iter(), &String::clone),
        monitor: helpers(watched, wall),
        counters: Vec::new(),
        counters_seconds: 0.0,
    }
}

type Functions = std::collections::HashMap<Option<usize>, u64>;

/// One vCPU.
struct One {
    shares: Shares,
    /// What one sample stands for, in percent of the vCPU's time.
    weight: f64,
}

impl One {
    fn of(watched: &Watched<'_>, vcpu: usize, wall: f64) -> Self {
        let times = watched.times.get(vcpu).copied().unwrap_or_default();
        let none = Tally::default();
        let tally = watched.tallies.get(vcpu).unwrap_or(&none);
        let percent = |ns: f64| 100.0 * ns / wall;
        // The accounting of the host may be a little later than the clock.
        let cpu = percent(float(times.cpu_ns)).min(100.0);
        let ready = percent(float(times.ready_ns)).min(100.0 - cpu);
        let mut shares = Shares {
            ready,
            waiting: 100.0 - cpu - ready,
            ..Shares::default()
        };
        let mut weight = 0.0;
        let ticks = times.user.saturating_add(times.system);
        let user = |unknown: f64| match ticks {
            0 => unknown,
            _ => cpu * float(times.user) / float(ticks),
        };
        match watched.perf {
            None => {
                shares.guest_and_layer = user(cpu);
                shares.host_kernel = cpu - shares.guest_and_layer;
            }
            Some(perf) => {
                let samples = float(tally.total());
                if samples > 0.0 && perf.host {
                    weight = cpu / samples;
                } else if samples > 0.0 {
                    // There are no samples of the host's kernel. The timers of the samples come too
                    // late for a thread that runs only for microseconds, so the number of samples
                    // is no measure. The host's ticks are.
                    let span = nanoseconds(watched.counted).max(1.0);
                    let sampled = 100.0 * float(perf.period) / span * samples;
                    weight = user(sampled.min(cpu)) / samples;
                }
                let place = |place: Place| weight * float(tally.of(place));
                shares.programs = Some(place(Place::Program));
                shares.guest_kernel = Some(place(Place::Image) + place(Place::Mapped));
                shares.layer = Some(place(Place::Layer));
                shares.elsewhere = Some(place(Place::Other));
                shares.guest_and_layer = weight * float(tally.total() - tally.of(Place::Host));
                // Too short a time for a sample is the host's, too: it is mostly wake-ups.
                shares.host_kernel = (cpu - shares.guest_and_layer).max(0.0);
            }
        }
        One { shares, weight }
    }
}

/// The mean over all vCPUs: their sum in percent of the time of all.
fn mean(all: &[Shares]) -> Shares {
    let count = float(all.len().try_into().unwrap_or(u64::MAX)).max(1.0);
    let each = |of: fn(&Shares) -> f64| all.iter().map(of).sum::<f64>() / count;
    let some = |of: fn(&Shares) -> Option<f64>| {
        let sum: Option<f64> = all.iter().map(of).sum();
        sum.filter(|_| !all.is_empty()).map(|sum| sum / count)
    };
    Shares {
        guest_and_layer: each(|s| s.guest_and_layer),
        programs: some(|s| s.programs),
        guest_kernel: some(|s| s.guest_kernel),
        layer: some(|s| s.layer),
        elsewhere: some(|s| s.elsewhere),
        host_kernel: each(|s| s.host_kernel),
        ready: each(|s| s.ready),
        waiting: each(|s| s.waiting),
    }
}

/// The hottest lines of a list.
fn rows<'a, K: Eq + Hash + 'a, I: Iterator<Item = (&'a K, &'a u64)>>(
    watched: &'a Watched<'_>,
    vcpus: &[One],
    of: impl Fn(&'a Tally) -> I,
    name: &dyn Fn(&K) -> String,
) -> Vec<Row> {
    let mut by_name: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (vcpu, (tally, one)) in watched.tallies.iter().zip(vcpus).enumerate() {
        for (key, &count) in of(tally) {
            let row = by_name
                .entry(name(key))
                .or_insert_with(|| vec![0.0; vcpus.len()]);
            if let Some(percent) = row.get_mut(vcpu) {
                *percent += one.weight * float(count);
            }
        }
    }
    let count = float(vcpus.len().try_into().unwrap_or(u64::MAX)).max(1.0);
    let row = |(name, vcpus): (String, Vec<f64>)| Row {
        name,
        percent: vcpus.iter().sum::<f64>() / count,
        vcpus,
    };
    hottest(by_name.into_iter().map(row).collect(), watched.top)
}

fn helpers(watched: &Watched<'_>, wall: f64) -> Vec<Row> {
    let row = |(name, &ns): (&String, &u64)| Row {
        name: name.clone(),
        percent: 100.0 * float(ns) / wall,
        vcpus: Vec::new(),
    };
    hottest(watched.helpers.iter().map(row).collect(), watched.top)
}

fn hottest(mut rows: Vec<Row>, top: usize) -> Vec<Row> {
    rows.sort_by(|a, b| {
        b.percent
            .total_cmp(&a.percent)
            .then_with(|| a.name.cmp(&b.name))
    });
    rows.truncate(top);
    rows
}

#[allow(clippy::cast_precision_loss)] // Shares need few digits.
fn float(number: u64) -> f64 {
    number as f64
}

fn nanoseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
