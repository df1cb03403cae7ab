// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures guest and host in turns, row by row, for the tables of [`super::vmi`],
//! [`super::micro`] and [`super::apps`].

use super::bars::Verdict;
use super::markdown::Page;
use super::stats;
use anyhow::{Context, bail};
use indicatif::ProgressBar;
use paravane_user_io::outcome::Outcome;
use paravane_user_io::signals::Signals;
use paravane_user_io::{progress, stderr};
use serde::Serialize;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Interval between two lines of progress.
const EVERY: Duration = Duration::from_secs(10);

/// Something with a name by which the user selects it.
pub trait Named {
    fn name(&self) -> &str;
}

/// The rows with these names, in the table's order; all rows if there are no names.
pub fn select<R: Named>(rows: &'static [R], names: &[String]) -> anyhow::Result<Vec<&'static R>> {
    for name in names {
        if !rows.iter().any(|row| row.name() == name) {
            let known: Vec<&str> = rows.iter().map(Named::name).collect();
            bail!("--row {name}: there are {}", known.join(", "));
        }
    }
    let wanted = |row: &&R| names.is_empty() || names.iter().any(|name| row.name() == name);
    Ok(rows.iter().filter(wanted).collect())
}

/// Measures every row once a round. `what` says in progress messages what is measured. Returns the
/// signal that ended it, if any.
pub fn alternate<T: Named>(
    what: &str,
    rows: &mut [T],
    rounds: u32,
    signals: &Signals,
    mut measure: impl FnMut(&mut T, u32) -> anyhow::Result<()>,
) -> anyhow::Result<Option<u8>> {
    let total = u64::from(rounds) * rows.len() as u64;
    let bar = ProgressBar::new(total);
    let begun = Instant::now();
    let mut last_line = begun;
    for round in 0..rounds {
        for row in &mut *rows {
            // Without a terminal, print lines here: the thread of `Progress` would share the CPUs
            // with the measurement.
            if bar.is_hidden() && (bar.position() == 0 || last_line.elapsed() >= EVERY) {
                last_line = Instant::now();
                let (position, time) = (bar.position(), progress::time(begun.elapsed()));
                stderr::say(&format!(
                    "paravane: measuring{what}: {position} of {total} measurements, {time} so far\n"
                ));
            }
            match measure(row, round) {
                Ok(()) => bar.inc(1),
                // The error is a consequence of the signal.
                Err(_) if signals.pending().is_some() => break,
                Err(error) => return Err(error.context(format!("row {}", row.name()))),
            }
        }
        if let Some(signal) = signals.pending() {
            return Ok(Some(signal));
        }
    }
    bar.finish_and_clear();
    Ok(None)
}

/// A result with two representations.
pub trait Table: Serialize {
    fn markdown(&self) -> String;
}

/// Prints the result, or writes its table into the page.
pub fn show(table: &impl Table, page: Option<Page>, json: bool) -> anyhow::Result<()> {
    match page {
        Some(page) => page.replace(&table.markdown())?,
        None if json => writeln!(io::stdout(), "{}", serde_json::to_string_pretty(table)?)
            .context(crate::commands::OUTPUT)?,
        None => write!(io::stdout(), "{}", table.markdown()).context(crate::commands::OUTPUT)?,
    }
    Ok(())
}

/// Prints what was measured before a signal, which may have taken hours; `None`: nothing was. A
/// page and a picture stay as they are, for they are of all rows.
pub fn interrupted(
    signal: u8,
    measured: Option<&impl Table>,
    json: bool,
) -> anyhow::Result<Outcome> {
    if let Some(table) = measured {
        stderr::say("paravane: interrupted; measured until then, of complete turns:\n");
        show(table, None, json)?;
    }
    Ok(Outcome::Interrupted(signal))
}

/// Says in one line what rows miss of their bars, and whether the command has failed by that.
pub fn judge(missed: &[String]) -> Outcome {
    if missed.is_empty() {
        return Outcome::Passed;
    }
    let all = missed.join("; ");
    stderr::say(&format!("paravane: bars are not met: {all}\n"));
    Outcome::Failed
}

/// The measurements of a row.
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    guest: Vec<f64>,
    host: Vec<f64>,
}

