// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane bench exits`: counts the exits of machines on KVM by kind, with the host kernel's
//! trace events of KVM (`trace.rs`).
//!
//! Each layer has a machine with two vCPUs. A program in it (`bench/exits/`) marks the beginning
//! and the end of each row so that the host sees both between the exits. So counts are exact: they
//! exclude a machine's other work, such as its conversation with this command.

mod kinds;
mod report;
mod rows;
mod trace;

use super::apps::session::{End, Session, Terms};
use super::markdown::Page;
use super::{cpus, program};
use crate::arguments::BenchExits;
use anyhow::{Context, bail};
use kinds::Counts;
use paravane_kernel as kernel;
use paravane_machine::spec::RomLayer;
use paravane_user_io::outcome::Outcome;
use paravane_user_io::progress::Progress;
use paravane_user_io::signals::Signals;
use paravane_user_io::text;
use report::{Column, Report};
use rows::{BOOT, DELAY, Row};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use trace::Trace;

const LAYERS: [RomLayer; 3] = [RomLayer::None, RomLayer::Native, RomLayer::Kvm];
/// The name of the table's markers in the page.
const MARKER: &str = "exits";
const ROUNDS: u32 = 5;
const VCPUS: usize = 2;
const MEMORY: &str = "256M";

/// Counts, and prints or writes the table.
pub fn run(args: &BenchExits) -> anyhow::Result<Outcome> {
    let chosen = rows::select(&args.row)?;
    let page = Page::chosen(&args.output, MARKER)?;
    // A kernel may have to be built, which takes long.
    trace::folder()?;
    let kernel = match &args.kernel {
        _ if chosen.iter().all(|row| row.name == DELAY) => None,
        Some(file) => Some(file.clone()),
        None => Some(kernel::locate_or_build()?.vmlinux),
    };
    let signals = Signals::install().context("cannot handle signals")?;
    let bench = Bench {
        args,
        kernel,
        program: program::folder("exits", paravane_blobs::EXITS)?,
        terms: Terms {
            signals: &signals,
            timeout: Duration::from_secs(args.timeout),
        },
        processors: cpus::allowed(),
    };
    let result = bench.count(&chosen);
    if let Some(signal) = signals.pending() {
        return Ok(Outcome::Interrupted(signal));
    }
    let report = result?;
    match page {
        Some(page) => page.replace(&report.markdown())?,
        None if args.output.json => {
            writeln!(io::stdout(), "{}", serde_json::to_string_pretty(&report)?)?;
        }
        None => write!(io::stdout(), "{}", report.markdown())?,
    }
    Ok(Outcome::Passed)
}

/// What all machines share.
struct Bench<'a> {
    args: &'a BenchExits,
    /// `None` if no row needs it.
    kernel: Option<PathBuf>,
    /// A folder with the guest's program.
    program: tempfile::TempDir,
    terms: Terms<'a>,
    /// The host's CPUs that may be used.
    processors: Vec<usize>,
}

impl Bench<'_> {
    fn count(&self, chosen: &[&'static Row]) -> anyhow::Result<Report> {
        let mut report = Report::new(self.processors.len());
        let progress = Progress::new("starting a machine");
        for layer in LAYERS {
            if !self.args.layer.is_empty() && !self.args.layer.contains(&layer) {
                continue;
            }
            let name = layer.layer().name();
            progress.step(&format!("layer {name}: starting a machine"));
            let mut started = match &self.kernel {
                Some(kernel) => Some(Machine::start(self, kernel, layer)?),
                None => None,
            };
            for &row in chosen {
                progress.step(&format!("layer {name}: {}", row.name));
                report.add(match &mut started {
                    _ if row.name == DELAY => Column::new(row, name, 1, vec![delays(layer)?]),
                    Some((_, boot)) if row.name == BOOT => {
                        Column::new(row, name, 1, vec![boot.clone()])
                    }
                    Some((machine, _)) => machine.count(row, name)?,
                    None => bail!("no machine"),
                });
            }
        }
        Ok(report)
    }
}

/// A machine with a layer, whose exits are counted.
struct Machine<'a> {
    bench: &'a Bench<'a>,
    session: Session<'a>,
    trace: Trace,
    /// The threads of its vCPUs.
    threads: Vec<u32>,
}

