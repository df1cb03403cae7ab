// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux machines: `run` and its relatives.

use super::{Isolation, mebibytes};
use clap::Args;
use paravane_images::oci::Pull;
use paravane_machine::spec::Init;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub machine: MachineOptions,

    /// Print what the kernel says, on stderr
    #[arg(long, short)]
    pub verbose: bool,

    /// Leave the machine running in the background, and print its name
    #[arg(long, short)]
    pub detach: bool,

    /// Name by which other commands find the machine
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Wait for gdb at HOST:PORT, :PORT or a socket's path, before the machine's first instruction
    #[arg(long, value_name = "ADDR", conflicts_with = "detach")]
    pub gdb: Option<String>,

    /// Let --gdb listen on an address of the network: whoever reaches it controls the machine
    #[arg(long, requires = "gdb")]
    pub gdb_remote: bool,

    /// For tests: this thread of the monitor makes a host call that its policy does not admit
    #[arg(long, value_name = "THREAD", hide = true)]
    pub plant_violation: Option<String>,
}

/// What machine it is to be.
#[derive(Debug, Args)]
pub struct MachineOptions {
    /// Options from a file in TOML, whose keys are the options' names; what is said here counts before what is said there
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Kernel: the ELF file vmlinux, with its relocations [default: what `paravane kernel build` made]
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,

    /// Root file system as a cpio archive, in place of the built-in one
    #[arg(long, value_name = "FILE")]
    pub initrd: Option<PathBuf>,

    /// More words for the kernel's command line (may be repeated)
    #[arg(long, value_name = "STR")]
    pub append: Vec<String>,

    /// Show a folder of this host in the guest; with :ro nothing in it can be changed, with :suid
    /// the guest can also make setuid and setgid programs and set their capabilities, which count
    /// on this host (may be repeated)
    #[arg(long, value_name = "HOST:GUEST[:ro|:suid]")]
    pub volume: Vec<String>,

    /// Root file system: an image (written to, unless :ro or :snapshot; :cut as with --disk), or a folder (changes are forgotten at the end)
    #[arg(
        long,
        value_name = "DIR|IMAGE[:ro|:snapshot|:cut]",
        conflicts_with = "initrd"
    )]
    pub rootfs: Option<String>,

    /// What process 1 is
    #[arg(long, value_enum, default_value_t = Init::Auto)]
    pub init: Init,

    /// Run an image of a container: its name in a registry, or a folder or archive in OCI's layout, or an archive of `docker save`
    /// (changes are forgotten at the end)
    #[arg(long, value_name = "NAME|FOLDER|ARCHIVE", conflicts_with_all = ["rootfs", "initrd"])]
    pub image: Option<PathBuf>,

    /// When the registry is asked for the image
    #[arg(long, value_enum, default_value_t = Pull::Missing, requires = "image")]
    pub pull: Pull,

    /// A disk: a file with its contents, /dev/vda and so on in the guest; with :snapshot what is written is forgotten at
    /// the end, with :cut what was not flushed, to try out what a power failure does (may be repeated)
    #[arg(long, value_name = "FILE[:ro|:snapshot|:cut]")]
    pub disk: Vec<String>,

    /// Network: user (passt where that runs, else stack), stack (inside the monitor), passt (a process of its own); with
    /// ,loopback behind it the gateway's address leads to this host's loopback; tap:NAME (an interface of this host); none
    #[arg(long, value_name = "NET", default_value = "user")]
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

    /// Give the command this terminal, or in the background one for `attach`
    #[arg(long, short)]
    pub tty: bool,

    /// In the background, keep the command's input open for `attach`; without a command, run a shell
    #[arg(long, short)]
    pub interactive: bool,

    /// End the machine S seconds after its start, with exit code 124
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub timeout: Option<u64>,

    /// Serve the machine's figures on a socket of that name, for Prometheus: `curl --unix-socket PATH http://localhost/metrics`
    #[arg(long, value_name = "PATH")]
    pub metrics: Option<PathBuf>,

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

    /// The command and its arguments; without one, a shell, or in the background nothing: the machine runs until it is stopped
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
pub struct Attach {
    /// The machine's name
    pub name: String,

    /// Only its output: nothing is read from here
    #[arg(long)]
    pub no_stdin: bool,
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
pub struct Stat {
    /// The machine's name
    pub name: String,

    /// Print JSON instead of a table; with --watch a line each second
    #[arg(long)]
    pub json: bool,

    /// Print it anew each second, until the machine has ended
    #[arg(long, short)]
    pub watch: bool,
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
pub struct Cp {
    /// File or folder: of this host, or NAME:PATH in a machine
    #[arg(value_name = "FROM")]
    pub from: String,

    /// Where it goes, the same way: into it if it is a folder, else under this name
    #[arg(value_name = "TO")]
    pub to: String,
}
