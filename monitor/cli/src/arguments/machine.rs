// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arguments of the commands for Linux machines.

use super::{Isolation, mebibytes};
use clap::Args;
use paravane_images::oci::Pull;
use paravane_machine::heuristic::Heuristic;
use paravane_machine::restart::Restart;
use paravane_machine::spec::{Hypervisor, Init, RomLayer};
use paravane_vbus_client::bus::Name;
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// The signals that a command may be sent: those of POSIX, not the real-time ones.
const SIGNALS: RangeInclusive<u8> = 1..=31;

#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub machine: MachineOptions,

    /// Print the kernel's messages on stderr
    #[arg(long, short)]
    pub verbose: bool,

    /// Run the machine in the background and print its name
    #[arg(long, short)]
    pub detach: bool,

    /// Name by which other commands find the machine
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Before the first instruction, wait for gdb at HOST:PORT, :PORT or a socket's path
    #[arg(long, value_name = "ADDR", conflicts_with = "detach")]
    pub gdb: Option<String>,

    /// Allow --gdb to listen on a network address: any program that can connect controls the
    /// machine
    #[arg(long, requires = "gdb")]
    pub gdb_remote: bool,

    /// Make this thread of the monitor violate its policy
    #[cfg(feature = "test-hooks")]
    #[arg(long, value_name = "THREAD")]
    pub plant_violation: Option<String>,

    /// Give a machine of processes this layer in place of the program's own
    #[cfg(feature = "test-hooks")]
    #[arg(long, value_name = "FILE")]
    pub plant_layer: Option<PathBuf>,

    /// Three seconds after the start, show the machine a wall clock that is ahead by SECONDS
    #[cfg(feature = "test-hooks")]
    #[arg(long, value_name = "SECONDS")]
    pub step_wall_clock: Option<u32>,

    /// That step comes after SECONDS in place of three
    #[cfg(feature = "test-hooks")]
    #[arg(long, value_name = "SECONDS", default_value_t = 3)]
    pub step_after: u32,

    /// Let the host's clock stand for SECONDS, as in a suspend
    #[cfg(feature = "test-hooks")]
    #[arg(long, value_name = "SECONDS")]
    pub suspend_clock: Option<u32>,

    /// That begins SECONDS after the start in place of ten
    #[cfg(feature = "test-hooks")]
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub suspend_after: u32,

    /// Make the host's clock too fast by PPM millionths for eight seconds, then too slow, and so on
    #[cfg(feature = "test-hooks")]
    #[arg(long, value_name = "PPM")]
    pub slew_clock: Option<u32>,

    /// That begins when `CLOCK_MONOTONIC` of the host is NS
    #[cfg(feature = "test-hooks")]
    #[arg(long, value_name = "NS", default_value_t = 0)]
    pub slew_from: u64,
}

/// The properties of a machine.
#[derive(Debug, Args)]
pub struct MachineOptions {
    /// Read options from a TOML file whose keys are the names of options; the command line
    /// overrides it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Kernel: the ELF file vmlinux with its relocations, or what `paravane kernel build --with
    /// NAME` made last [default: what `paravane kernel build` made, or else the installed one]
    #[arg(long, value_name = "FILE|with:NAME[,NAME...]")]
    pub kernel: Option<PathBuf>,

    /// Root file system as a cpio archive, in place of the built-in one
    #[arg(long, value_name = "FILE")]
    pub initrd: Option<PathBuf>,

    /// Append STR to the kernel's command line (may be repeated)
    #[arg(long, value_name = "STR")]
    pub append: Vec<String>,

