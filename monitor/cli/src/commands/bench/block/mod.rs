// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane bench block`: fio on a file of the host, by the host itself, by a guest over
//! virtio-blk, and by a guest over a disk of the virtual bus; with `--engines` also by a guest over
//! a disk of vbusd, by each of its engines; with `--direct` also by the host past its page cache.
//!
//! fio is the same program everywhere, from the root of `bench apps`. The host has the file in its
//! page cache, so the path to the file is measured and not the disk. Guests do not keep it in
//! theirs. The paths take turns: each is measured once in each round, and ratios are taken within
//! the rounds.

mod bus;
mod fio;
mod measure;
mod report;

use super::apps::session;
use super::apps::{roots, sides};
use super::{plot, turns};
use crate::arguments::BenchBlock;
use anyhow::{Context, bail};
use bus::Bus;
use measure::{BUS_ROUTES, DIRECT, FILE, HOST_DIRECT, ROUTES, Route, Terms, Turn};
use paravane_kernel as kernel;
use paravane_user_io::outcome::Outcome;
use paravane_user_io::signals::Signals;
use paravane_user_io::stderr;
use report::{Report, Row};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The size of the file, in MiB.
const SIZE: usize = 256;
/// Milliseconds for each workload in a turn, and with `--quick`.
const LENGTH: u32 = 1000;
const QUICK_LENGTH: u32 = 100;
/// Rounds with `--quick`.
const QUICK_ROUNDS: u32 = 2;
/// Where roots have programs.
const PROGRAMS: [&str; 3] = ["usr/local/bin", "usr/bin", "bin"];

/// Runs the command.
pub fn run(args: &BenchBlock) -> anyhow::Result<Outcome> {
    if let Some(file) = &args.plot {
        plot::check_file(file)?;
    }
    // Refuses bad options before Linux is built, which takes minutes.
    let trial = place(args)?;
    if args.direct {
        check_direct(trial.path()).context("--direct")?;
    }
    drop(trial);
    check_root(args)?;
    sides::check_host()?;
    let kernel = match &args.kernel {
        Some(file) => file.clone(),
        None => kernel::locate_or_build()?.vmlinux,
    };
    let signals = Signals::install().context("cannot handle signals")?;
    let mut rows: Vec<Row> = routes(args).map(Row::new).collect();
    let measured = measure(args, &kernel, &signals, &mut rows);
    if let Some(signal) = signals.pending() {
        // An error is a consequence of the signal.
        let any = rows.iter().any(Row::is_measured);
        let report = any.then(|| Report::new(&rows));
        return turns::interrupted(signal, report.as_ref(), args.json);
    }
    measured?;
    let report = Report::new(&rows);
    if let Some(file) = &args.plot {
        let title = "speed, host = 1, with 95 % intervals";
        let picture = plot::draw(title, &report.bars());
        fs::write(file, picture).with_context(|| file.display().to_string())?;
    }
    turns::show(&report, None, args.json)?;
    Ok(Outcome::Passed)
}

/// The paths that are measured.
fn routes(args: &BenchBlock) -> impl Iterator<Item = &'static Route> {
    let direct = args.direct.then_some(&HOST_DIRECT);
    let engines: &[Route] = if args.engines { &BUS_ROUTES } else { &[] };
    ROUTES.iter().chain(direct).chain(engines)
}

/// A folder for the file.
fn place(args: &BenchBlock) -> anyhow::Result<TempDir> {
    match &args.folder {
        Some(folder) => TempDir::new_in(folder).with_context(|| folder.display().to_string()),
        None => TempDir::new().context("cannot make a temporary folder"),
    }
}

/// Fails if the file system of a folder cannot pass by the page cache.
fn check_direct(folder: &Path) -> anyhow::Result<()> {
    let path = folder.join("trial");
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    match options.custom_flags(libc::O_DIRECT).open(&path) {
        Ok(_) => Ok(()),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => bail!(
            "{}: its file system has no O_DIRECT: choose another one with --folder",
            folder.parent().unwrap_or(folder).display()
        ),
        Err(error) => Err(error).context(path.display().to_string()),
    }
}

/// Fails if the user's root has no fio.
fn check_root(args: &BenchBlock) -> anyhow::Result<()> {
    let Some(root) = roots::of_user(args.root.as_deref())? else {
        return Ok(());
    };
    // A link's target is a path in the root.
    let has = |folder: &str| root.join(folder).join("fio").symlink_metadata().is_ok();
    if !PROGRAMS.into_iter().any(has) {
        bail!(
            "--root {}: it has no fio (Debian: package fio)",
            root.display()
        );
    }
    Ok(())
}

/// Adds the turns of each complete round to the rows.
fn measure(
    args: &BenchBlock,
    kernel: &Path,
    signals: &Signals,
    rows: &mut [Row],
) -> anyhow::Result<()> {
    let root = roots::of_app("fio", args.root.as_deref(), signals)?;
    let data = place(args)?;
    let bus = args.engines.then(|| Bus::start(Some(data.path())));
    let bus = bus.transpose()?;
    let file = match &bus {
        // vbusd opens files of its folder only.
        Some(bus) => bus.file(),
        None => data.path().join(FILE),
    };
    fill(&file)?;
    if args.direct {
        let folder = data.path().join(DIRECT);
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        // Writes past the page cache drop what it has of a file.
        fill(&folder.join(FILE))?;
    }
    let terms = Terms {
        kernel,
        root: &root,
        folder: data.path(),
        file: &file,
        bus: bus.as_ref(),
        cpus: args.cpus,
        ms: if args.quick { QUICK_LENGTH } else { LENGTH },
        session: session::Terms {
            signals,
            timeout: Duration::from_secs(args.timeout),
        },
    };
    let rounds = if args.quick {
        QUICK_ROUNDS
    } else {
        args.rounds
    };
    let begun = Instant::now();
    for round in 0..rounds {
        let time = begun.elapsed().as_secs();
        stderr::say(&format!(
            "paravane: round {} of {rounds}, {time} s so far\n",
            round + 1
        ));
        let mut order: Vec<(usize, &Route)> = routes(args).enumerate().collect();
        if round % 2 == 1 {
            order.reverse();
        }
        let mut turns: Vec<(usize, Turn)> = Vec::new();
        for (index, route) in order {
            let turn = terms.measure(route);
            turns.push((index, turn.with_context(|| format!("path {}", route.name))?));
        }
        for (index, turn) in turns {
            if let Some(row) = rows.get_mut(index) {
                row.add(turn);
            }
        }
    }
    Ok(())
}

/// Makes a file, without holes, of which all is on the disk and in the page cache.
fn fill(path: &Path) -> anyhow::Result<()> {
    let write = || {
        let mut file = File::create(path)?;
        let piece = vec![0x5a; 1 << 20];
        for _ in 0..SIZE {
            file.write_all(&piece)?;
        }
        file.sync_all()
    };
    write().with_context(|| path.display().to_string())
}
