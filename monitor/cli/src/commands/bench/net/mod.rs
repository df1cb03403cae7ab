// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane bench net`: TCP between two hosts, a guest and a host, and two guests; over virtio-net
//! and over a card of the virtual bus. It is the comparison in the announcement of the original
//! virtual-bus (Haskins, 2009).
//!
//! The hosts are network namespaces of the benchmark's own, joined by a bridge (`hosts.rs`), so
//! nothing here needs a privilege or reaches another network. The paths take turns: each is
//! measured once in each round, and ratios are taken within the rounds.

mod hosts;
mod measure;
mod paths;
mod promises;
mod report;

use super::{plot, program, turns, vbus};
use crate::arguments::BenchNet;
use anyhow::{Context, bail};
use hosts::{Apart, Hosts};
use measure::{Lengths, Terms};
use paravane_kernel as kernel;
use paravane_user_io::outcome::Outcome;
use paravane_user_io::signals::Signals;
use paravane_user_io::stderr;
use paths::{APART, BASE, OLDER, PATHS, Path, Server};
use report::{Report, Row};
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs the command.
pub fn run(args: &BenchNet) -> anyhow::Result<Outcome> {
    if !args.inside {
        return outside(args);
    }
    let signals = Signals::install().context("cannot handle signals")?;
    match inside(args, &signals) {
        // The error is a consequence of the signal.
        Err(_) if signals.pending().is_some() => {
            Ok(Outcome::Interrupted(signals.pending().unwrap_or_default()))
        }
        other => other,
    }
}

