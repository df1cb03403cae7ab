// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arguments of `conformance`, and types that it shares: hypervisors, isolation, layers.

use super::{Cli, mebibytes};
use clap::builder::PossibleValue;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, ValueEnum};
use paravane_hypervisor::Layer;
use paravane_hypervisor::process::LayerHeuristics;
use paravane_machine::heuristic::Heuristic;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct Conformance {
    /// The hypervisor that runs the guest
    #[arg(long, value_enum)]
    pub hypervisor: HypervisorKind,

    /// The layer that the guest must find [default with --rom: the name in the ROM]
    #[arg(long, value_enum)]
    pub layer: Option<Layer>,

    /// Virtual CPUs
    #[arg(
        long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=64)
    )]
    pub cpus: u32,

    /// How the machine is isolated inside
    #[arg(long, value_enum, default_value_t = Isolation::Vm, hide_default_value = true)]
    pub isolation: Isolation,

    /// Memory of the machine, in MiB or with a unit: 256M, 4G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = mebibytes)]
    pub memory: u32,

    /// Largest number of address-space processes with --hypervisor process [default: what this host
    /// allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1024))]
    pub spaces: Option<u32>,

    /// Allow debuggers to trace the processes of --hypervisor process
    #[arg(long)]
    pub debuggable: bool,

    /// Turn a heuristic of the layer off (--hypervisor process; may be repeated)
    #[arg(long, value_enum, value_name = "NAME")]
    pub without: Vec<Heuristic>,

    /// Start with a wrong clock and correct it in large steps (--hypervisor process)
    #[cfg(feature = "test-hooks")]
    #[arg(long)]
    pub disturb_clock: bool,

    /// Plant a mistake in the machine's buses
    #[cfg(feature = "test-hooks")]
    #[arg(long, value_name = "NAME")]
    pub bus_fault: Option<String>,

    /// Five seconds after the start, show the machine a wall clock that is ahead by SECONDS
    /// (--hypervisor process)
    #[cfg(feature = "test-hooks")]
    #[arg(long, value_name = "SECONDS")]
    pub step_wall_clock: Option<u32>,

    /// Make the host's clock too fast by PPM millionths for eight seconds, then too slow, and so on
    /// (--hypervisor process)
    #[cfg(feature = "test-hooks")]
    #[arg(long, value_name = "PPM")]
    pub slew_clock: Option<u32>,

    /// Hide these features of KVM from the machine: bits of eax of its CPUID leaf 0x40000001
    /// (--hypervisor kvm)
    #[cfg(feature = "test-hooks")]
    #[arg(long, value_name = "BITS", default_value_t = 0)]
    pub kvm_without: u32,

    /// Run only the tests that match PATTERN (`*` matches any text; without one, part of the name)
    #[arg(long, value_name = "PATTERN")]
    pub filter: Option<String>,

    /// A ROM (a layer's file) in place of the built-in one
    #[arg(long, value_name = "FILE")]
    pub rom: Option<PathBuf>,

    /// Pass --rom to the guest unchecked, to see how the guest handles a bad one
    #[arg(long, requires = "rom")]
    pub unchecked_rom: bool,

    /// A conformance kernel in place of the built-in one
    #[arg(long, value_name = "FILE")]
    pub guest: Option<PathBuf>,

    /// Print the guest's TAP instead of a summary
    #[arg(long)]
    pub tap: bool,

    /// Print every test and all other output of the guest
    #[arg(long, short, conflicts_with = "tap")]
    pub verbose: bool,

    /// Give up after S seconds
    #[arg(
        long, value_name = "S", default_value_t = 120,
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    pub timeout: u64,

    /// Append WORD to the guest's command line, such as `times` (may be repeated)
    #[arg(long, value_name = "WORD")]
    pub append: Vec<String>,

    /// Print the names of the tests without running them
    #[arg(long, conflicts_with_all = ["tap", "verbose"])]
    pub list: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HypervisorKind {
    /// QEMU's software emulation: bare metal, as far as the guest can tell
    Qemu,
    /// The host kernel's KVM: hardware virtualization, where the host has it
    Kvm,
    /// Ordinary processes of this host: no hardware virtualization, no privilege
    Process,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Isolation {
    /// One trust domain for the whole machine: guest programs are not isolated from the guest
    /// kernel
    Vm,
}

impl Conformance {
    /// Checks that concern several arguments.
    pub(super) fn check(&self) -> Result<(), clap::Error> {
        let error = |kind, message: &str| Err(Cli::command().error(kind, message));
        match self.hypervisor {
            HypervisorKind::Qemu | HypervisorKind::Kvm
                if self.layer.is_none() && self.rom.is_none() && !self.list =>
            {
                error(
                    ErrorKind::MissingRequiredArgument,
                    "--hypervisor qemu or kvm: one of --layer, --rom is required",
                )
            }
            HypervisorKind::Qemu | HypervisorKind::Kvm
                if self.spaces.is_some() || self.debuggable || !self.without.is_empty() =>
            {
                error(
                    ErrorKind::ArgumentConflict,
                    "--spaces, --debuggable and --without are for --hypervisor process",
                )
            }
            _ => match self.without.iter().find(|one| one.of_layer().is_none()) {
                Some(other) => {
                    let name = other.to_possible_value();
                    let name = name.as_ref().map_or("", PossibleValue::get_name);
                    let message = format!("--without {name}: the layer has no such heuristic");
                    error(ErrorKind::ValueValidation, &message)
                }
                None => Ok(()),
            },
        }
    }

    /// The heuristics of the layer.
    pub fn heuristics(&self) -> LayerHeuristics {
        Heuristic::layer(&self.without)
    }
}
