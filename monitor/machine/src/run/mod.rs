// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The run of one machine, from its files to its end. [`drive`] has the event loop, [`life`] the
//! states.

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
mod requests;
mod resources;
mod superblock;

pub use background::{Background, RUNNING};
pub use card::{attributes as card_attributes, check as check_card};
pub use choice::Choice;
pub use finish::outcome;
pub use network::net;
pub use resources::{check_volumes, disk, root, volume};

use crate::control::Server;
use crate::spec::Spec;
use crate::store::{self, Ended};
use anyhow::Context;
use drive::{Drive, RunOptions};
use launch::Machine;
use network::NetworkReport;
use paravane_agent_protocol::Exec;
use paravane_gdb::Address;
use paravane_hypervisor::KernelFile;
use paravane_user_io::outcome::Outcome;
use paravane_user_io::signals::Signals;
use paravane_user_io::stderr::say;
use std::time::{Duration, Instant};

/// Runs a machine. `named`: its entry in the store, if it has a name.
///
/// # Errors
/// The machine cannot be started, or this program's standard streams fail.
pub fn run(
    spec: &Spec,
    exec: Option<Exec>,
    verbose: bool,
    named: Option<&store::Machine>,
    gdb: Option<&Address>,
    background: Option<Background>,
) -> anyhow::Result<Outcome> {
    let begun = Instant::now();
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
    let patient = gdb.is_some() || choice.slow;
    // This takes a quarter of an hour if the kernel has to be built. The machine is not "running"
    // before that, so that `stop`, `exec` and `stat` answer at once.
    let machine = Machine::prepare(spec, kernel, choice, verbose)?;
    let (mut hold, control) = match named {
        Some(machine) => (Some(machine.hold()?), Some(Server::start(machine)?)),
        None => (None, None),
    };
    tracing::info!(ms = ms(begun), "all files are read");
    descriptors::raise();
    let signals = Signals::install().context("cannot handle signals")?;
    let report = NetworkReport::new(verbose, named)?;
    let timeout = spec
        .timeout
        .map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let options = RunOptions {
        exec,
        system: launch::init_option(spec).is_some(),
        timeout,
        patient,
        verbose,
        background,
    };
    let starting = machine.begin(report, named, gdb)?;
    let outcome = Drive::new(starting, options, &signals, control, begun)?.run();
    tracing::info!(ms = ms(begun), "the machine is gone");
    if let (Some(hold), Ok(outcome)) = (&mut hold, &outcome) {
        hold.set_ended(&Ended {
            code: outcome.code(),
        })?;
    }
    outcome
}

/// Milliseconds since that time, for the log.
fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