/// Starts this command again in namespaces of its own, in which it may make interfaces. All of its
/// processes end with them.
fn outside(args: &BenchNet) -> anyhow::Result<Outcome> {
    selected(args, Apart::find().is_some())?;
    for (option, file) in [
        ("--older", &args.older),
        ("--older-kernel", &args.older_kernel),
    ] {
        if let Some(file) = file {
            fs::metadata(file).with_context(|| format!("{option}: {}", file.display()))?;
        }
    }
    if let Some(file) = &args.plot {
        plot::check_file(file)?;
    }
    // Before a kernel is built, which takes long.
    let mut unshare = namespaces();
    let trial = unshare.args(["--", "true"]).stderr(Stdio::piped()).output();
    let trial = trial.context("cannot run setpriv and unshare (Debian: package util-linux)")?;
    if !trial.status.success() {
        bail!(
            "this needs network namespaces, and this user can have none: {}",
            String::from_utf8_lossy(&trial.stderr).trim()
        );
    }
    let kernel = match &args.kernel {
        Some(file) => file.clone(),
        None => kernel::locate_or_build()?.vmlinux,
    };
    let signals = Signals::install().context("cannot handle signals")?;
    let mut command = namespaces();
    let program = std::env::current_exe().context("cannot find this program's file")?;
    command.arg("--").arg(program);
    command.args(std::env::args_os().skip(1)).arg("--inside");
    if args.kernel.is_none() {
        command.arg("--kernel").arg(kernel);
    }
    let mut child = command.spawn().context("cannot run unshare")?;
    loop {
        if let Some(status) = child.try_wait()? {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(Outcome::Guest(code.unwrap_or(1)));
        }
        if let Some(signal) = signals.pending() {
            // unshare ignores other signals while it waits; its children end with it.
            child.kill()?;
            child.wait()?;
            return Ok(Outcome::Interrupted(signal));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// `unshare`, which ends when this process does.
fn namespaces() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare"]);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "--mount", "--propagation", "private"]);
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    command
}

/// The paths that the user wants; all if none is named. `apart`: there are processors for programs
/// that have one each.
fn selected(args: &BenchNet, apart: bool) -> anyhow::Result<Vec<&'static Path>> {
    let names = &args.path;
    for name in names {
        if !PATHS.iter().any(|path| path.name == name) {
            let known: Vec<&str> = PATHS.iter().map(|path| path.name).collect();
            bail!("--path {name}: there are {}", known.join(", "));
        }
    }
    if !apart && names.iter().any(|name| name == APART) {
        bail!("--path {APART}: client and server need a processor each, and there is one");
    }
    if args.older.is_none() && names.iter().any(|name| name == OLDER) {
        bail!("--path {OLDER}: --older names the other build");
    }
    // The comparisons are always measured, where that is possible.
    let wanted = |path: &&Path| match path.name {
        APART => apart,
        BASE => true,
        OLDER => args.older.is_some(),
        name => names.is_empty() || names.iter().any(|n| n == name),
    };
    Ok(PATHS.iter().filter(wanted).collect())
}

fn inside(args: &BenchNet, signals: &Signals) -> anyhow::Result<Outcome> {
    let lengths = if args.quick {
        Lengths::QUICK
    } else {
        Lengths::FULL
    };
    let rounds = if args.quick { 2 } else { args.rounds };
    let kernel = args.kernel.clone().context("no kernel")?;
    let folder = program::folder("net", paravane_blobs::NET)?;
    let apart = Apart::find();
    let paths = selected(args, apart.is_some())?;
    let older_kernel = args.older_kernel.as_ref().unwrap_or(&kernel);
    let older = args.older.as_ref();
    let (mut rows, begun) = (Vec::new(), Instant::now());
    for &mtu in &args.mtu {
        let hosts = Hosts::new(mtu, args.rate, folder.path(), apart)?;
        // Only where two guests need it, since it is one more process.
        let needs_bus = paths
            .iter()
            .any(|path| matches!(path.server, Server::GuestOnBus(_)));
        let bus = needs_bus.then(vbus::Daemon::start).transpose()?;
        let terms = Terms {
            hosts: &hosts,
            bus: bus.as_ref(),
            kernel: &kernel,
            older: older.map(|program| (program.as_path(), older_kernel.as_path())),
            folder: folder.path(),
            cpus: args.cpus,
            mtu,
            signals,
        };
        let mut servers = Vec::new();
        for path in &paths {
            let server = terms.server(path);
            servers.push(server.with_context(|| format!("{}: its server", path.name))?);
        }
        let mut measured: Vec<Row> = paths.iter().map(|path| Row::new(path.name, mtu)).collect();
        for round in 0..rounds {
            let time = begun.elapsed().as_secs();
            stderr::say(&format!(
                "paravane: MTU {mtu}, round {} of {rounds}, {time} s so far\n",
                round + 1
            ));
            // From either end in turn, so that no path always comes after the same one.
            let mut pairs: Vec<_> = paths.iter().zip(&mut measured).collect();
            if round % 2 == 1 {
                pairs.reverse();
            }
            for (path, row) in pairs {
                let turn = terms.measure(path, lengths);
                row.add(turn.with_context(|| format!("path {}", path.name))?);
                if let Some(signal) = signals.pending() {
                    return Ok(Outcome::Interrupted(signal));
                }
            }
        }
        rows.extend(measured);
        drop(servers);
    }
    let report = Report::new(&rows, args.rate);
    if let Some(file) = &args.plot {
        let picture = plot::draw("round trip, host = 1, with 95 % intervals", &report.bars());
        fs::write(file, picture).with_context(|| file.display().to_string())?;
    }
    report.show(args.json)?;
    Ok(turns::judge(&report.missed()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // Arguments that are wrong fail the test.

    use super::*;
    use crate::arguments::{Bench, Cli, Command};
    use clap::Parser;

    #[test]
    fn the_comparisons_are_measured_where_that_is_possible() {
        let chosen = |words: &[&str], apart| {
            let words = ["paravane", "bench", "net"].iter().chain(words);
            let Command::Bench(Bench::Net(args)) = Cli::try_parse_from(words).unwrap().command
            else {
                unreachable!()
            };
            let paths = selected(&args, apart).ok()?;
            Some(paths.iter().map(|path| path.name).collect::<Vec<_>>())
        };
        let tap = &["--path", "venet-tap"][..];
        assert_eq!(chosen(tap, true), Some(vec![BASE, APART, "venet-tap"]));
        assert_eq!(chosen(tap, false), Some(vec![BASE, "venet-tap"]));
        let count = |words: &[&str], apart| chosen(words, apart).map(|all| all.len());
        assert_eq!(count(&["--older", "x"], true), Some(PATHS.len()));
        assert_eq!(count(&["--older", "x"], false), Some(PATHS.len() - 1));
        assert_eq!(count(&[], true), Some(PATHS.len() - 1));
        assert_eq!(chosen(&["--path", APART], false), None);
        assert_eq!(chosen(&["--path", OLDER], true), None);
        assert_eq!(chosen(&["--path", "pigeon"], true), None);
    }
}
