// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process hypervisor: virtual machines made of ordinary, unprivileged host processes.
//!
//! The layer's program (`layers/process/`) runs as the zygote. The zygote's forks are the address
//! spaces in which guest code runs. This side never runs guest code: it creates the memory, starts
//! the processes and keeps time, and it trusts nothing in memory that a guest can write. Start
//! reading at [`vm::Vm`].

mod alarm;
mod backend;
#[expect(unsafe_code, reason = "generated structures as bytes")]
mod boot;
mod budget;
#[expect(unsafe_code, reason = "the cpuid instruction")]
mod clock;
mod clock_asked;
mod clock_news;
mod core;
#[expect(unsafe_code, reason = "timers of the host")]
mod cpu_timer;
pub mod debug;
mod device;
mod device_place;
mod doorbell;
mod host_clocks;
#[expect(unsafe_code, reason = "host calls")]
pub mod host_cpu;
mod integrity;
mod kernel;
mod kick;
mod kick_service;
mod layer;
mod layer_heuristics;
pub mod limits;
mod memory_accounts;
mod observer;
mod placement;
mod policy;
mod process_ids;
mod processes;
pub mod procfs;
mod program_file;
mod relocate;
#[expect(unsafe_code, reason = "maps memory that the guest can write")]
mod shared;
mod shared_setup;
pub mod signal_scope;
#[expect(unsafe_code, reason = "works between fork and exec")]
mod spawn;
#[expect(unsafe_code, reason = "waits for processes")]
mod supervisor;
#[expect(unsafe_code, reason = "host calls, the time-stamp counter")]
mod sys;
mod vcpu_counters;
mod vcpu_cpus;
#[expect(unsafe_code, reason = "an attribute of this process")]
mod vm;
mod wakeups;
mod watch;
#[expect(unsafe_code, reason = "signal masks and descriptors")]
mod watch_sleep;

use crate::ram::{MIN_SIZE, Ram};
#[cfg(feature = "test-hooks")]
use host_clocks::bent;
#[cfg(feature = "test-hooks")]
use std::sync::atomic::Ordering::Relaxed;

pub use crate::output::{End, Output};
pub use crate::ram::LargePages;
pub use backend::Process;
pub use layer_heuristics::{LayerHeuristic, LayerHeuristics};
pub use observer::Observer;
pub use vcpu_counters::Vcpu as VcpuFigures;
pub use vm::{Config, Heuristics, PROCESSES_END, Vm};

/// Whether the loader can apply relocations of this type (R_X86_64_*).
pub fn relocates(kind: u32) -> bool {
    relocate::known(kind)
}

/// Relocates a kernel as for a machine.
///
/// # Errors
/// Why this kernel cannot be loaded.
pub fn relocate(kernel: &[u8]) -> anyhow::Result<()> {
    kernel::Kernel::read(kernel, u64::MAX)?;
    Ok(())
}

/// Makes the clocks of all machines wrong that are started from now on.
#[cfg(feature = "test-hooks")]
pub fn disturb_clocks() {
    clock::DISTURB.store(true, Relaxed);
}

/// Makes the wall clocks of all machines jump ahead by `by` when the time `after` has passed, as if
/// the host's clock had been set.
#[cfg(feature = "test-hooks")]
pub fn step_wall_clocks(by: std::time::Duration, after: std::time::Duration) {
    bent::WALL_STEP.store(ns(by), Relaxed);
    bent::WALL_STEP_AT.store(sys::monotonic() + ns(after), Relaxed);
}

/// Makes the host's clock, as all machines see it, stand for this time when the time `after` has
/// passed, while the time-stamp counter goes on: as if the host had been suspended.
#[cfg(feature = "test-hooks")]
pub fn suspend_clocks(time: std::time::Duration, after: std::time::Duration) {
    bent::STAND_FOR.store(ns(time), Relaxed);
    bent::STAND_AT.store(sys::monotonic() + ns(after), Relaxed);
}

/// Makes the host's clock, as all machines see it, too fast by `ppm` millionths for the time
/// `turn`, and then too slow as long, and so on. The first turn begins when `CLOCK_MONOTONIC` is
/// `from`, in ns. Until then the clock is right, and each two turns later.
#[cfg(feature = "test-hooks")]
pub fn slew_clocks(ppm: u32, turn: std::time::Duration, from: u64) {
    bent::SLEW.store(ppm.into(), Relaxed);
    bent::SLEW_FROM.store(from, Relaxed);
    bent::SLEW_FOR.store(ns(turn).max(1), Relaxed);
}

#[cfg(feature = "test-hooks")]
fn ns(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The number of CPUs that this program may use.
pub fn allowed_cpus() -> usize {
    placement::allowed().len()
}

/// Host memory, in KiB, that one address space can take in a machine with `memory` bytes.
pub fn space_cost(memory: u64, vcpus: u64) -> u64 {
    budget::Budget::new(memory, vcpus).each(vcpus)
}

/// Which memory of a guest the host gives in large pages.
pub fn large_pages() -> LargePages {
    Ram::new(MIN_SIZE, true).map_or(LargePages::None, |ram| ram.large_pages())
}
