// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane bench native`: what the annotated sites cost on bare metal, in instructions.
//!
//! The guest runs under QEMU with one nanosecond of guest time for each instruction, so that its clock counts
//! instructions: exact, and the same on every host.

mod table;

use super::conformance::MEMORY_MIB;
use super::{Outcome, hypervisor};
use crate::cli::{BenchNative, HypervisorKind, Layer};
use crate::hypervisor::{Event, Hypervisor, Machine, Verdict};
use crate::inputs::{GuestFile, LayerFile};
use crate::signals::Signals;
use anyhow::{Context, bail};
use indicatif::ProgressBar;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use table::{Row, Table};

const LAYERS: [Layer; 3] = [Layer::None, Layer::Native, Layer::NativeStats];
const BEGIN: &str = "<!-- bench:native begin -->";
const END: &str = "<!-- bench:native end -->";

/// Runs the guest once for each layer, and prints or writes the table.
pub fn native(args: &BenchNative) -> anyhow::Result<Outcome> {
    let guest = GuestFile::load(args.guest.as_deref())?;
    // Before minutes of work: is there something to write into?
    let page = args.write.as_deref().map(Page::read).transpose()?;
    let hypervisor = hypervisor(HypervisorKind::Qemu)?;
    let signals = Signals::install().context("cannot take note of signals")?;
    let mut table = Table::default();
    for layer in LAYERS {
        let bar = ProgressBar::new_spinner().with_message(format!("counting with layer {}", layer.name()));
        bar.enable_steady_tick(Duration::from_millis(100));
        let timeout = Duration::from_secs(args.timeout);
        let rows = measure(&*hypervisor, &guest, layer, timeout, &signals);
        bar.finish_and_clear();
        match rows? {
            Measured::Rows(rows) => table.add(layer.name(), rows)?,
            Measured::Interrupted(signal) => return Ok(Outcome::Interrupted(signal)),
        }
    }
    match page {
        Some(page) => page.replace(&table.markdown())?,
        None if args.json => writeln!(io::stdout(), "{}", table.json()?)?,
        None => write!(io::stdout(), "{}", table.markdown())?,
    }
    Ok(Outcome::Passed)
}

enum Measured {
    Rows(Vec<Row>),
    Interrupted(u8),
}

fn measure(
    hypervisor: &dyn Hypervisor,
    guest: &GuestFile,
    layer: Layer,
    timeout: Duration,
    signals: &Signals,
) -> anyhow::Result<Measured> {
    let file = LayerFile::built_in(layer);
    let machine = Machine {
        guest,
        layer: file.rom.as_deref(),
        command_line: format!("layer={} bench", file.expect),
        cpus: 1,
        memory_mib: MEMORY_MIB,
        count_instructions: true,
    };
    let name = layer.name();
    let mut running = hypervisor.start(&machine)?;
    let deadline = Instant::now() + timeout;
    let mut rows = Vec::new();
    let mut last = String::new();
    loop {
        match running.next(deadline, signals) {
            Event::Line(line) => {
                if let Some(row) = line.trim().strip_prefix("bench ") {
                    let row = Row::parse(row).with_context(|| format!("layer {name}: the guest printed `{line}`"))?;
                    rows.push(row);
                }
                if !line.trim().is_empty() {
                    last = line;
                }
            }
            Event::Ended(Verdict::Passed) if rows.is_empty() => bail!("layer {name}: the guest printed no figures"),
            Event::Ended(Verdict::Passed) => return Ok(Measured::Rows(rows)),
            Event::Ended(Verdict::Failed) => {
                bail!("layer {name}: the guest says that it failed; it ended with `{last}`")
            }
            Event::Ended(Verdict::Crashed(why)) => bail!("layer {name}: {why}; the guest ended with `{last}`"),
            Event::TimedOut => bail!(
                "layer {name}: no end after {} s; the guest's last line is `{last}`",
                timeout.as_secs()
            ),
            Event::Interrupted(signal) => return Ok(Measured::Interrupted(signal)),
        }
    }
}

/// A page with a place for the table.
struct Page<'a> {
    path: &'a Path,
    before: String,
    after: String,
}

impl<'a> Page<'a> {
    fn read(path: &'a Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let parts = text
            .split_once(BEGIN)
            .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
        match parts {
            Some((before, after)) => Ok(Page {
                path,
                before: before.to_string(),
                after: after.to_string(),
            }),
            None => bail!("{}: the lines `{BEGIN}` and `{END}` are not there", path.display()),
        }
    }

    fn replace(&self, table: &str) -> anyhow::Result<()> {
        let text = format!("{}{BEGIN}\n\n{table}\n{END}{}", self.before, self.after);
        fs::write(self.path, text).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.md");
        fs::write(&path, format!("# A\n{BEGIN}\nold\n{END}\ntail\n")).unwrap();
        for table in ["| a |\n", "| b |\n"] {
            Page::read(&path).unwrap().replace(table).unwrap();
        }
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            format!("# A\n{BEGIN}\n\n| b |\n\n{END}\ntail\n")
        );
        fs::write(&path, "nothing").unwrap();
        assert!(Page::read(&path).is_err());
    }
}
