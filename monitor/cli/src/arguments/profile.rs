// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arguments of `paravane profile`.

use clap::{Args, ValueEnum};
use paravane_profile::{FREQUENCIES, Source};

#[derive(Debug, Args)]
pub struct Profile {
    /// The machine's name
    pub name: String,

    /// Watch the machine for N seconds
    #[arg(
        long, short, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(1..=600)
    )]
    pub seconds: u64,

    /// Take HZ samples in each second of CPU time. Samples at a multiple of a kernel's tick rate,
    /// such as 1000, always see the same periodic work
    #[arg(
        long, short, value_name = "HZ", default_value_t = 997,
        value_parser = clap::value_parser!(u32).range(
            i64::from(*FREQUENCIES.start())..=i64::from(*FREQUENCIES.end())
        )
    )]
    pub frequency: u32,

    /// Print at most N functions in each list
    #[arg(
        long, value_name = "N", default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(1..=10_000)
    )]
    pub top: u32,

    /// Where the figures come from
    #[arg(long, value_enum, default_value_t = ProfileSource::Auto)]
    pub source: ProfileSource,

    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProfileSource {
    /// perf where the host allows it, else counters
    Auto,
    /// Samples by perf
    Perf,
    /// The host's accounting of each thread, and the layer's counters
    Counters,
}

impl From<ProfileSource> for Source {
    fn from(source: ProfileSource) -> Self {
        match source {
            ProfileSource::Auto => Source::Auto,
            ProfileSource::Perf => Source::Perf,
            ProfileSource::Counters => Source::Counters,
        }
    }
}
