// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line: commands, options and help texts.

mod bench;
mod bench_block;
mod bench_vbus;
mod config;
mod conformance;
mod errors;
mod machine;
mod profile;
mod tools;
mod vbus;

pub use bench::{
    Bench, BenchApps, BenchExits, BenchKernel, BenchMicro, BenchNative, BenchNet, BenchOutput,
    BenchOvercommit, BenchVmi, BenchVmiHost, Peer, Place,
};
pub use bench_block::BenchBlock;
pub use bench_vbus::{BenchVbus, BenchVbusPeer};
pub use conformance::{Conformance, HypervisorKind, Isolation};
pub use machine::{
    Attach, Calls, Card, CommandOptions, Cp, Create, Exec, Kill, Logs, MachineOptions, Named,
    Names, Ps, Rm, Run, Stat, Stop, signal,
};
pub use profile::Profile;
pub use tools::{
    Boot, Doctor, Image, ImageBuild, Kernel, KernelBuild, KernelLines, KernelList, KernelVerify,
    Rom,
};

pub use vbus::{Vbus, VbusAt, VbusDaemon, VbusLs, VbusShow};

pub use config::schema;
pub use errors::Early;

use anyhow::Context;
use clap::{Parser, Subcommand, ValueEnum};
use paravane_user_io::log;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use tracing_subscriber::EnvFilter;

/// Runs Linux virtual machines without hardware virtualization, /dev/kvm or root
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = false, infer_long_args = false)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,

    /// Log the monitor's actions on stderr, up to this level [default: RUST_LOG, or off]
    #[arg(long, global = true, value_enum, value_name = "LEVEL")]
    pub log: Option<Log>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command, or a shell, in a Linux virtual machine of its own
    Run(Run),
    /// Create a named machine for `start`
    Create(Create),
    /// Start machines in the background
    Start(Names),
    /// List machines
    Ps(Ps),
    /// Run a command in a running machine
    Exec(Exec),
    /// Print the output of a machine's command
    Logs(Logs),
    /// Join a machine's command: show its output from now on, send it input and signals, and exit
    /// with its exit code; Ctrl-] detaches
    Attach(Attach),
    /// Copy files into a running machine, or out of it
    Cp(Cp),
    /// Ask machines to end
    Stop(Stop),
    /// Ask machines to end, and start them again; start those that do not run
    Restart(Stop),
    /// End machines at once
    Kill(Kill),
    /// Wait until machines have ended, and print their exit codes
    Wait(Names),
    /// Remove machines that have ended
    Rm(Rm),
    /// Print everything that is known of machines, as JSON
    Inspect(Names),
    /// Print the figures of a running machine: exits, mappings, switches, host calls, steal time,
    /// device work
    #[command(alias = "stats")]
    Stat(Stat),
    /// Print how often the kernel of a machine of `run --count-calls` has called its layer, and how
    /// many cycles the calls took
    Calls(Calls),
    /// Print the attributes of a running machine's cards on a virtual bus, and set some
    Card(Card),
    /// Sample a running machine, and print where the time of its vCPUs goes: guest programs, guest
    /// kernel and layer by function, host kernel, waiting
    Profile(Profile),
    /// Run the monitor of a background machine
    #[command(hide = true)]
    Monitor(Named),
    /// Boot the conformance kernel and report which calls of a layer follow the specification
    Conformance(Conformance),
    /// Inspect ROMs (the files of layers)
    #[command(subcommand)]
    Rom(Rom),
    /// Make and pull root file systems
    #[command(subcommand)]
    Image(Image),
    /// Run benchmarks, and write the tables of docs/benchmarks.md
    #[command(subcommand)]
    Bench(Bench),
    /// Build and check Linux for the guest
    #[command(subcommand)]
    Kernel(Kernel),
    /// Run and administer the virtual bus: software devices for processes, over shared memory
    #[command(subcommand)]
    Vbus(Vbus),
    /// Boot a kernel on the process hypervisor with its console on stdout, for development
    #[command(hide = true)]
    Boot(Boot),
    /// Report what this host offers for running guests, and the consequences
    Doctor(Doctor),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write manual pages, one for each command
    Man {
        /// Folder for the pages; it is created if needed
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Print the JSON schema of files for `run --config`
    Schema,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Log {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Parses the command line.
pub fn parse(args: impl Iterator<Item = OsString>) -> Result<Cli, Early> {
    let words: Vec<OsString> = args.collect();
    let command = errors::command(&words);
    let early = |error| Early { error, command };
    let cli = match config::parse(words) {
        Ok(cli) => cli,
        Err(error) => return Err(early(error)),
    };
    if let Command::Conformance(args) = &cli.command {
        args.check().map_err(early)?;
    }
    Ok(cli)
}

/// Parses a size of memory. Returns MiB.
fn mebibytes(text: &str) -> Result<u32, String> {
    let units = [(['M', 'm'], 0), (['G', 'g'], 10), (['T', 't'], 20)];
    let with_unit = units.iter().find_map(|&(letters, shift)| {
        let digits = text.strip_suffix(letters)?;
        Some((digits, shift))
    });
    let (digits, shift) = with_unit.unwrap_or((text, 0));
    let number: u32 = digits
        .parse()
        .map_err(|_| "a number is expected, optionally followed by M, G or T".to_string())?;
    let size = number
        .checked_mul(1 << shift)
        .filter(|&size| (16..=1 << 22).contains(&size));
    let size = size.ok_or_else(|| "16M to 4096G are possible".to_string())?;
    if size % 2 == 0 {
        Ok(size)
    } else {
        Err("it must be a multiple of 2M".to_string())
    }
}

/// Starts the monitor's own log. Without a level RUST_LOG decides, which may name modules:
/// `paravane_hypervisor::process=debug,paravane_devices=trace`.
pub fn start_log(level: Option<Log>) -> anyhow::Result<()> {
    let filter = match level {
        Some(Log::Off) => return Ok(()),
        Some(Log::Error) => "error".to_string(),
        Some(Log::Warn) => "warn".to_string(),
        Some(Log::Info) => "info".to_string(),
        Some(Log::Debug) => "debug".to_string(),
        Some(Log::Trace) => "trace".to_string(),
        None => match std::env::var("RUST_LOG") {
            Ok(filter) if !filter.is_empty() => filter,
            _ => return Ok(()),
        },
    };
    let filter = EnvFilter::try_new(&filter).with_context(|| format!("RUST_LOG={filter}"))?;
    log::start().context("cannot start the log")?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| log::Log)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .init();
    Ok(())
}
