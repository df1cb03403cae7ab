// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arguments of `bench`.

use super::bench_block::BenchBlock;
use super::bench_vbus::{BenchVbus, BenchVbusPeer};
use clap::{Args, Subcommand, ValueEnum};
use paravane_machine::spec::RomLayer;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Count instructions per operation on bare metal, without a layer and with each native one
    Native(BenchNative),
    /// Measure the process hypervisor's mechanisms, each beside its counterpart on the host
    Vmi(BenchVmi),
    /// Measure operations of Linux in a virtual machine, each beside the host
    Micro(BenchMicro),
    /// Measure programs of Debian in a virtual machine, each beside the host with the same root
    Apps(BenchApps),
    /// Count what the port costs Linux on bare metal, in instructions, beside Linux without it
    Kernel(BenchKernel),
    /// Measure networks of machines beside the host: virtio-net and cards of the virtual bus
    Net(BenchNet),
    /// Measure disks of machines beside a file of the host, with fio: virtio-blk and the virtual
    /// bus
    Block(BenchBlock),
    /// Measure packets between processes over a virtual bus, beside a socket pair and pipes
    Vbus(BenchVbus),
    /// Measure a machine beside machines that burn processor time, with paravirtual spinlocks and
    /// without; and machines that idle
    Overcommit(BenchOvercommit),
    /// Count the exits of machines on KVM, without a layer, with the native one and with KVM's
    Exits(BenchExits),
    /// The other process of a measurement of `vbus`
    #[command(hide = true)]
    VbusPeer(BenchVbusPeer),
    /// Measure the host's side of a row of `vmi`, in a process of its own
    #[command(hide = true)]
    VmiHost(BenchVmiHost),
}

/// Where the table goes.
#[derive(Debug, Args)]
pub struct BenchOutput {
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,

    /// Put the table into FILE, between its markers for this table
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub write: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct BenchNative {
    #[command(flatten)]
    pub output: BenchOutput,

    /// A conformance kernel in place of the built-in one
    #[arg(long, value_name = "FILE")]
    pub guest: Option<PathBuf>,

    /// Give up on one run after S seconds
    #[arg(
        long, value_name = "S", default_value_t = 300,
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    pub timeout: u64,
}

#[derive(Debug, Args)]
pub struct BenchNet {
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,

    /// Draw the ratios of the round trips into FILE, as SVG
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,

    /// Few and short rounds, to see that it works
    #[arg(long)]
    pub quick: bool,

    /// How often each path is measured
    #[arg(
        long, value_name = "N", default_value_t = 9,
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    pub rounds: u32,

    /// Measure only the host and this path (may be repeated)
    #[arg(long, value_name = "NAME")]
    pub path: Vec<String>,

    /// Largest packets of all interfaces, in bytes
    #[arg(
        long, value_name = "N,..", value_delimiter = ',', default_values_t = [1500, 9000],
        value_parser = clap::value_parser!(u32).range(576..=9000)
    )]
    pub mtu: Vec<u32>,

    /// Shape the server's link to N Mbit/s in each direction
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rate: Option<u32>,

    /// Virtual CPUs of each machine
    #[arg(
        long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=64)
    )]
    pub cpus: u32,

    /// Kernel: ELF file with its relocations [default: what `paravane kernel build` makes]
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,

    /// Measure virtio-net of another build of this program, too: the path `virtio-net-older`
    #[arg(long, value_name = "FILE")]
    pub older: Option<PathBuf>,

    /// The kernel of that build: ELF file with its relocations [default: the same kernel]
    #[arg(long, value_name = "FILE", requires = "older")]
    pub older_kernel: Option<PathBuf>,

    /// The part of the command in its own namespaces
    #[arg(long, hide = true)]
    pub inside: bool,
}

#[derive(Debug, Args)]
pub struct BenchOvercommit {
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,

    /// Two rounds, less work and four idle machines, to see that it works
    #[arg(long)]
    pub quick: bool,

    /// Draw the table into FILE, as SVG
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,

    /// Measure with plain and with paravirtual locks in turns, N times each; with --no-loss the
    /// number of machines
    #[arg(
        long, value_name = "N", default_value_t = 7,
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    pub rounds: u32,

