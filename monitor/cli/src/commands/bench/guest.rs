// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The conformance guest on the process hypervisor, as a benchmark.

use anyhow::bail;
use paravane_hypervisor::process::Process;
use paravane_hypervisor::{Counters, Event, Hypervisor, Machine, Verdict};
use paravane_user_io::signals::Signals;
use paravane_user_io::worker::Limit;
use std::time::{Duration, Instant};

/// Runs a machine to its end, which must be a good one, and passes each line that it prints to
/// `line`. Returns the counters of its layer, which are 0 if it has none.
pub fn run(
    machine: &Machine<'_>,
    timeout: Duration,
    signals: &Signals,
    mut line: impl FnMut(&str) -> anyhow::Result<()>,
) -> anyhow::Result<Counters> {
    let deadline = Instant::now() + timeout;
    let limit = Limit {
        signals: Some(signals),
        deadline,
    };
    let mut running = Process::default().start(machine, &limit)?;
    let mut last = String::new();
    loop {
        match running.next(deadline, signals) {
            Event::Line(text) => {
                line(&text)?;
                last = text;
            }
            Event::Ended(Verdict::Passed) => return Ok(running.counters().unwrap_or_default()),
            Event::Ended(Verdict::Failed) => {
                bail!("the guest says that it failed; it ended with `{last}`")
            }
            Event::Ended(Verdict::Crashed(why)) => {
                bail!("{why}; the guest ended with `{last}`")
            }
            Event::TimedOut => bail!(
                "no end after {} s; the guest's last line is `{last}`",
                timeout.as_secs()
            ),
            Event::Interrupted(signal) => bail!("ended by signal {signal}"),
        }
    }
}
