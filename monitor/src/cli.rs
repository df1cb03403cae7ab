// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the command line may say.

use crate::text;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs virtual machines on machines that have no hardware virtualization to give
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = false, infer_long_args = false)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,

    /// Say on stderr what the monitor does
    #[arg(long, global = true, value_enum, default_value_t = Log::Off, hide_default_value = true)]
    pub log: Log,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command, or a shell, in a Linux virtual machine of its own
    Run(Run),
    /// Make a machine with a name, for `start`
    Create(Create),
    /// Start a machine in the background
    Start(Named),
    /// List machines
    Ps(Ps),
    /// Run a command in a machine that runs
    Exec(Exec),
    /// Print what a machine's command has printed
    Logs(Logs),
    /// Ask machines to end
    Stop(Stop),
    /// End machines at once
    Kill(Kill),
    /// Forget machines that have ended
    Rm(Rm),
    /// Print what is known of a machine, as JSON
    Inspect(Named),
    /// The monitor of a machine in the background
    #[command(hide = true)]
    Monitor(Named),
    /// Boot the conformance guest and say which calls of a layer do what the specification says
    Conformance(Conformance),
    /// Look into layer images
    #[command(subcommand)]
    Rom(Rom),
    /// Make root file systems
    #[command(subcommand)]
    Image(Image),
    /// Measure, and make the tables of docs/benchmarks.md
    #[command(subcommand)]
    Bench(Bench),
    /// Linux for the guest: build it, check it
    #[command(subcommand)]
    Kernel(Kernel),
    /// Boot a kernel on the process hypervisor, its console on stdout: for development
    #[command(hide = true)]
    Boot(Boot),
    /// Say what this machine offers for running guests, and what follows from it
    Doctor(Doctor),
}

#[derive(Debug, Subcommand)]
pub enum Image {
    /// Make a Debian from packages of the mirror that this host's apt uses; needs no root
    Build(ImageBuild),
}

#[derive(Debug, Args)]
pub struct ImageBuild {
    /// Debian's name of the release
    #[arg(long, value_name = "NAME", default_value = "bookworm")]
    pub suite: String,

    /// More packages
    #[arg(long, value_name = "PKG,..", value_delimiter = ',')]
    pub include: Vec<String>,

    /// Size of an ext4 file system, MiB or with a unit; what is not used takes no room
    #[arg(long, value_name = "SIZE", default_value = "8G", value_parser = mebibytes)]
    pub size: u32,

    /// What to make
    #[arg(long, value_enum, default_value_t = crate::image::Format::Ext4)]
    pub format: crate::image::Format,

    /// Where to put it
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub machine: MachineOptions,

    /// Give the command this terminal
    #[arg(long, short, conflicts_with = "detach")]
    pub tty: bool,

    /// Print what the kernel says, on stderr
    #[arg(long, short)]
    pub verbose: bool,

    /// Leave the machine running in the background, and print its name
    #[arg(long, short)]
    pub detach: bool,

    /// Name by which other commands find the machine
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

/// What machine it is to be.
#[derive(Debug, Args)]
pub struct MachineOptions {
    /// Kernel: the ELF file vmlinux, with its relocations [default: what `paravane kernel build` made]
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,

    /// Root file system as a cpio archive, in place of the built-in one
    #[arg(long, value_name = "FILE")]
    pub initrd: Option<PathBuf>,

    /// More words for the kernel's command line (may be repeated)
    #[arg(long, value_name = "STR")]
    pub append: Vec<String>,

    /// Show a folder of this host in the guest; with :ro the guest mounts it for reading only (may be repeated)
    #[arg(long, value_name = "HOST:GUEST[:ro]")]
    pub volume: Vec<String>,

    /// Root file system: an image (written to, unless :ro or :snapshot), or a folder (changes are forgotten at the end)
    #[arg(long, value_name = "DIR|IMAGE[:ro|:snapshot]", conflicts_with = "initrd")]
    pub rootfs: Option<String>,

    /// A disk: a file with its contents, /dev/vda and so on in the guest; with :snapshot what is written is forgotten at
    /// the end (may be repeated)
    #[arg(long, value_name = "FILE[:ro|:snapshot]")]
    pub disk: Vec<String>,

    /// Network: none; user (inside the monitor); passt (a process of its own); with ,loopback the gateway's address leads to this host's
    /// loopback; tap:NAME (an interface of this host)
    #[arg(long, value_name = "NET", default_value = "none")]
    pub net: String,

    /// A port of this host that leads into the guest; without an address only this host reaches it (may be repeated)
    #[arg(long, short, value_name = "[ADDRESS:]HOST:GUEST[/udp]")]
    pub publish: Vec<paravane_net::Publish>,

    /// Virtual CPUs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub cpus: u32,

    /// Memory of the machine, MiB or with a unit: 256M, 4G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = mebibytes)]
    pub memory: u32,