impl Pairs {
    /// Adds the figures of guest and host in one turn.
    pub fn add(&mut self, guest: f64, host: f64) {
        self.guest.push(guest);
        self.host.push(host);
    }

    /// The ratio of the guest's figure to the host's in each turn.
    pub fn ratios(&self) -> Vec<f64> {
        let pairs = self.guest.iter().zip(&self.host);
        pairs.map(|(guest, host)| guest / host).collect()
    }

    /// The figures of guest and host, turn by turn.
    pub fn all(&self) -> (&[f64], &[f64]) {
        (&self.guest, &self.host)
    }

    /// The medians of guest and host.
    pub fn medians(&self) -> (f64, f64) {
        (stats::median(&self.guest), stats::median(&self.host))
    }

    /// For figures in ns.
    pub fn figures(&self) -> Figures {
        let ratios = self.ratios();
        let (guest_ns, host_ns) = self.medians();
        Figures {
            guest_ns,
            host_ns,
            ratio: stats::median(&ratios),
            ci95: stats::interval(&ratios),
            rounds: ratios.len(),
        }
    }
}

/// The published figures of a row.
#[derive(Debug, Serialize)]
pub struct Figures {
    guest_ns: f64,
    host_ns: f64,
    /// The median of the ratios within each turn.
    ratio: f64,
    ci95: [f64; 2],
    rounds: usize,
}

impl Figures {
    /// Titles of [`Figures::cells`], and their alignment.
    pub const TITLES: [&'static str; 2] = [
        "guest, ns | host, ns | ratio | 95 %",
        "---: | ---: | ---: | ---:",
    ];

    /// Whether its ratio is at most that.
    pub fn verdict(&self, bar: f64) -> Verdict {
        Verdict::of_ratio(self.ratio, self.ci95, bar, self.rounds)
    }

    /// What a row of this name misses of its bar, in words.
    pub fn missed(&self, name: &str, bar: f64) -> Option<String> {
        let [low, high] = self.ci95;
        (self.verdict(bar) == Verdict::Missed).then(|| {
            format!(
                "{name}: {:.2} ({low:.2} to {high:.2}), bar {bar}",
                self.ratio
            )
        })
    }

    pub fn cells(&self) -> String {
        let [low, high] = self.ci95;
        format!(
            "{} | {} | {:.2} | {low:.2} to {high:.2}",
            nanoseconds(self.guest_ns),
            nanoseconds(self.host_ns),
            self.ratio
        )
    }
}

/// Formats nanoseconds, with decimals only for small values.
fn nanoseconds(value: f64) -> String {
    let decimals = usize::from(value < 100.0);
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Row(&'static str);

    impl Named for Row {
        fn name(&self) -> &'static str {
            self.0
        }
    }

    #[test]
    fn rows_are_chosen_by_name() {
        static ROWS: [Row; 2] = [Row("flush"), Row("kick")];
        assert_eq!(select(&ROWS, &[]).unwrap().len(), 2);
        assert_eq!(select(&ROWS, &["kick".to_string()]).unwrap()[0].0, "kick");
        let error = select(&ROWS, &["flash".to_string()])
            .unwrap_err()
            .to_string();
        assert_eq!(error, "--row flash: there are flush, kick");
    }

    #[test]
    fn ratios_are_those_of_each_turn() {
        let mut pairs = Pairs::default();
        for (guest, host) in [(20.0, 100.0), (30.0, 100.0), (400.0, 1000.0)] {
            pairs.add(guest, host);
        }
        let figures = pairs.figures();
        assert_eq!(figures.cells(), "30.0 | 100 | 0.30 | 0.20 to 0.40");
        // Three rounds prove nothing.
        assert_eq!(figures.missed("x", 0.1), None);
        pairs.add(30.0, 100.0);
        pairs.add(30.0, 100.0);
        pairs.add(30.0, 100.0);
        let missed = pairs.figures().missed("x", 0.1);
        assert_eq!(missed.as_deref(), Some("x: 0.30 (0.20 to 0.40), bar 0.1"));
        assert_eq!(pairs.figures().verdict(0.3), Verdict::Met);
    }
}
