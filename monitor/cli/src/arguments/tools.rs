// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arguments of the commands for images, kernels, layers and the host.

use super::{HypervisorKind, mebibytes};
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum Image {
    /// Build a Debian image from packages of the mirror that this host's apt uses; needs no root
    Build(ImageBuild),
    /// Pull a container image from its registry, for `run --image NAME`
    Pull {
        /// Name of the image, as docker writes it
        name: String,
    },
}

#[derive(Debug, Args)]
pub struct ImageBuild {
    /// Name of the Debian release
    #[arg(long, value_name = "NAME", default_value = "bookworm")]
    pub suite: String,

    /// Additional packages
    #[arg(long, value_name = "PKG,..", value_delimiter = ',')]
    pub include: Vec<String>,

    /// Size of an ext4 file system, in MiB or with a unit; unused blocks take no space
    #[arg(long, value_name = "SIZE", default_value = "8G", value_parser = mebibytes)]
    pub size: u32,

    /// Format of the image
    #[arg(long, value_enum, default_value_t = paravane_images::Format::Ext4)]
    pub format: paravane_images::Format,

    /// The file to create
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum Kernel {
    /// Build Linux 6.12 with the port, unless the cache has it
    Build(KernelBuild),
    /// List the optional parts of the configuration, and the kernels that were built with them
    List(KernelList),
    /// Check that one kernel works on bare metal and on the process hypervisor: files, code, boots
    Verify(KernelVerify),
    /// Count the lines of Linux that the port adds, changes and moves
    Lines(KernelLines),
}

#[derive(Debug, Args)]
pub struct KernelList {
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct KernelLines {
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,

    /// Put the table into FILE, between its markers for this table
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub write: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct KernelVerify {
    /// Folder with vmlinux and bzImage [default: what `paravane kernel build` made]
    #[arg(long, value_name = "DIR")]
    pub kernel: Option<PathBuf>,

    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,

    /// Check only the files; do not boot
    #[arg(long)]
    pub no_boot: bool,

    /// Boot with this ROM on bare metal, and nowhere else
    #[arg(long, value_name = "FILE", conflicts_with = "no_boot")]
    pub rom: Option<PathBuf>,

    /// Boot only on this (may be repeated) [default: all, and KVM where it is fast]
    #[arg(long, value_enum, value_name = "HYPERVISOR", conflicts_with_all = ["no_boot", "rom"])]
    pub on: Vec<HypervisorKind>,

    /// A list of reviewed instructions in place of the built-in one
    #[arg(long, value_name = "FILE")]
    pub list: Option<PathBuf>,

    /// Give up on one boot after S seconds
    #[arg(
        long, value_name = "S", default_value_t = 120,
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    pub timeout: u64,
}

#[derive(Debug, Args)]
pub struct KernelBuild {
    /// Tarball of Linux 6.12.y, or a folder with one unpacked [default: Debian's linux-source-6.12]
    #[arg(long, value_name = "TARBALL|DIR")]
    pub source: Option<PathBuf>,

    /// Ask apt for the newest linux-source-6.12 even if one is installed
    #[arg(long, conflicts_with = "source")]
    pub update: bool,

    /// Copy vmlinux, bzImage, config and modules.builtin to DIR, and the name of their recipe
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// Number of compilers that run at the same time [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,

    /// An optional part of the configuration: btf, debug-info, filesystems, lsm, network, services,
    /// storage; `kernel list` says what each adds (may be repeated)
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    pub with: Vec<String>,

    /// Build Linux without the port, with the same configuration, for comparisons on bare metal
    #[arg(long)]
    pub unpatched: bool,

    /// A configuration fragment of your own, which overrides the others (may be repeated)
    #[arg(long, value_name = "FILE")]
    pub config: Vec<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Rom {
    /// Print the header, sections and calls of a ROM
    Inspect {
        /// The ROM
        file: PathBuf,
    },
}

#[derive(Clone, Debug, Args)]
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
    #[arg(
        long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=64)
    )]
    pub cpus: u32,

    /// Memory of the machine, in MiB or with a unit: 256M, 4G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = mebibytes)]
    pub memory: u32,

    /// Largest number of address-space processes [default: what this host allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1024))]
    pub spaces: Option<u32>,

    /// Allow debuggers to trace the machine's processes
    #[arg(long)]
    pub debuggable: bool,

    /// Add a disk: FILE; FILE:ro is read-only; FILE:snapshot discards writes at the end; :raw and
    /// :qcow2 say what the file is, in place of its name
    #[arg(long, value_name = "FILE[:ro|:snapshot][:raw|:qcow2]")]
    pub disk: Vec<String>,

    /// Share a folder, which the guest mounts by its tag
    #[arg(long, value_name = "DIR:TAG")]
    pub share: Vec<String>,

    /// Add a console (hvc1) and a socket device whose host side echoes: the console, and port 7. A
    /// connection to port 8 makes the host connect to the guest's port 1008 and echo there
    #[arg(long)]
    pub echo: bool,

    /// End the machine after S seconds
    #[arg(long, value_name = "S", default_value_t = 86_400)]
    pub timeout: u64,
}

#[derive(Debug, Args)]
pub struct Doctor {
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}