    /// vCPUs of the measured machine, and of each that is busy [default: 8, with --no-loss 2]
    #[arg(
        long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=64)
    )]
    pub vcpus: Option<u32>,

    /// Measure only at this load, 1x, 2x or 3x (may be repeated)
    #[arg(long, value_name = "LOAD", conflicts_with = "no_loss")]
    pub case: Vec<String>,

    /// Measure only this workload, kernbench, hackbench-40, hackbench-200, pgbench or ticket (may
    /// be repeated); with --no-loss not ticket, but also pgbench-1, -2, -4, -8, -16 and -32
    #[arg(long, value_name = "NAME")]
    pub workload: Vec<String>,

    /// Measure what paravirtual locks cost where they gain nothing: a machine of two vCPUs alone,
    /// a new one for each round
    #[arg(long)]
    pub no_loss: bool,

    /// With --no-loss: count the rounds of an earlier run, too: what it printed with --json
    #[arg(long, value_name = "FILE", requires = "no_loss")]
    pub add: Option<PathBuf>,

    /// Measure only clocks, accounted time and machines that idle
    #[arg(long, conflicts_with_all = ["no_loss", "workload"])]
    pub time: bool,

    /// Machines that idle; 0 leaves that out [default: 50, and 0 if a part is chosen]
    #[arg(
        long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=500)
    )]
    pub idle: Option<u32>,

    /// The root of the measured machine: a folder, with bash, and gcc and PostgreSQL for their
    /// workloads
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,

    /// Kernel: ELF file with its relocations [default: what `paravane kernel build` makes]
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,

    /// Give up on one script after S seconds
    #[arg(
        long, value_name = "S", default_value_t = 1800,
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    pub timeout: u64,
}

#[derive(Debug, Args)]
pub struct BenchExits {
    #[command(flatten)]
    pub output: BenchOutput,

    /// Fewer operations, to see that it works
    #[arg(long)]
    pub quick: bool,

    /// How often each row is counted; the table has the median [default: 5, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,

    /// Count only this row (may be repeated)
    #[arg(long, value_name = "NAME")]
    pub row: Vec<String>,

    /// Count only with this layer (may be repeated)
    #[arg(long, value_enum)]
    pub layer: Vec<RomLayer>,

    /// Kernel: ELF file with its relocations [default: what `paravane kernel build` makes]
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,

    /// Give up on one row after S seconds
    #[arg(
        long, value_name = "S", default_value_t = 300,
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    pub timeout: u64,
}

#[derive(Debug, Args)]
pub struct BenchKernel {
    #[command(flatten)]
    pub output: BenchOutput,

    /// Folder with the kernel's bzImage [default: what `paravane kernel build` makes]
    #[arg(long, value_name = "DIR")]
    pub kernel: Option<PathBuf>,

    /// Folder with the bzImage without the port [default: what `paravane kernel build --unpatched`
    /// makes]
    #[arg(long, value_name = "DIR")]
    pub unpatched: Option<PathBuf>,

    /// The shell for the row `shell`: a static program
    #[arg(long, value_name = "FILE", default_value = "/bin/busybox")]
    pub shell: PathBuf,

    /// Give up on one run after S seconds
    #[arg(
        long, value_name = "S", default_value_t = 900,
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    pub timeout: u64,
}

#[derive(Debug, Args)]
pub struct BenchVmi {
    #[command(flatten)]
    pub output: BenchOutput,

    /// Measure guest and host in turns, N times each
    #[arg(
        long, value_name = "N", default_value_t = 15,
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    pub rounds: u32,

    /// Measure only this row (may be repeated)
    #[arg(long, value_name = "NAME")]
    pub row: Vec<String>,

    /// A conformance kernel in place of the built-in one
    #[arg(long, value_name = "FILE")]
    pub guest: Option<PathBuf>,

    /// Give up on one measurement after S seconds
    #[arg(
        long, value_name = "S", default_value_t = 120,
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    pub timeout: u64,
}

#[derive(Debug, Args)]
pub struct BenchMicro {
    #[command(flatten)]
    pub output: BenchOutput,

    /// Measure guest and host in turns, N times each
    #[arg(
        long, value_name = "N", default_value_t = 9,
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    pub rounds: u32,

