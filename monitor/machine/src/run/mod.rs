// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One machine from its files to its end.

mod background;
mod crash;
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
pub use finish::outcome;
pub use network::net;
pub use resources::{disk, volume};

use crate::control::Server;
use crate::spec::Spec;
use crate::store::{self, Ended};
use anyhow::Context;
use drive::{Drive, RunOptions};
use launch::Machine;
use network::NetworkReport;
use paravane_agent_protocol::Exec;
use paravane_gdb::Address;
use paravane_user_io::outcome::Outcome;
use paravane_user_io::signals::Signals;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::time::{Duration, Instant};

/// From the files to the end.
pub fn run(
    spec: &Spec,
    exec: Option<Exec>,
    verbose: bool,
    named: Option<&store::Machine>,
    gdb: Option<&Address>,
    background: Option<Background>,
) -> anyhow::Result<Outcome> {
    let begun = Instant::now();
    // Takes a quarter of an hour where the kernel is to be built: others who ask this machine for something would
    // wait for an answer. So it does not run before that.
    let machine = Machine::prepare(spec, verbose)?;
    let (_hold, control) = match named {
        Some(machine) => (Some(machine.hold()?), Some(Server::start(machine)?)),
        None => (None, None),
    };
    tracing::info!(ms = ms(begun), "all files are read");
    raise_descriptors();
    let signals = Signals::install().context("cannot take note of signals")?;
    let report = NetworkReport::new(verbose, named)?;
    let timeout = spec
        .timeout
        .map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let options = RunOptions {
        exec,
        system: launch::init_option(spec).is_some(),
        timeout,
        patient: gdb.is_some(),
        verbose,
        background,
    };
    let starting = machine.begin(report, named, gdb)?;
    let outcome = Drive::new(starting, options, &signals, control, begun)?.run();
    tracing::info!(ms = ms(begun), "the machine is gone");
    if let (Some(machine), Ok(outcome)) = (named, &outcome) {
        machine.set_ended(&Ended {
            code: outcome.code(),
        })?;
    }
    outcome
}

/// A shared folder takes a descriptor for each file that the guest knows: as many as this user may have.
fn raise_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Fails where it is kept from us: then there are fewer.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Milliseconds since then, for the log.
fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
