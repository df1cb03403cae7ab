// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arguments of `bench vbus`.

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct BenchVbus {
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,

    /// Few and short rounds, to see that it works
    #[arg(long)]
    pub quick: bool,

    /// How often each path is measured
    #[arg(
        long, value_name = "N", default_value_t = 9,
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    pub rounds: u32,
}

#[derive(Debug, Args)]
pub struct BenchVbusPeer {
    /// Bytes of a packet
    pub size: usize,

    /// Socket of vbusd; without it, standard input and output
    #[arg(long)]
    pub socket: Option<PathBuf>,
}