    /// What is kept from what inside the guest
    #[arg(long, value_enum, default_value_t = Isolation::Vm, hide_default_value = true)]
    pub isolation: Isolation,

    /// Address-space processes [default: what this host allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1024))]
    pub spaces: Option<u32>,

    #[command(flatten)]
    pub command: CommandOptions,

    /// End the machine after S seconds, with exit code 124
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub timeout: Option<u64>,

    /// Let debuggers attach to the machine's processes
    #[arg(long)]
    pub debuggable: bool,
}

/// A command in a guest, and around it.
#[derive(Debug, Args)]
pub struct CommandOptions {
    /// Variable for the command (may be repeated); without a value, this program's own
    #[arg(long, short, value_name = "KEY=VALUE")]
    pub env: Vec<OsString>,

    /// Folder that the command starts in [default: the user's own]
    #[arg(long, short, value_name = "DIR")]
    pub workdir: Option<PathBuf>,

    /// Who the command is in the guest: a name or a number, and a group behind a colon [default: root]
    #[arg(long, short, value_name = "USER[:GROUP]")]
    pub user: Option<String>,

    /// The command and its arguments; without one, a shell
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct Create {
    /// Name by which other commands find the machine [default: one is made up]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    #[command(flatten)]
    pub machine: MachineOptions,
}

#[derive(Debug, Args)]
pub struct Named {
    /// The machine's name
    pub name: String,
}

#[derive(Debug, Args)]
pub struct Ps {
    /// Those that do not run, too
    #[arg(long, short)]
    pub all: bool,

    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Exec {
    /// The machine's name
    pub name: String,

    #[command(flatten)]
    pub command: CommandOptions,

    /// Give the command this terminal
    #[arg(long, short)]
    pub tty: bool,
}

#[derive(Debug, Args)]
pub struct Logs {
    /// The machine's name
    pub name: String,

    /// Go on until the machine has ended
    #[arg(long, short)]
    pub follow: bool,
}

#[derive(Debug, Args)]
pub struct Stop {
    /// The machines' names
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,

    /// Seconds that the command has after SIGTERM
    #[arg(long, short, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub time: u64,
}

#[derive(Debug, Args)]
pub struct Kill {
    /// The machines' names
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,

    /// Send this signal to the command instead
    #[arg(long, short, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=31))]
    pub signal: Option<u8>,
}

#[derive(Debug, Args)]
pub struct Rm {
    /// The machines' names
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,

    /// End them first if they run
    #[arg(long, short)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct Boot {
    /// ELF file with its relocations [default: the one of `kernel build`]
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,

    /// Initial RAM disk
    #[arg(long, value_name = "FILE")]
    pub initrd: Option<PathBuf>,

    /// The kernel's command line
    #[arg(long, value_name = "STR", default_value = "")]
    pub append: String,

    /// Virtual CPUs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub cpus: u32,

    /// Memory of the machine, MiB or with a unit: 256M, 4G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = mebibytes)]
    pub memory: u32,

    /// Address-space processes [default: what this host allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1024))]
    pub spaces: Option<u32>,

    /// Let debuggers attach to the machine's processes
    #[arg(long)]
    pub debuggable: bool,

    /// A disk: FILE, FILE:ro to read only, FILE:snapshot to throw away what is written
    #[arg(long, value_name = "FILE[:ro|:snapshot]")]
    pub disk: Vec<String>,

    /// A directory, which the guest mounts by its tag
    #[arg(long, value_name = "DIR:TAG")]
    pub share: Vec<String>,

    /// A console (hvc1) and a socket device whose other side echoes: console, port 7; port 8: connects to the guest's
    /// port 1008 and echoes there
    #[arg(long)]
    pub echo: bool,

    /// End the machine after S seconds
    #[arg(long, value_name = "S", default_value_t = 86_400)]
    pub timeout: u64,
}

#[derive(Debug, Args)]
pub struct Conformance {
    /// What runs the guest
    #[arg(long, value_enum)]
    pub hypervisor: HypervisorKind,

    /// The layer that the guest must find; with --rom, the name in that image unless said
    #[arg(long, value_enum)]
    pub layer: Option<Layer>,

    /// Virtual CPUs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub cpus: u32,

    /// What is kept from what inside the guest
    #[arg(long, value_enum, default_value_t = Isolation::Vm, hide_default_value = true)]
    pub isolation: Isolation,

    /// Memory of the guest's machine, MiB or with a unit: 256M, 4G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = mebibytes)]
    pub memory: u32,

    /// Address-space processes that --hypervisor process may have [default: what this host allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1024))]
    pub spaces: Option<u32>,

    /// Let debuggers attach to the processes of --hypervisor process
    #[arg(long)]
    pub debuggable: bool,

