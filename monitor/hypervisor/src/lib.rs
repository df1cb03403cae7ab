// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What runs a guest: one trait, one module for each back end.
//!
//! A command says what machine it wants, then reads events until the guest has ended. Everything that comes from a
//! guest is hostile: lines are cut to a length and cleaned, and nobody waits longer than the deadline.

mod executable;
mod kernel_file;
mod layer;
pub mod process;
pub mod qemu;

pub use executable::{Executable, ExecutableError};
pub use kernel_file::{Bytes, KernelFile};
pub use layer::Layer;

use paravane_user_io::signals::Signals;
use paravane_user_io::worker::Limit;
use std::sync::Arc;
use std::time::Instant;

/// The machine that a guest is to run on.
#[derive(Clone, Debug)]
pub struct Machine<'a> {
    /// The guest kernel.
    pub guest: &'a Arc<KernelFile>,
    /// The layer's image, an option ROM; none for bare metal without a layer.
    pub layer: Option<&'a [u8]>,
    /// The guest's command line.
    pub command_line: String,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Guest memory in MiB.
    pub memory_mib: u32,
    /// Time goes by instructions: for counting them, one vCPU only.
    pub count_instructions: bool,
}

/// What happens to a running guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A line of its console, cleaned.
    Line(String),
    /// It has ended.
    Ended(Verdict),
    /// It had not ended at the deadline.
    TimedOut,
    /// The monitor was asked to end, with this signal.
    Interrupted(u8),
}

/// How a conformance guest ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It said that everything passed.
    Passed,
    /// It said that something failed.
    Failed,
    /// It ended in another way: this one.
    Crashed(String),
}

/// A back end.
pub trait Hypervisor {
    /// For people: what it is.
    fn describe(&self) -> String;

    /// Starts the guest, if the host can do that within the limit. Other errors are about this
    /// machine (something is not installed) or the input.
    fn start(&self, machine: &Machine<'_>, limit: &Limit<'_>) -> anyhow::Result<Box<dyn Running>>;
}

/// A guest that runs. It is ended and cleaned up after when this is dropped.
pub trait Running {
    /// Waits for the next thing to happen, until `deadline`, or until `signals` has one.
    fn next(&mut self, deadline: Instant, signals: &Signals) -> Event;

    /// What was counted so far, if this back end counts.
    fn counters(&self) -> Option<Counters> {
        None
    }
}

/// What a machine has needed of its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// System calls of the layer; 0 if it does not count them.
    pub host_calls: u64,
    /// Signals that it got.
    pub signals: u64,
}