impl<'a> Machine<'a> {
    /// Starts it. Returns the exits until its program has begun.
    fn start(
        bench: &'a Bench<'a>,
        kernel: &Path,
        layer: RomLayer,
    ) -> anyhow::Result<(Self, Counts)> {
        let trace = Trace::new()?;
        let program = std::env::current_exe().context("cannot find this program's file")?;
        let mut command = Command::new(program);
        command.args(["run", "--hypervisor", "kvm", "--net", "none"]);
        command.args(["--layer", layer.layer().name(), "--memory", MEMORY]);
        command.args(["--cpus", &VCPUS.to_string(), "--kernel"]);
        command.arg(kernel).arg("--volume");
        command.arg(format!("{}:/mnt:ro", bench.program.path().display()));
        command.args(["--", "/mnt/exits", &trace.number().to_string()]);
        let name = format!("the machine with the layer {}", layer.layer().name());
        let session = Session::start(&name, command, End::Machine, bench.terms)?;
        let threads = vcpu_threads(session.id())?;
        let boot = trace.take(is_one_of(&threads), true)?;
        let machine = Machine {
            bench,
            session,
            trace,
            threads,
        };
        Ok((machine, boot))
    }

    fn count(&mut self, row: &'static Row, layer: &'static str) -> anyhow::Result<Column> {
        let args = self.bench.args;
        let (rounds, operations) = if args.quick {
            (1, row.quick)
        } else {
            (ROUNDS, row.operations)
        };
        let rounds = args.rounds.unwrap_or(rounds);
        self.place(row.shared)?;
        let line = format!("{} {operations}", row.name);
        if row.warm {
            self.session.run(&format!("warm {line}"))?;
        }
        let counts = (0..rounds)
            .map(|_| {
                self.session.run(&line)?;
                self.trace.take(is_one_of(&self.threads), true)
            })
            .collect::<anyhow::Result<_>>()?;
        Ok(Column::new(row, layer, operations, counts))
    }

    /// Gives each vCPU a processor of its own, or all of them the same.
    fn place(&self, shared: bool) -> anyhow::Result<()> {
        let processors = &self.bench.processors;
        for (number, &thread) in self.threads.iter().enumerate() {
            let number = if shared { 0 } else { number % processors.len() };
            let mut set = CpuSet::new();
            set.set(*processors.get(number).context("no CPU may be used")?);
            let thread = i32::try_from(thread)
                .ok()
                .and_then(rustix::process::Pid::from_raw);
            sched_setaffinity(thread, &set).context("cannot place a vCPU")?;
        }
        Ok(())
    }
}

/// The exits of a test with I/O delays, which Linux does not make on such a machine. Its threads
/// are those that did not exist before: the machine ends too early to be asked for them.
fn delays(layer: RomLayer) -> anyhow::Result<Counts> {
    let trace = Trace::new()?;
    let others = all_threads()?;
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let mut command = Command::new(program);
    command.args(["conformance", "--hypervisor", "kvm", "--tap", "--layer"]);
    command.args([layer.layer().name(), "--filter", "cpu.io_delay.returns"]);
    let output = command.stdin(Stdio::null()).output();
    let output = output.context("cannot start the conformance suite")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        bail!("the conformance suite fails: {}", text::one_line(&said));
    }
    trace.take(|id| !others.contains(&id), false)
}

fn all_threads() -> anyhow::Result<BTreeSet<u64>> {
    let mut all = BTreeSet::new();
    for process in fs::read_dir("/proc").context("/proc")? {
        let path = process?.path();
        if number(&path).is_none() {
            continue;
        }
        // It may have ended by now.
        if let Ok(threads) = fs::read_dir(path.join("task")) {
            let threads = threads.filter_map(|thread| number(&thread.ok()?.path()));
            all.extend(threads.map(u64::from));
        }
    }
    Ok(all)
}

/// The threads of a monitor's vCPUs, in their order.
fn vcpu_threads(monitor: u32) -> anyhow::Result<Vec<u32>> {
    let folder = PathBuf::from(format!("/proc/{monitor}/task"));
    let mut threads = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        // A thread may have ended by now.
        let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
        if let (Some(number), Some(thread)) = (vcpu(&name), number(&path)) {
            threads.push((number, thread));
        }
    }
    if threads.len() != VCPUS {
        bail!("the machine has {} threads of vCPUs", threads.len());
    }
    threads.sort_unstable();
    Ok(threads.into_iter().map(|(_, thread)| thread).collect())
}

fn is_one_of(threads: &[u32]) -> impl Fn(u64) -> bool {
    |id| threads.iter().any(|&thread| u64::from(thread) == id)
}

fn vcpu(name: &str) -> Option<u32> {
    name.trim().strip_prefix("vcpu-")?.parse().ok()
}

fn number(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.parse().ok()
}
