// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The shared area before a machine starts: what the layer reads of it when the zygote starts.

use super::boot;
use super::budget::Budget;
use super::device::Devices;
use super::host_cpu;
use super::kernel::Kernel;
use super::layer::Layer;
use super::limits;
use super::policy;
use super::ram::Ram;
use super::shared::{Shared, size};
use super::signal_scope::SignalScope;
use super::supervisor::Pool;
use super::vm::Config;
use anyhow::bail;
use paravane_abi::process as ph;
use std::mem::offset_of;
use std::sync::atomic::Ordering;

/// Fills the first page and the initial state of the vCPUs.
pub fn fill(
    shared: &Shared,
    config: &Config<'_>,
    pool: Pool,
    ram: &Ram,
    kernel: &Kernel,
    start: &boot::Start,
) -> anyhow::Result<()> {
    let word = |at: usize, value: u32| shared.word(at).store(value, Ordering::Relaxed);
    let long = |at: usize, value: u64| shared.long(at).store(value, Ordering::Relaxed);
    word(
        offset_of!(ph::PhvShared, magic),
        u32::try_from(ph::PHV_MAGIC)?,
    );
    word(offset_of!(ph::PhvShared, vcpu_count), config.vcpus);
    word(
        offset_of!(ph::PhvShared, region_count),
        u32::try_from(ram.regions().len())?,
    );
    word(
        offset_of!(ph::PhvShared, segment_count),
        u32::try_from(kernel.windows.len())?,
    );
    word(offset_of!(ph::PhvShared, proc_limit), pool.limit);
    word(offset_of!(ph::PhvShared, proc_wanted), pool.first);
    word(offset_of!(ph::PhvShared, max_maps), limits::mappings());
    word(
        offset_of!(ph::PhvShared, cpuid_faulting),
        u32::from(host_cpu::cpuid_faulting()),
    );
    long(offset_of!(ph::PhvShared, alarm_next_ns), u64::MAX);
    long(offset_of!(ph::PhvShared, boot_info), start.boot_info);
    long(offset_of!(ph::PhvShared, boot_stack), start.stack);
    long(offset_of!(ph::PhvShared, kernel_entry), kernel.entry);
    for (index, region) in ram.regions().iter().enumerate() {
        let at = offset_of!(ph::PhvShared, regions) + index * size_of::<ph::PhvRegion>();
        long(at + offset_of!(ph::PhvRegion, gpa), region.gpa);
        long(at + offset_of!(ph::PhvRegion, size), region.size);
    }
    for (index, window) in kernel.windows.iter().enumerate() {
        let at = offset_of!(ph::PhvShared, segments) + index * size_of::<ph::PhvSegment>();
        long(at + offset_of!(ph::PhvSegment, addr), window.addr);
        long(at + offset_of!(ph::PhvSegment, gpa), window.gpa);
        long(at + offset_of!(ph::PhvSegment, size), window.size);
    }
    for vcpu in 0..size(ph::PHV_MAX_VCPUS) {
        shared
            .vcpu_long(vcpu, offset_of!(ph::PhvVcpu, deadline_ns))
            .store(u64::MAX, Ordering::Relaxed);
        word(
            offset_of!(ph::PhvShared, vcpu_cpu) + vcpu * size_of::<u32>(),
            u32::MAX,
        );
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
        | flag(signal_scope == SignalScope::Monitor, ph::PHV_FLAG_ASK);
    shared
        .word(offset_of!(ph::PhvShared, flags))
        .store(u32::try_from(flags)?, Ordering::Relaxed);
    Ok(())
}

/// Tells the layer where the devices are.
pub fn fill_devices(shared: &Shared, devices: &Devices) -> anyhow::Result<()> {
    shared
        .long(offset_of!(ph::PhvShared, device_gpa))
        .store(devices.gpa(), Ordering::Relaxed);
    shared
        .word(offset_of!(ph::PhvShared, device_count))
        .store(u32::try_from(devices.count())?, Ordering::Relaxed);
    Ok(())
}

/// Tells the layer its limits.
pub fn fill_budget(shared: &Shared, budget: &Budget) -> anyhow::Result<()> {
    let word = |at: usize, value: u32| shared.word(at).store(value, Ordering::Relaxed);
    word(
        offset_of!(ph::PhvShared, pool_chunks),
        u32::try_from(budget.pool_chunks())?,
    );
    word(
        offset_of!(ph::PhvShared, maps_all),
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
        .word(offset_of!(ph::PhvShared, filter_length))
        .store(u32::try_from(filter.len())?, Ordering::Relaxed);
    Ok(())
}
