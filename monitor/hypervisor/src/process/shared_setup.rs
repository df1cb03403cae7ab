// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sets up the shared area before a machine starts: the fields that the layer reads when the zygote
//! starts.

use super::boot;
use super::budget::Budget;
use super::device::Devices;
use super::host_cpu;
use super::kernel::Kernel;
use super::layer::Layer;
use super::limits;
use super::policy;
use super::shared::Shared;
use super::signal_scope::SignalScope;
use super::supervisor::Pool;
use super::vm::Config;
use crate::ram::Ram;
use crate::size::size;
use anyhow::bail;
use paravane_abi::process as ph;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Fills the first page and the initial state of the vCPUs.
pub fn fill(
    shared: &Shared,
    config: &Config<'_>,
    pool: Pool,
    ram: &Ram,
    kernel: &Kernel,
    start: &boot::Start,
) -> anyhow::Result<()> {
    let header = shared.header();
    let word = |field: &AtomicU32, value: u32| field.store(value, Ordering::Relaxed);
    let long = |field: &AtomicU64, value: u64| field.store(value, Ordering::Relaxed);
    word(&header.magic, u32::try_from(ph::PHV_MAGIC)?);
    word(&header.vcpu_count, config.vcpus);
    word(&header.region_count, u32::try_from(ram.regions().len())?);
    word(&header.segment_count, u32::try_from(kernel.windows.len())?);
    word(&header.proc_limit, pool.limit);
    word(&header.proc_wanted, pool.first);
    word(&header.max_maps, limits::mappings());
    word(
        &header.cpuid_faulting,
        u32::from(host_cpu::cpuid_faulting()),
    );
    long(&header.alarm_next_ns, u64::MAX);
    long(&header.boot_info, start.boot_info);
    long(&header.boot_stack, start.stack);
    long(&header.kernel_entry, kernel.entry);
    long(&header.direct_map, kernel.direct_map(ram.size()));
    for (entry, region) in header.regions.iter().zip(ram.regions()) {
        long(&entry.gpa, region.gpa);
        long(&entry.size, region.size);
    }
    for (entry, window) in header.segments.iter().zip(&kernel.windows) {
        long(&entry.addr, window.addr);
        long(&entry.gpa, window.gpa);
        long(&entry.size, window.size);
    }
    for vcpu in 0..size(ph::PHV_MAX_VCPUS) {
        shared
            .vcpu(vcpu)
            .deadline_ns
            .store(u64::MAX, Ordering::Relaxed);
        word(&header.vcpu_cpu[vcpu], u32::MAX);
    }
    Ok(())
}

/// Sets the flags that all processes read.
pub fn fill_flags(
    shared: &Shared,
    config: &Config<'_>,
    signal_scope: SignalScope,
) -> anyhow::Result<()> {
    let flag = |set: bool, bit: u64| if set { bit } else { 0 };
    let flags = flag(config.debuggable, ph::PHV_FLAG_DEBUGGABLE)
        | flag(signal_scope == SignalScope::Monitor, ph::PHV_FLAG_ASK)
        | config.heuristics.layer.flags();
    shared
        .header()
        .flags
        .store(u32::try_from(flags)?, Ordering::Relaxed);
    Ok(())
}

/// Gives the layer the places of the devices.
pub fn fill_devices(shared: &Shared, devices: &Devices) -> anyhow::Result<()> {
    shared
        .header()
        .device_gpa
        .store(devices.gpa(), Ordering::Relaxed);
    shared
        .header()
        .device_count
        .store(u32::try_from(devices.count())?, Ordering::Relaxed);
    shared
        .header()
        .bridges
        .store(devices.bridges(), Ordering::Relaxed);
    Ok(())
}

/// Gives the layer its limits.
pub fn fill_budget(shared: &Shared, budget: &Budget) -> anyhow::Result<()> {
    let header = shared.header();
    let word = |field: &AtomicU32, value: u32| field.store(value, Ordering::Relaxed);
    word(&header.pool_chunks, u32::try_from(budget.pool_chunks())?);
    word(
        &header.maps_all,
        u32::try_from(budget.mappings()).unwrap_or(u32::MAX),
    );
    Ok(())
}

/// Writes the seccomp filter where the zygote finds it. Guest code runs only after the zygote, the
/// parent of all processes, has its copy.
pub fn install_filter(
    shared: &Shared,
    layer: &Layer<'_>,
    ram: &Ram,
    devices: &Devices,
    signal_scope: SignalScope,
) -> anyhow::Result<()> {
    let files = ram.regions().len() + usize::from(devices.area().is_some());
    let parameters = policy::Parameters {
        host_call: layer.host_call,
        ram_first: ph::PHV_FD_RAM,
        ram_last: ph::PHV_FD_RAM + files as u64 - 1,
        signal_scope,
    };
    let filter = policy::compile(policy::ADDRESS_SPACE, &parameters)?;
    if filter.len() > size(ph::PHV_FILTER_MAX) {
        bail!(
            "the seccomp filter has {} instructions, {} fit",
            filter.len(),
            ph::PHV_FILTER_MAX
        );
    }
    let bytes: Vec<u8> = filter
        .iter()
        .flat_map(|i| {
            let [c0, c1] = i.code.to_le_bytes();
            let [k0, k1, k2, k3] = i.k.to_le_bytes();
            [c0, c1, i.jt, i.jf, k0, k1, k2, k3]
        })
        .collect();
    shared.write(size(ph::PHV_SHARED_FILTER), &bytes);
    shared
        .header()
        .filter_length
        .store(u32::try_from(filter.len())?, Ordering::Relaxed);
    Ok(())
}
