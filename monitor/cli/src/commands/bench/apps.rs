// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane bench apps`: measures programs of Debian in a virtual machine, each beside the host.
//!
//! Both sides have the same root file system, made by this program, and run the same scripts
//! (`bench/apps/`). They take turns on the same CPUs, and the ratio is taken within each turn.

mod batch;
mod description;
mod earlier;
mod failure;
mod figures;
mod guesses;
mod host_memory;
mod inputs;
mod means;
mod measure;
mod measured;
mod peers;
mod plan;
mod plot;
mod promise;
mod report;
pub(super) mod roots;
#[expect(unsafe_code, reason = "works between fork and exec")]
pub(super) mod session;
pub(super) mod sides;
mod views;

use super::markdown::Page;
use super::plot::{check_file, draw};
use super::{cpus, turns};
use crate::arguments::BenchApps;
use anyhow::{Context, bail};
use batch::Bench;
use description::{App, Input};
use earlier::Origin;
use failure::Failure;
use paravane_kernel as kernel;
use paravane_user_io::outcome::Outcome;
use paravane_user_io::signals::Signals;
use paravane_user_io::stderr;
use peers::System;
use plan::Group;
use report::Report;
use session::Terms;
use sides::Root;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The name of the table's markers in the page.
const MARKER: &str = "apps";

/// Measures, and prints or writes the table.
pub fn run(args: &BenchApps) -> anyhow::Result<Outcome> {
    let apps = description::all()?;
    if args.list {
        write!(io::stdout(), "{}{}", plan::list(&apps), guesses::list())?;
        return Ok(Outcome::Passed);
    }
    // A name that is wrong is reported at once.
    guesses::chosen(&args.ablate)?;
    let cpus = cpus::allowed();
    let view = args.view.as_deref().map(views::find).transpose()?;
    if let Some(view) = &view {
        stderr::say(&format!("paravane: {}\n", view.about));
    }
    let (groups, mut failures) = plan::groups(&apps, args, view.as_ref(), cpus.len())?;
    let origin = Origin::new(args, cpus.len())?;
    let earlier = args.add.as_deref();
    let earlier = earlier.map(|file| earlier::read(file, &origin, &apps));
    let earlier = earlier.transpose()?.unwrap_or_default();
    let page = Page::chosen(&args.output, MARKER)?;
    if let Some(file) = &args.plot {
        check_file(file)?;
    }
    for line in peers::present(&args.against).1 {
        stderr::say(&format!("paravane: {line}\n"));
    }
    sides::check_host()?;
    roots::of_user(args.root.as_deref())?;
    if args.kernel.is_none() {
        // Not in the first machine's time.
        kernel::locate_or_build()?;
    }
    let linux = groups.iter().any(|g| g.app.input == Some(Input::Linux));
    // Here, too, because what fetches it does not look at signals that have a handler.
    let linux = linux.then(kernel::source).transpose()?;
    let signals = Signals::install().context("cannot handle signals")?;
    let cache = roots::cache()?;
    let prepared = prepare(&cache, &apps, &groups, linux.as_ref(), args, &signals);
    let (roots, inputs) = match prepared {
        // The error is a consequence of the signal.
        Err(_) if signals.pending().is_some() => {
            return Ok(Outcome::Interrupted(signals.pending().unwrap_or_default()));
        }
        other => other?,
    };
    let bench = Bench {
        args,
        cache: &cache,
        cpus: &cpus,
        terms: Terms {
            signals: &signals,
            timeout: Duration::from_secs(args.timeout),
        },
    };
    let mut measured = Vec::new();
    for batch in plan::batches(groups, args.beside_one_vcpu) {
        let Some(app) = batch.first().map(|group| group.app) else {
            continue;
        };
        let Some(root) = roots.get(app.root.as_str()) else {
            bail!("{}: no root", app.name);
        };
        let result = bench.batch(&batch, root, app.input.and(inputs.as_deref()));
        match result {
            Ok((rows, others)) => {
                measured.extend(rows);
                failures.extend(others);
            }
            // The error is a consequence of the signal.
            Err(_) if signals.pending().is_some() => {}
            // The others are worth their time all the same.
            Err(error) => {
                let why = format!("{error:#}");
                let failed = batch.iter();
                failures.extend(failed.map(|group| Failure::of(group, System::Paravane, &why)));
            }
        }
        if signals.pending().is_some() {
            break;
        }
    }
    let report = |measured, failures| {
        let rows = earlier::join(earlier, measured);
        let mut report = Report::new(rows, failures, view.as_ref(), &apps);
        report.origin = Some(origin);
        report
    };
    if let Some(signal) = signals.pending() {
        let any = !measured.is_empty();
        let report = any.then(|| report(measured, Vec::new()));
        return turns::interrupted(signal, report.as_ref(), args.output.json);
    }
    let failed = failures.iter().any(Failure::is_error);
    let report = report(measured, failures);
    if let Some(file) = &args.plot {
        fs::write(file, draw(plot::TITLE, &plot::bars(&report.rows)))
            .with_context(|| file.display().to_string())?;
    }
    turns::show(&report, page, args.output.json)?;
    let outcome = if args.check {
        turns::judge(&report.missed())
    } else {
        Outcome::Passed
    };
    Ok(if failed { Outcome::Failed } else { outcome })
}

/// The roots by their names, and the folder of the input, of which some of the groups have need.
fn prepare<'a>(
    cache: &Path,
    apps: &'a [App],
    groups: &[Group<'_>],
    linux: Option<&kernel::Source>,
    args: &BenchApps,
    signals: &Signals,
) -> anyhow::Result<(BTreeMap<&'a str, Root>, Option<PathBuf>)> {
    let mut roots = BTreeMap::new();
    for app in apps {
        let name = app.root.as_str();
        if roots.contains_key(name) || !groups.iter().any(|group| group.app.root == app.root) {
            continue;
        }
        let root = roots::find(cache, apps, name, args.root.as_deref(), signals)?;
        roots.insert(name, root);
    }
    let input = linux.map(|source| inputs::linux(cache, source, signals));
    Ok((roots, input.transpose()?))
}