    /// Share a folder of the host with the guest. With :ro the guest cannot change it. With :suid
    /// the guest may also create setuid and setgid programs and set file capabilities, which are
    /// effective on the host. With :cache=none the guest keeps nothing of it, with :cache=always
    /// everything, because the host does not change the folder. With :workers each request is
    /// served by a worker thread (may be repeated)
    #[arg(
        long,
        value_name = "HOST:GUEST[:ro|:rw|:suid][:cache=auto|always|none][:workers]"
    )]
    pub volume: Vec<String>,

    /// Root file system: a disk image (written to, unless :ro or :snapshot; :cut, :raw, :qcow2 and
    /// :vbus as for --disk), or a folder (changes are discarded at the end)
    #[arg(
        long,
        value_name = "DIR|IMAGE[:ro|:snapshot|:cut][:raw|:qcow2][:vbus]",
        conflicts_with = "initrd"
    )]
    pub rootfs: Option<String>,

    /// What runs as process 1
    #[arg(long, value_enum, default_value_t = Init::Auto)]
    pub init: Init,

    /// Run a container image: its name in a registry, a folder or archive in OCI's layout, or an
    /// archive of `docker save` (changes are discarded at the end)
    #[arg(long, value_name = "NAME|FOLDER|ARCHIVE", conflicts_with_all = ["rootfs", "initrd"])]
    pub image: Option<PathBuf>,

    /// When to ask the registry for the image
    #[arg(long, value_enum, default_value_t = Pull::Missing, requires = "image")]
    pub pull: Pull,

    /// Add a disk: a file with its contents, /dev/vda and so on in the guest. With :snapshot writes
    /// are discarded at the end; with :cut writes that were not flushed are discarded, to test
    /// power failures. A file is a qcow2 image if its name ends in .qcow2 or .qcow or :qcow2
    /// follows, and else raw; with :raw it is raw whatever its name and contents. With :vbus it is
    /// a device of a virtual bus, /dev/vbd0 and so on, as is bus:NAME/DEVICE, a disk on a bus of
    /// vbusd (may be repeated)
    #[arg(
        long,
        value_name = "FILE[:ro|:snapshot|:cut][:raw|:qcow2][:vbus]|bus:NAME/DEVICE"
    )]
    pub disk: Vec<String>,

    /// Network: user (passt where it works, else stack), stack (inside the monitor), passt (a
    /// separate process), venet (the stack, by a card of the virtual bus), venet-passt (passt, by
    /// such a card), tap:NAME (an interface of the host), venet-tap:NAME (the same by a card of the
    /// virtual bus), bus:NAME (the only network of a bus of vbusd), bus:NAME/DEVICE (the network
    /// DEVICE of the bus), or none. With ,loopback after the name, the gateway's address leads to
    /// the host's loopback; with ,link-local the guest reaches 169.254.0.0/16, where clouds have
    /// their metadata service. With ,share after bus:NAME or bus:NAME/DEVICE, all ports of the
    /// switch that share, too, may read ALL that the guest sends, and vbusd copies no payload
    /// between them (the switch needs share=1)
    #[arg(long, value_name = "NET", default_value = "user")]
    pub net: String,

    /// Tune the machine's network cards on a virtual bus, in microseconds from 0 to 10000.
    /// poll-us=N: after its work, a card checks for more by itself for N us before it waits for a
    /// notification; more lowers the latency and takes more CPU time, 0 turns this off [default:
    /// 60; on a bus of vbusd 30]. kick-us=N, on KVM: a vCPU does a card's work itself if it has
    /// sent no notification for N us, which saves a wake-up [default: 20; without effect on the
    /// stack] (may be repeated)
    #[arg(long, value_name = "poll-us=N|kick-us=N")]
    pub card: Vec<String>,

    /// Take all devices of a bus of vbusd, cards and disks, as they come and go
    #[arg(long, value_name = "NAME", value_parser = super::vbus::name)]
    pub bus: Option<Name>,

    /// Forward a port of the host to the guest; without an address only the host can reach it (may
    /// be repeated)
    #[arg(long, short, value_name = "[ADDRESS:]HOST:GUEST[/udp]")]
    pub publish: Vec<paravane_net::Publish>,

    /// What runs the machine
    #[arg(
        long, value_enum, default_value_t = Hypervisor::Auto, env = "PARAVANE_HYPERVISOR",
        hide_env_values = true
    )]
    pub hypervisor: Hypervisor,

    /// Virtual CPUs
    #[arg(
        long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=64)
    )]
    pub cpus: u32,

    /// Memory of the machine, in MiB or with a unit: 256M, 4G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = mebibytes)]
    pub memory: u32,

    /// How the machine is isolated inside
    #[arg(long, value_enum, default_value_t = Isolation::Vm, hide_default_value = true)]
    pub isolation: Isolation,

    /// Largest number of address-space processes [default: what this host allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1024))]
    pub spaces: Option<u32>,

    #[command(flatten)]
    pub command: CommandOptions,

    /// Give the command this terminal; in the background, a terminal for `attach`
    #[arg(long, short)]
    pub tty: bool,

    /// In the background, keep the command's input open for `attach`; without a command, run a
    /// shell
    #[arg(long, short)]
    pub interactive: bool,

    /// When a machine that ends by itself starts again: no, on-reboot (its guest has
    /// rebooted), on-failure (the same, or it has failed; at most N times), always, or auto
    /// (on-reboot where the root's own init may run, else no)
    #[arg(
        long, value_name = "no|on-reboot|on-failure[:N]|always|auto",
        default_value_t = Restart::Auto
    )]
    pub restart: Restart,

    /// Signal by which `paravane stop` asks the command to end: its number, or its name as in
    /// `kill -l` [default: the image's, or TERM]
    #[arg(long, value_name = "SIGNAL", value_parser = signal)]
    pub stop_signal: Option<u8>,

    /// End the machine S seconds after its start, with exit code 124
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub timeout: Option<u64>,

    /// Serve the machine's metrics for Prometheus on a socket: `curl --unix-socket PATH
    /// http://localhost/metrics`
    #[arg(long, value_name = "PATH")]
    pub metrics: Option<PathBuf>,

    /// Add a console of a virtual bus, /dev/vbc0 to /dev/vbc15 in the guest, to which clients of a
    /// socket connect: `socat -,raw,echo=0,escape=0x1d UNIX-CONNECT:PATH`; Ctrl-] leaves (may be
    /// repeated)
    #[arg(long, value_name = "PATH")]
    pub console: Vec<PathBuf>,

    /// Allow debuggers to trace the machine's processes
    #[arg(long)]
    pub debuggable: bool,

    /// Count the calls of the machine's layer for `paravane calls`, which makes the machine slower
    #[arg(long)]
    pub count_calls: bool,

    /// On KVM, the layer (VMI implementation) that the kernel is offered [default: kvm]
    #[arg(long, value_enum, conflicts_with = "count_calls")]
    pub layer: Option<RomLayer>,

    /// Turn off a performance heuristic, to measure its effect or to rule it out as a cause. All
    /// are on by default. They change the speed of a machine and its use of memory; docs/tuning.md
    /// describes them (may be repeated)
    #[arg(long, value_enum, value_name = "HEURISTIC")]
    pub without: Vec<Heuristic>,
}

