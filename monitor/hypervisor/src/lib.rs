// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Back ends that run a guest: one trait, and a module for each implementation.
//!
//! A command describes a machine, starts it, and reads events until the guest has ended. Everything
//! from a guest is hostile: lines are truncated and cleaned, and no wait exceeds the deadline.

#![deny(unsafe_code)]

mod boot_data;
mod boot_image;
mod conversation;
pub mod debug;
mod device_list;
mod device_work;
mod end_state;
mod executable;
#[expect(unsafe_code, reason = "forks")]
mod fork;
#[expect(unsafe_code, reason = "maps a file")]
mod kernel_file;
#[expect(unsafe_code, reason = "gives memory to a virtual machine")]
pub mod kvm;
#[expect(unsafe_code, reason = "a descriptor that a child fills")]
mod large_files;
mod layer;
mod output;
mod output_queue;
pub mod process;
pub mod qemu;
#[expect(unsafe_code, reason = "maps guest memory")]
mod ram;
mod size;
#[expect(unsafe_code, reason = "host calls")]
mod thread_signal;
mod threads;

pub use boot_image::{BootImage, BootImageError};
pub use device_list::DeviceFigures;
pub use executable::{Executable, ExecutableError};
pub use kernel_file::{Bytes, Format, KernelFile};
pub use layer::Layer;
pub use output::{End, Output};

use paravane_user_io::signals::Signals;
use paravane_user_io::worker::Limit;
use std::sync::Arc;
use std::time::Instant;

/// The machine on which a guest runs.
#[derive(Clone, Debug)]
pub struct Machine<'a> {
    /// The guest kernel.
    pub guest: &'a Arc<KernelFile>,
    /// The layer's ROM; `None` for bare metal without a layer.
    pub layer: Option<&'a [u8]>,
    /// The kernel's command line.
    pub command_line: String,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Guest memory in MiB.
    pub memory_mib: u32,
    /// Guest time advances with executed instructions, so that they can be counted. One vCPU only.
    pub count_instructions: bool,
    /// Makes devices besides that of entropy, where the back end can have any.
    pub devices: fn() -> anyhow::Result<Vec<paravane_devices::Model>>,
}

/// What happens to a running guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A line of its console, without control characters.
    Line(String),
    /// The guest has ended.
    Ended(Verdict),
    /// The guest had not ended at the deadline.
    TimedOut,
    /// This signal asked the monitor to end.
    Interrupted(u8),
}

/// How a conformance guest ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It reported that everything passed.
    Passed,
    /// It reported a failure.
    Failed,
    /// It ended in another way.
    Crashed(String),
}

/// A back end.
pub trait Hypervisor {
    /// The back end's name, for people.
    fn describe(&self) -> String;

    /// Starts the guest, if the host can do that within the limit.
    ///
    /// # Errors
    /// The limit has passed, the host lacks something (a program is not installed), or the input is
    /// invalid.
    fn start(&self, machine: &Machine<'_>, limit: &Limit<'_>) -> anyhow::Result<Box<dyn Running>>;
}

/// A running guest. Dropping it ends the guest and removes what it needed.
pub trait Running {
    /// Waits for the next event, until `deadline`, or until `signals` has recorded a signal.
    fn next(&mut self, deadline: Instant, signals: &Signals) -> Event;

    /// What the machine has counted so far, if this back end counts.
    fn counters(&self) -> Option<Counters> {
        None
    }
}

/// What a machine has needed of its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Host calls of the layer; 0 if the layer does not count them.
    pub host_calls: u64,
    /// Signals that the layer got.
    pub signals: u64,
}
