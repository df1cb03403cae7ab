// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands, one module each.

mod attach;
mod bench;
mod boot;
mod calls;
mod card;
mod conformance;
mod conformance_report;
mod copy;
mod exec;
mod far;
mod generate;
mod image;
mod kernel;
#[expect(unsafe_code, reason = "works between fork and exec")]
mod launch;
mod log;
mod machines;
mod profile;
mod rom;
mod run;
mod stat;
mod vbus;

use crate::arguments::{Command, Conformance, HypervisorKind};
use anyhow::Context;
use paravane_hypervisor::Hypervisor;
use paravane_hypervisor::kvm::KvmHost;
use paravane_hypervisor::process::Process;
use paravane_hypervisor::qemu::Qemu;
use paravane_user_io::outcome::Outcome;
use std::io::{self, Write};

/// The context of a failed write to stdout, for example to a full disk.
const OUTPUT: &str = "cannot write to standard output";

/// Runs a command. An error means that it could not be run.
pub fn run(command: &Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Conformance(args) => conformance::run(args),
        Command::Rom(crate::arguments::Rom::Inspect { file }) => rom::inspect(file),
        Command::Bench(crate::arguments::Bench::Native(args)) => bench::native(args),
        Command::Bench(crate::arguments::Bench::Vmi(args)) => bench::vmi::run(args),
        Command::Bench(crate::arguments::Bench::VmiHost(args)) => bench::vmi::host(args),
        Command::Bench(crate::arguments::Bench::Micro(args)) => bench::micro::run(args),
        Command::Bench(crate::arguments::Bench::Kernel(args)) => bench::kernel::run(args),
        Command::Bench(crate::arguments::Bench::Net(args)) => bench::net::run(args),
        Command::Bench(crate::arguments::Bench::Block(args)) => bench::block::run(args),
        Command::Bench(crate::arguments::Bench::Vbus(args)) => bench::vbus::run(args),
        Command::Bench(crate::arguments::Bench::Overcommit(args)) => bench::overcommit::run(args),
        Command::Bench(crate::arguments::Bench::VbusPeer(args)) => bench::vbus::peer(args),
        Command::Bench(crate::arguments::Bench::Exits(args)) => bench::exits::run(args),
        Command::Bench(crate::arguments::Bench::Apps(args)) => bench::apps::run(args),
        Command::Image(crate::arguments::Image::Build(args)) => image::build(args),
        Command::Image(crate::arguments::Image::Pull { name }) => image::pull(name),
        Command::Run(args) => run::run(args),
        Command::Create(args) => machines::create(args),
        Command::Start(args) => machines::start(args),
        Command::Ps(args) => machines::ps(args),
        Command::Exec(args) => exec::run(args),
        Command::Logs(args) => machines::logs(args),
        Command::Stop(args) => machines::stop(args),
        Command::Restart(args) => machines::restart(args),
        Command::Kill(args) => machines::kill(args),
        Command::Wait(args) => machines::wait(args),
        Command::Rm(args) => machines::rm(args),
        Command::Cp(args) => copy::run(args),
        Command::Attach(args) => attach::run(args),
        Command::Inspect(args) => machines::inspect(args),
        Command::Stat(args) => stat::run(args),
        Command::Calls(args) => calls::run(args),
        Command::Card(args) => card::run(args),
        Command::Profile(args) => profile::run(args),
        Command::Monitor(args) => run::monitor(args),
        Command::Boot(args) => boot::run(args),
        Command::Kernel(crate::arguments::Kernel::Build(args)) => kernel::build(args),
        Command::Kernel(crate::arguments::Kernel::List(args)) => kernel::list(args),
        Command::Kernel(crate::arguments::Kernel::Verify(args)) => kernel::verify(args),
        Command::Kernel(crate::arguments::Kernel::Lines(args)) => kernel::lines(args),
        Command::Vbus(args) => vbus::run(args),
        Command::Doctor(args) => crate::doctor::run(args),
        Command::Completions { shell } => generate::completions(*shell),
        Command::Man { folder } => generate::man(folder),
        Command::Schema => generate::schema(),
    }
}

/// Prints a line and flushes it, because a script may wait for it.
fn say(line: impl std::fmt::Display) -> anyhow::Result<()> {
    writeln!(io::stdout(), "{line}").context(OUTPUT)
}

fn hypervisor(args: &Conformance) -> anyhow::Result<Box<dyn Hypervisor>> {
    #[cfg(feature = "test-hooks")]
    if let Some(name) = &args.bus_fault {
        anyhow::ensure!(paravane_bridge::plant(name), "no bus fault {name}");
    }
    #[cfg(feature = "test-hooks")]
    if args.disturb_clock {
        paravane_hypervisor::process::disturb_clocks();
    }
    #[cfg(feature = "test-hooks")]
    if let Some(seconds) = args.step_wall_clock {
        paravane_hypervisor::process::step_wall_clocks(
            std::time::Duration::from_secs(seconds.into()),
            std::time::Duration::from_secs(5),
        );
    }
    #[cfg(feature = "test-hooks")]
    if let Some(ppm) = args.slew_clock {
        paravane_hypervisor::process::slew_clocks(ppm, std::time::Duration::from_secs(8), 0);
    }
    #[cfg(feature = "test-hooks")]
    paravane_hypervisor::kvm::hide_features(args.kvm_without);
    match args.hypervisor {
        HypervisorKind::Qemu => Ok(Box::new(Qemu::find()?)),
        HypervisorKind::Kvm => Ok(Box::new(KvmHost::find()?)),
        HypervisorKind::Process => Ok(Box::new(Process {
            spaces: args.spaces,
            debuggable: args.debuggable,
            heuristics: args.heuristics(),
        })),
    }
}
