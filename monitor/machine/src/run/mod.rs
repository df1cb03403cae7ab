// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The run of one machine, from its files to its end. [`drive`] has the event loop, [`life`] the
//! states, [`restarter`] the lives of a machine that may start again.

mod background;
mod bus;
mod card;
mod choice;
mod crash;
mod descriptors;
mod drive;
mod finish;
mod kernel_log;
mod launch;
mod life;
mod network;
mod relay;
mod requests;
mod resource_words;
mod resources;
mod restarter;
mod superblock;

pub use background::{Background, RUNNING};
pub use card::{attributes as card_attributes, check as check_card};
pub use choice::Choice;
pub use finish::outcome;
pub use network::net;
pub use resource_words::{check_volumes, disk, root, volume};

use crate::control::Server;
use crate::restart::Restart;
use crate::spec::Spec;
use crate::store::{self, Ended};
use anyhow::Context;
use drive::{Drive, RunOptions};
use finish::Reboots;
use launch::Machine;
use life::SIGTERM;
use network::NetworkReport;
use paravane_agent_protocol::Exec;
use paravane_gdb::Address;
use paravane_hypervisor::KernelFile;
use paravane_user_io::outcome::Outcome;
use paravane_user_io::signals::{self, Signals};
use paravane_user_io::stderr::say;
use restarter::{Life, Role};
use std::time::{Duration, Instant};

/// The exit code of a machine that could not be started, or whose monitor has failed, as `paravane`
/// returns it.
const NOT_STARTED: u8 = 2;

/// How a machine is run.
#[derive(Debug)]
pub struct Run<'a> {
    /// The machine's properties.
    pub spec: &'a Spec,
    /// The command. Without one the machine runs until it is ended.
    pub exec: Option<Exec>,
    /// Print the kernel's log.
    pub verbose: bool,
    /// The machine's entry in the store, if it has a name.
    pub named: Option<&'a store::Machine>,
    /// Where a debugger connects.
    pub gdb: Option<&'a Address>,
    /// Set for a machine in the background.
    pub background: Option<Background>,
    /// Reports a result to the user. Returns the exit code.
    pub told: fn(anyhow::Result<Outcome>) -> u8,
}

/// Runs a machine, and starts it again as its policy says. The process must have one thread.
///
/// # Errors
/// The machine cannot be started, or this program's standard streams fail.
pub fn run(mut run: Run<'_>) -> anyhow::Result<Outcome> {
    let policy = policy(&run);
    if policy == Restart::No {
        return run.live(None);
    }
    if run.spec.kernel.is_none() {
        // This can take a quarter of an hour, and the machine is not "running" before.
        paravane_kernel::locate_or_build()?;
    }
    if let Some(number) = signals::recorded() {
        return Ok(Outcome::Interrupted(number));
    }
    let timeout = run.spec.timeout.map(Duration::from_secs);
    match restarter::run(policy, run.named, &mut run.background, timeout)? {
        Role::Restarter(outcome) => Ok(outcome),
        Role::Monitor(life) => {
            let told = run.told;
            // Only the restarter goes on with the program after this.
            let code = told(run.live(Some(life)));
            std::process::exit(i32::from(code))
        }
    }
}

/// The policy of `--restart`, without [`Restart::Auto`]. A debugged machine ends with the kernel
/// that the debugger knows.
fn policy(run: &Run<'_>) -> Restart {
    match run.spec.restart {
        Restart::Auto if run.gdb.is_none() && launch::init_option(run.spec).is_some() => {
            Restart::OnReboot
        }
        Restart::Auto => Restart::No,
        other => other,
    }
}

impl Run<'_> {
    /// One life of the machine. `life`: set if a restarter may start it again.
    fn live(self, life: Option<Life>) -> anyhow::Result<Outcome> {
        let begun = Instant::now();
        let (spec, verbose) = (self.spec, self.verbose);
        if !spec.volumes.is_empty() || spec.rootfs.is_some() {
            descriptors::make_room();
        }
        let kernel = spec
            .kernel
            .as_deref()
            .map(|path| KernelFile::load(Some(path)));
        let kernel = kernel.transpose()?;
        let choice = choice::choose(spec, kernel.as_ref())?;
        if verbose {
            say(&format!(
                "paravane: hypervisor {}: {}\n",
                choice.name, choice.why
            ));
        }
        let patient = self.gdb.is_some() || choice.slow;
        // This takes a quarter of an hour if the kernel has to be built. The machine is not
        // "running" before that, so that `stop`, `exec` and `stat` answer at once.
        let machine = Machine::prepare(spec, kernel, choice, verbose)?;
        let timeout = || {
            let seconds = spec.timeout.map(Duration::from_secs);
            seconds.map(|time| Instant::now() + time)
        };
        let (mut hold, control, report, timeout) = match (life, self.named) {
            (Some(life), _) => (None, life.control, Some(life.report), life.timeout),
            (None, Some(machine)) => {
                let hold = Some(machine.hold()?);
                (hold, Some(Server::start(machine)?), None, timeout())
            }
            (None, None) => (None, None, None, timeout()),
        };
        tracing::info!(ms = ms(begun), "all files are read");
        descriptors::raise();
        let signals = Signals::install().context("cannot handle signals")?;
        let network = NetworkReport::new(verbose, self.named)?;
        let options = RunOptions {
            exec: self.exec,
            system: launch::init_option(spec).is_some(),
            timeout,
            patient,
            stop: spec.stop_signal.unwrap_or(SIGTERM),
            verbose,
            background: self.background,
            reboots: Reboots {
                start_again: report.is_some(),
                on_panic: spec.append.iter().any(|words| panic_option(words)),
                asked: None,
            },
        };
        let ended = machine
            .begin(network, self.named, self.gdb)
            .and_then(|starting| Drive::new(starting, options, &signals, control, begun))
            .and_then(Drive::run);
        tracing::info!(ms = ms(begun), "the machine is gone");
        if let (Some(report), Ok((_, told))) = (&report, &ended) {
            report.tell(*told);
        }
        if let Some(hold) = &mut hold {
            let code = ended
                .as_ref()
                .map_or(NOT_STARTED, |(outcome, _)| outcome.code());
            hold.set_ended(&Ended { code })?;
        }
        ended.map(|(outcome, _)| outcome)
    }
}

/// Whether words of the kernel's command line say what follows a panic.
fn panic_option(words: &str) -> bool {
    words
        .split_whitespace()
        .any(|word| word.starts_with("panic="))
}

/// Milliseconds since that time, for the log.
fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
