// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arguments of `bench block`.

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct BenchBlock {
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,

    /// Draw the ratios to the host into FILE, as SVG
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

    /// Also measure a disk of vbusd, by each of its engines
    #[arg(long)]
    pub engines: bool,

    /// Also measure the host past its page cache (O_DIRECT), on a file of its own
    #[arg(long)]
    pub direct: bool,

    /// Where the file is made, of 256 MiB [default: the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,

    /// Virtual CPUs of each machine
    #[arg(
        long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=64)
    )]
    pub cpus: u32,

    /// Kernel: ELF file with its relocations [default: what `paravane kernel build` makes]
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,

    /// Use this folder, which has fio, as the root of all sides, in place of a Debian that is made
    /// for it
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,

    /// Give up on one workload, and on the start of a machine, after S seconds
    #[arg(
        long, value_name = "S", default_value_t = 240,
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    pub timeout: u64,
}
