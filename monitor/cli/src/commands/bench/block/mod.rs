// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane bench block`: a file of the host, read and written by the host itself, by a guest over
//! virtio-blk, and by a guest over a disk of the virtual bus; with `--engines` also by a guest over
//! a disk of vbusd, by each of its engines.
//!
//! The host has the file in its page cache, so the path to the file is measured and not the disk.
//! Guests do not keep it in theirs. The paths take turns: each is measured once in each round, and
//! ratios are taken within the rounds.

mod bus;
mod measure;
mod report;

use super::{plot, program};
use crate::arguments::BenchBlock;
use anyhow::Context;
use bus::Bus;
use measure::{BUS_ROUTES, Lengths, ROUTES, Route, Terms};
use paravane_kernel as kernel;
use paravane_user_io::outcome::Outcome;
use paravane_user_io::signals::Signals;
use paravane_user_io::stderr;
use report::{Report, Row};
use std::fs::{self, File};
use std::io::Write;
use std::time::Instant;
use tempfile::TempDir;

/// The size of the file, in MiB.
const SIZE: usize = 256;

/// Runs the command.
pub fn run(args: &BenchBlock) -> anyhow::Result<Outcome> {
    if let Some(file) = &args.plot {
        plot::check_file(file)?;
    }
    // A folder that is refused is refused before Linux is built, which takes minutes.
    drop(place(args)?);
    let kernel = match &args.kernel {
        Some(file) => file.clone(),
        None => kernel::locate_or_build()?.vmlinux,
    };
    let signals = Signals::install().context("cannot handle signals")?;
    match measure(args, &kernel, &signals) {
        // The error is a consequence of the signal.
        Err(_) if signals.pending().is_some() => {
            Ok(Outcome::Interrupted(signals.pending().unwrap_or_default()))
        }
        other => other,
    }
}

/// A folder for the file.
fn place(args: &BenchBlock) -> anyhow::Result<TempDir> {
    match &args.folder {
        Some(folder) => TempDir::new_in(folder).with_context(|| folder.display().to_string()),
        None => TempDir::new().context("cannot make a temporary folder"),
    }
}

fn measure(
    args: &BenchBlock,
    kernel: &std::path::Path,
    signals: &Signals,
) -> anyhow::Result<Outcome> {
    let lengths = if args.quick {
        Lengths::QUICK
    } else {
        Lengths::FULL
    };
    let rounds = if args.quick { 2 } else { args.rounds };
    let program = program::folder("block", paravane_blobs::BLOCK)?;
    let data = place(args)?;
    let bus = args.engines.then(|| Bus::start(Some(data.path())));
    let bus = bus.transpose()?;
    let file = match &bus {
        // vbusd opens files of its folder only.
        Some(bus) => bus.file(),
        None => data.path().join("disk"),
    };
    fill(&file).with_context(|| file.display().to_string())?;
    let terms = Terms {
        kernel,
        folder: program.path(),
        file: &file,
        bus: bus.as_ref(),
        cpus: args.cpus,
        signals,
    };
    let by_vbusd = bus.iter().flat_map(|_| &BUS_ROUTES);
    let routes: Vec<&Route> = ROUTES.iter().chain(by_vbusd).collect();
    let mut rows: Vec<Row> = routes.iter().map(|route| Row::new(route.name)).collect();
    let begun = Instant::now();
    for round in 0..rounds {
        let time = begun.elapsed().as_secs();
        stderr::say(&format!(
            "paravane: round {} of {rounds}, {time} s so far\n",
            round + 1
        ));
        for (route, row) in routes.iter().zip(&mut rows) {
            let turn = terms.measure(route, lengths);
            row.add(turn.with_context(|| format!("path {}", route.name))?);
            if let Some(signal) = signals.pending() {
                return Ok(Outcome::Interrupted(signal));
            }
        }
    }
    let report = Report::new(&rows);
    if let Some(file) = &args.plot {
        let title = "speed, host = 1, with 95 % intervals";
        let picture = plot::draw(title, &report.bars());
        fs::write(file, picture).with_context(|| file.display().to_string())?;
    }
    report.show(args.json)?;
    Ok(Outcome::Passed)
}

/// Makes the file, without holes.
fn fill(path: &std::path::Path) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    let piece = vec![0x5a; 1 << 20];
    for _ in 0..SIZE {
        file.write_all(&piece)?;
    }
    Ok(())
}