    /// Measure only this row (may be repeated)
    #[arg(long, value_name = "NAME")]
    pub row: Vec<String>,

    /// Kernel: ELF file with its relocations [default: what `paravane kernel build` makes]
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,

    /// Append STR to the kernel's command line
    #[arg(long, value_name = "STR", default_value = "")]
    pub append: String,

    /// The shell for the row `shell`: a static program
    #[arg(long, value_name = "FILE", default_value = "/bin/busybox")]
    pub shell: PathBuf,

    /// Give up on one measurement after S seconds
    #[arg(
        long, value_name = "S", default_value_t = 120,
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    pub timeout: u64,
}

#[derive(Debug, Args)]
pub struct BenchApps {
    /// Applications, or rows of them [default: all]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,

    /// Measure the rows of a published table, and show both: seed, for table 3 of the paper on VMI
    #[arg(long, value_name = "NAME", conflicts_with_all = ["names", "vcpus", "place"])]
    pub view: Option<String>,

    /// Print what can be measured, and measure nothing
    #[arg(long)]
    pub list: bool,

    #[command(flatten)]
    pub output: BenchOutput,

    /// Draw the ratios into FILE, as SVG
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,

    /// Measure these systems in the same turns
    #[arg(long, value_name = "SYSTEM,..", value_enum, value_delimiter = ',')]
    pub against: Vec<Peer>,

    /// Measure in the same turns machines with one guess at what is faster turned off, each beside
    /// the machine that has all; without names, one for each guess
    #[arg(
        long, value_name = "GUESS,..", value_delimiter = ',', num_args = 0..=1,
        require_equals = true, default_missing_value = "all"
    )]
    pub ablate: Vec<String>,

    /// Measure machines with one vCPU and with several in the same rounds, and compare what they
    /// reach of the host
    #[arg(long, conflicts_with = "vcpus")]
    pub beside_one_vcpu: bool,

    /// Measure guest and host in turns, N times each
    #[arg(
        long, value_name = "N", default_value_t = 7,
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    pub rounds: u32,

    /// Count the rounds of an earlier run, too: what the same build printed with --json and the
    /// same settings. Rows that only that run has measured are part of the result
    #[arg(long, value_name = "FILE")]
    pub add: Option<PathBuf>,

    /// End with 1 if a bar is clearly missed: if the row's whole interval lies beyond it. Only on
    /// a host with nothing else to do: a run on a busy machine is no proof
    #[arg(long, conflicts_with = "quick")]
    pub check: bool,

    /// Measure a tenth of the work in each turn, to try the command
    #[arg(long)]
    pub quick: bool,

    /// Measure only rows with N vCPUs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub vcpus: Option<u32>,

    /// Measure only in this place (may be repeated)
    #[arg(long, value_name = "PLACE", value_enum)]
    pub place: Vec<Place>,

    /// Kernel: ELF file with its relocations [default: what `paravane kernel build` makes]
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,

    /// Use this folder as the root of both sides, in place of a Debian that is made for it
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,

    /// Add an option to the machine's, such as --option=--append=quiet (may be repeated)
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub option: Vec<String>,

    /// Give up on one script after S seconds
    #[arg(
        long, value_name = "S", default_value_t = 1800,
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    pub timeout: u64,
}

/// Where an application works: what `/srv` is.
#[derive(
    Clone,
    Copy,
    Debug,
    serde::Deserialize,
    serde::Serialize,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// A folder of the root file system
    Rootfs,
    /// A disk of its own
    Disk,
    /// A folder of the host
    Volume,
    /// As rootfs, with the client on the host, at a published port
    Publish,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Place::Rootfs => "rootfs",
            Place::Disk => "disk",
            Place::Volume => "volume",
            Place::Publish => "publish",
        })
    }
}

/// A system to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    /// User-Mode Linux
    Uml,
    /// QEMU's software emulation (TCG)
    Qemu,
    /// gVisor
    Gvisor,
}

#[derive(Debug, Args)]
pub struct BenchVmiHost {
    /// What to measure
    pub what: String,
    /// Operations in a batch
    pub ops: u32,
    /// Batches
    pub batches: u32,
}
