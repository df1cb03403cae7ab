// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane run`: a command, or a shell, in a Linux virtual machine of its own.
//!
//! Exit codes: the command's own; 128 + n if signal n ended it; 127 there is no such command, 126 it cannot be executed,
//! 125 it cannot be started for another reason; 124 `--timeout` has passed; 1 the machine failed; 2 it could not be started.

mod attach;
mod background;
mod crash;
mod drive;
mod kernel_log;
mod machine;
mod network;
mod options;
mod superblock;

use super::Outcome;
use crate::cli;
use crate::machines::control::Server;
use crate::machines::{self, Ended, Spec, Store};
use anyhow::Context;
use background::Background;
use drive::{Drive, Wishes};
use machine::Machine;
use network::Told;
use paravane_agent_protocol::Exec;
use paravane_confine as confine;
use paravane_gdb::Address;
use paravane_user_io::signals::Signals;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::time::Instant;

pub use background::RUNNING;
pub use drive::outcome;
pub use options::{exec, spec};

/// Runs the command.
pub fn run(args: &cli::Run) -> anyhow::Result<Outcome> {
    if let Some(thread) = &args.plant_violation {
        confine::plant_violation(thread)?;
    }
    let spec = spec(&args.machine)?;
    let gdb = args
        .gdb
        .as_deref()
        .map(|word| Address::parse(word, args.gdb_remote))
        .transpose()?;
    if args.detach {
        let machine = Store::open()?.create(args.name.as_deref(), &spec)?;
        if let Err(error) = super::machines::launch(&machine) {
            machine.remove()?;
            return Err(error);
        }
        super::say(&machine.name)?;
        return Ok(Outcome::Passed);
    }
    let named = match &args.name {
        Some(name) => Some(Store::open()?.create(Some(name), &spec)?),
        None => None,
    };
    let outcome = options::at_terminal(args).and_then(|terminal| {
        let exec = options::command(&spec, terminal);
        work(
            &spec,
            Some(exec),
            args.verbose,
            named.as_ref(),
            gdb.as_ref(),
            None,
        )
    });
    if let Some(machine) = named {
        // Nobody asked for it to stay: its end was seen here.
        machine.remove()?;
    }
    outcome
}

/// The monitor of a machine in the background. Says on stdout when it runs, and goes on.
pub fn monitor(args: &cli::Named) -> anyhow::Result<Outcome> {
    let machine = Store::open()?.find(&args.name)?;
    let spec = machine.spec()?;
    let background = Background::take(spec.interactive)?;
    // With nothing to run and nobody to type, what the machine says itself is what there is to see.
    let exec =
        (!spec.command.is_empty() || spec.interactive).then(|| options::command(&spec, spec.tty));
    let verbose = exec.is_none();
    work(&spec, exec, verbose, Some(&machine), None, Some(background))
}

/// From the files to the end.
fn work(
    spec: &Spec,
    exec: Option<Exec>,
    verbose: bool,
    named: Option<&machines::Machine>,
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
    let told = Told::new(verbose, named)?;
    let started = machine.start(told, named, gdb)?;
    tracing::info!(ms = ms(begun), "the kernel starts");
    let wishes = Wishes {
        exec,
        system: machine::init_option(spec).is_some(),
        timeout: spec.timeout,
        patient: gdb.is_some(),
        verbose,
        background,
    };
    let outcome = Drive::new(started, wishes, &signals, control, begun)?.run();
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
