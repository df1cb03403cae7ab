// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane run`: a command, or a shell, in a Linux virtual machine of its own.
//!
//! Exit codes: the command's own; 128 + n if signal n ended it; 127 no such command; 126 it cannot
//! be executed; 125 it cannot be started for another reason; 124 `--timeout` has passed; 1 the
//! machine failed; 2 it could not be started.

mod inherited;
mod options;

use crate::arguments;
use paravane_gdb::Address;
use paravane_machine as machine;
use paravane_machine::Background;
use paravane_machine::store::Store;
use paravane_user_io::outcome::Outcome;

pub use options::exec;
use options::spec;

/// The machine that the options describe, which will run in the background.
///
/// # Errors
/// The options are wrong, or a file among them is an open file of this program only.
pub fn background(args: &arguments::MachineOptions) -> anyhow::Result<machine::spec::Spec> {
    let spec = spec(args)?;
    inherited::refuse(&spec)?;
    Ok(spec)
}

/// What a test does to the clocks of the host, as the machine sees them.
#[cfg(feature = "test-hooks")]
fn bend_clocks(args: &arguments::Run) {
    use paravane_hypervisor::process;
    let time = |seconds: u32| std::time::Duration::from_secs(seconds.into());
    if let Some(seconds) = args.step_wall_clock {
        process::step_wall_clocks(time(seconds), time(args.step_after));
    }
    if let Some(seconds) = args.suspend_clock {
        process::suspend_clocks(time(seconds), time(args.suspend_after));
    }
    if let Some(ppm) = args.slew_clock {
        process::slew_clocks(ppm, time(8), args.slew_from);
    }
}

/// Runs the command.
pub fn run(args: &arguments::Run) -> anyhow::Result<Outcome> {
    #[cfg(feature = "test-hooks")]
    if let Some(thread) = &args.plant_violation {
        paravane_confine::plant_violation(thread)?;
    }
    #[cfg(feature = "test-hooks")]
    if let Some(file) = &args.plant_layer {
        machine::plant_layer(paravane_user_io::files::read(file, "layer")?);
    }
    #[cfg(feature = "test-hooks")]
    bend_clocks(args);
    let spec = if args.detach {
        background(&args.machine)?
    } else {
        spec(&args.machine)?
    };
    let gdb = args
        .gdb
        .as_deref()
        .map(|word| Address::parse(word, args.gdb_remote))
        .transpose()?;
    if args.detach {
        let machine = Store::open()?.create(args.name.as_deref(), &spec)?;
        if let Err(error) = super::launch::launch(&machine) {
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
        machine::run(machine::Run {
            spec: &spec,
            exec: Some(exec),
            verbose: args.verbose,
            named: named.as_ref(),
            gdb: gdb.as_ref(),
            background: None,
            told: crate::report,
        })
    });
    if let Some(machine) = named {
        // The machine ran in the foreground: this command has reported its end.
        super::machines::remove_ended(&machine)?;
    }
    outcome
}

/// The monitor of a machine in the background. Reports to the starting program when it runs.
pub fn monitor(args: &arguments::Named) -> anyhow::Result<Outcome> {
    let machine = Store::open()?.find(&args.name)?;
    let spec = machine.spec()?;
    let background = Background::take(spec.interactive)?;
    // Without a command or input, the messages of the kernel are the only output.
    let exec =
        (!spec.command.is_empty() || spec.interactive).then(|| options::command(&spec, spec.tty));
    machine::run(machine::Run {
        spec: &spec,
        verbose: exec.is_none(),
        exec,
        named: Some(&machine),
        gdb: None,
        background: Some(background),
        told: crate::report,
    })
}