/// A command in a guest, and its environment.
#[derive(Debug, Args)]
pub struct CommandOptions {
    /// Set a variable for the command (may be repeated); without a value, pass on the host's
    #[arg(long, short, value_name = "KEY=VALUE")]
    pub env: Vec<OsString>,

    /// Working folder of the command [default: the user's home; with `exec` that of the machine's
    /// command]
    #[arg(long, short, value_name = "DIR")]
    pub workdir: Option<PathBuf>,

    /// User in the guest: a name or a number, with a group after a colon [default: root; with
    /// `exec` that of the machine's command]
    #[arg(long, short, value_name = "USER[:GROUP]")]
    pub user: Option<String>,

    /// The command and its arguments [default: a shell; with `create` and `run --detach` none, and
    /// the machine runs until it is stopped]
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct Create {
    /// Name by which other commands find the machine [default: a generated name]
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
pub struct Names {
    /// The machines' names
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Attach {
    /// The machine's name
    pub name: String,

    /// Show only output; read no input
    #[arg(long)]
    pub no_stdin: bool,
}

#[derive(Debug, Args)]
pub struct Ps {
    /// Also list machines that do not run
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

    /// Print JSON instead of a table; with --watch, one line each second
    #[arg(long)]
    pub json: bool,

    /// Print the figures every second until the machine ends
    #[arg(long, short)]
    pub watch: bool,
}

#[derive(Debug, Args)]
pub struct Card {
    /// The machine's name
    pub name: String,

    /// Attributes to set in all its cards, 0 to 10000, as with `run --card`
    #[arg(value_name = "poll-us=N|kick-us=N")]
    pub attributes: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Calls {
    /// The machine's name
    pub name: String,

    /// Print JSON, with the histogram of each call
    #[arg(long)]
    pub json: bool,

    /// Then set all counts to zero
    #[arg(long)]
    pub reset: bool,
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

    /// Has no effect, and is there for users of docker: the command always has this input
    #[arg(long, short)]
    pub interactive: bool,
}

#[derive(Debug, Args)]
pub struct Logs {
    /// The machine's name
    pub name: String,

    /// Follow the output until the machine ends
    #[arg(long, short)]
    pub follow: bool,

    /// Begin with the last N lines of what there is
    #[arg(long, short = 'n', value_name = "N")]
    pub tail: Option<usize>,
}

#[derive(Debug, Args)]
pub struct Stop {
    /// The machines' names
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,

    /// Seconds that the command has after its signal
    #[arg(
        long, short, value_name = "S", default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(0..=3600)
    )]
    pub time: u64,
}

#[derive(Debug, Args)]
pub struct Kill {
    /// The machines' names
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,

    /// Send this signal to the command instead: its number, or its name as in `kill -l`
    #[arg(long, short, value_name = "SIGNAL", value_parser = signal)]
    pub signal: Option<u8>,
}

/// Parses the number of a signal from 1 to 31, or its name with or without `SIG`.
pub fn signal(text: &str) -> Result<u8, String> {
    let named = |number: &u8| {
        let name = signal_hook::low_level::signal_name(i32::from(*number));
        let upper = text.to_ascii_uppercase();
        name.is_some_and(|name| name.strip_prefix("SIG") == Some(upper.trim_start_matches("SIG")))
    };
    let number = text.parse().ok().filter(|number| SIGNALS.contains(number));
    number
        .or_else(|| SIGNALS.into_iter().find(named))
        .ok_or_else(|| {
            "no signal has this number or name: 1 to 31, or a name such as TERM".to_string()
        })
}

#[derive(Debug, Args)]
pub struct Rm {
    /// The machines' names
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,

    /// End running machines first
    #[arg(long, short)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct Cp {
    /// Source: a file or folder of the host, or NAME:PATH in a machine
    #[arg(value_name = "FROM")]
    pub from: String,

    /// Target, in the same form: an existing folder gets FROM inside of it, any other path becomes
    /// FROM's new name
    #[arg(value_name = "TO")]
    pub to: String,
}
