// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands: one module each.

mod bench;
mod conformance;
mod report;
mod rom;

use crate::cli::{Command, HypervisorKind};
use crate::hypervisor::Hypervisor;
use crate::hypervisor::qemu::Qemu;

/// How a command that could be run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Failed,
    /// By this signal.
    Interrupted(u8),
}

impl Outcome {
    /// The exit code.
    pub fn code(self) -> u8 {
        match self {
            Outcome::Passed => 0,
            Outcome::Failed => 1,
            Outcome::Interrupted(signal) => 128 + (signal & 0x7f),
        }
    }
}

/// Runs a command. An error means that it could not be run.
pub fn run(command: &Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Conformance(args) => conformance::run(args),
        Command::Rom(crate::cli::Rom::Inspect { file }) => rom::inspect(file),
        Command::Bench(crate::cli::Bench::Native(args)) => bench::native(args),
    }
}

fn hypervisor(kind: HypervisorKind) -> anyhow::Result<Box<dyn Hypervisor>> {
    match kind {
        HypervisorKind::Qemu => Ok(Box::new(Qemu::find()?)),
    }
}