    /// Start with a wrong clock, and correct it in large steps: for tests of --hypervisor process
    #[arg(long, hide = true)]
    pub disturb_clock: bool,

    /// Run only the tests whose names match PATTERN (`*` stands for anything; without one, a part of the name)
    #[arg(long, value_name = "PATTERN")]
    pub filter: Option<String>,

    /// A layer image in place of the built-in one
    #[arg(long, value_name = "FILE")]
    pub rom: Option<PathBuf>,

    /// Hand over --rom as it is, to see what the guest makes of a bad one
    #[arg(long, requires = "rom")]
    pub unchecked_rom: bool,

    /// A guest in place of the built-in one
    #[arg(long, value_name = "FILE")]
    pub guest: Option<PathBuf>,

    /// Print the guest's TAP instead of a summary
    #[arg(long)]
    pub tap: bool,

    /// Print every test and everything else that the guest says
    #[arg(long, short, conflicts_with = "tap")]
    pub verbose: bool,

    /// Give up after S seconds
    #[arg(long, value_name = "S", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,

    /// One more word for the guest's command line, such as `times` (may be repeated)
    #[arg(long, value_name = "WORD")]
    pub append: Vec<String>,

    /// Print the names of the tests and run none
    #[arg(long, conflicts_with_all = ["tap", "verbose"])]
    pub list: bool,
}

#[derive(Debug, Subcommand)]
pub enum Rom {
    /// Print the header, sections and calls of a layer image
    Inspect {
        /// The image
        file: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub enum Kernel {
    /// Build Linux 6.12 with the port in it, unless that has been done
    Build(KernelBuild),
}

#[derive(Debug, Args)]
pub struct KernelBuild {
    /// Tarball of Linux 6.12.y, or a folder with one unpacked [default: Debian's linux-source-6.12]
    #[arg(long, value_name = "TARBALL|DIR")]
    pub source: Option<PathBuf>,

    /// Ask apt for the newest linux-source-6.12 even if there is one
    #[arg(long, conflicts_with = "source")]
    pub update: bool,

    /// Copy vmlinux, bzImage and config there
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// Compilers at once [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,

    /// An optional part of the configuration: btf, debug-info, lsm (may be repeated)
    #[arg(long, value_name = "NAME")]
    pub with: Vec<String>,

    /// A fragment of configuration of your own, over the others (may be repeated)
    #[arg(long, value_name = "FILE")]
    pub config: Vec<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Instructions per operation on bare metal, with no layer and with each native one
    Native(BenchNative),
    /// What the process hypervisor's mechanisms cost, each next to its counterpart on the host
    Vmi(BenchVmi),
    /// What operations of Linux cost in a virtual machine, each next to the host
    Micro(BenchMicro),
    /// The host's side of a row of `vmi`, in a process of its own
    #[command(hide = true)]
    VmiHost(BenchVmiHost),
}

#[derive(Debug, Args)]
pub struct BenchVmi {
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,

    /// Put the table into FILE, between its markers for this table
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub write: Option<PathBuf>,

    /// Measure guest and host alternately, N times each
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,

    /// Only this row (may be repeated)
    #[arg(long, value_name = "NAME")]
    pub row: Vec<String>,

    /// A guest in place of the built-in one
    #[arg(long, value_name = "FILE")]
    pub guest: Option<PathBuf>,

    /// Give up on one measurement after S seconds
    #[arg(long, value_name = "S", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
}

#[derive(Debug, Args)]
pub struct BenchMicro {
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,

    /// Put the table into FILE, between its markers for this table
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub write: Option<PathBuf>,

    /// Measure guest and host alternately, N times each
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,

    /// Only this row (may be repeated)
    #[arg(long, value_name = "NAME")]
    pub row: Vec<String>,

    /// The kernel: ELF file with its relocations [default: what `paravane kernel build` makes]
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,

    /// More for the kernel's command line
    #[arg(long, value_name = "STR", default_value = "")]
    pub append: String,

    /// The shell that the row `shell` runs: a static program
    #[arg(long, value_name = "FILE", default_value = "/bin/busybox")]
    pub shell: PathBuf,

    /// Give up on one measurement after S seconds
    #[arg(long, value_name = "S", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
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

#[derive(Debug, Args)]
pub struct BenchNative {
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,

    /// Put the table into FILE, between its markers for this table
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub write: Option<PathBuf>,

    /// A guest in place of the built-in one
    #[arg(long, value_name = "FILE")]
    pub guest: Option<PathBuf>,

    /// Give up on one run after S seconds
    #[arg(long, value_name = "S", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HypervisorKind {
    /// QEMU's software emulation: bare metal, as far as the guest can tell
    Qemu,
    /// Ordinary processes of this machine: no hardware virtualization, no privilege
    Process,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Isolation {
    /// Nothing: the virtual machine is one trust domain, as a unikernel is
    Vm,
}

#[derive(Debug, Args)]
pub struct Doctor {
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Layer {
    /// No layer: every site keeps its native instruction
    None,
    /// Every call is the native instruction
    Native,
    /// As native, and counts
    NativeStats,
    /// The one of --hypervisor process
    Process,
}

impl Layer {
    /// The name as it stands on the guest's command line and in the ROM's header.
    pub fn name(self) -> &'static str {
        match self {
            Layer::None => "none",
            Layer::Native => "native",
            Layer::NativeStats => "native-stats",
            Layer::Process => "process",
        }
    }

    /// The image that this program carries.
    pub fn rom(self) -> Option<&'static [u8]> {
        match self {
            Layer::None | Layer::Process => None,
            Layer::Native => Some(paravane_blobs::NATIVE_ROM),
            Layer::NativeStats => Some(paravane_blobs::NATIVE_STATS_ROM),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Log {
    Off,
    Info,
    Debug,
}

/// What clap wants to say instead of starting: help, the version, or an error.
#[derive(Debug)]
pub struct Early(clap::Error);

/// Reads the command line.
pub fn parse(args: impl Iterator<Item = OsString>) -> Result<Cli, Early> {
    let cli = Cli::try_parse_from(args).map_err(Early)?;
    if let Command::Conformance(args) = &cli.command {
        args.check().map_err(Early)?;
    }
    Ok(cli)
}

impl Conformance {
    /// What a rule for one argument cannot say.
    fn check(&self) -> Result<(), clap::Error> {
        let error = |kind, message: &str| Err(Cli::command().error(kind, message));
        match self.hypervisor {
            HypervisorKind::Qemu if self.layer.is_none() && self.rom.is_none() && !self.list => error(
                ErrorKind::MissingRequiredArgument,
                "--hypervisor qemu: one of --layer, --rom is required",
            ),
            HypervisorKind::Qemu if self.spaces.is_some() || self.debuggable || self.disturb_clock => error(
                ErrorKind::ArgumentConflict,
                "--spaces and --debuggable are for --hypervisor process",
            ),
            _ => Ok(()),
        }
    }
}

/// Reads a size of memory.
fn mebibytes(text: &str) -> Result<u32, String> {
    let (digits, shift) = match text.strip_suffix(['M', 'm']) {
        Some(digits) => (digits, 0),
        None => text.strip_suffix(['G', 'g']).map_or((text, 0), |digits| (digits, 10)),
    };
    let number: u32 = digits
        .parse()
        .map_err(|_| "a number is expected, and M or G behind it".to_string())?;
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

impl Early {
    /// Prints it: help as it is, an error as one line.
    pub fn report(self) -> ExitCode {
        match self.0.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                // Only fails when nobody reads it.
                let _ = self.0.print();
                ExitCode::SUCCESS
            }
            _ => {
                eprintln!("paravane: {}", error_line(&self.0));
                ExitCode::from(crate::EXIT_BAD_INPUT)
            }
        }
    }
}

/// clap explains over several lines; what is wrong and what would be right fit on one.
fn error_line(error: &clap::Error) -> String {
    let rendered = error.render().to_string();
    let wanted: Vec<&str> = rendered
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty() && !l.starts_with("Usage:") && !l.starts_with("For more information"))
        .map(|l| l.trim_start_matches("error: "))
        .collect();
    text::one_line(&format!("{} (see paravane --help)", wanted.join(" ")))
}

/// Turns on the monitor's own log.
pub fn start_log(level: Log) {
    let level = match level {
        Log::Off => return,
        Log::Info => tracing::Level::INFO,
        Log::Debug => tracing::Level::DEBUG,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .without_time()
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(words: &[&str]) -> String {
        let args = std::iter::once("paravane")
            .chain(words.iter().copied())
            .map(OsString::from);
        error_line(&parse(args).unwrap_err().0)
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn errors_are_one_line_that_says_what_would_be_right() {
        for (words, parts) in [
            (
                &["conformance", "--hypervisor", "qemu", "--layer", "fast"][..],
                &["'fast'", "--layer", "native-stats"][..],
            ),
            (
                &["conformance", "--hypervisor", "vmx", "--layer", "none"],
                &["'vmx'", "--hypervisor", "qemu"],
            ),
            (&["conformance", "--hypervisor", "qemu"], &["required", "--layer"]),
            (
                &["conformance", "--hypervisor", "qemu", "--layer", "none", "--cpus", "0"],
                &["--cpus", "1..=64"],
            ),
            (&["conformance", "--frobnicate"], &["--frobnicate"]),
            (&["launch"], &["'launch'"]),
            (&[], &["subcommand"]),
        ] {
            let line = complaint(words);
            assert!(!line.contains('\n'), "{line}");
            for part in parts {
                assert!(line.contains(part), "{part} is not in: {line}");
            }
        }
    }
}
