// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Virtual machines by the host kernel's KVM.
//!
//! To the guest the machine is a small PC: local APICs (in the host's kernel), one I/O APIC whose
//! entries become checked MSI routes, a serial line, a clock chip, and ACPI tables that list the
//! devices: virtio's, and bridges to a virtual bus. There is no 8259, no timer chip that
//! interrupts, and no PCI. A layer is an option ROM. `docs/kvm.md` describes the machine. Start at
//! [`vm::Vm`].

mod acpi;
mod backend;
mod boot;
mod bus;
mod clock_chip;
mod core;
mod counter;
mod cpuid;
mod debug;
mod device;
#[cfg(test)]
mod doorbell_tests;
#[cfg(test)]
mod guest_tests;
mod host;
mod ioapic;
mod kicks;
#[cfg(test)]
mod kicks_tests;
mod layout;
mod load;
mod ports;
mod registers;
pub mod speed;
mod stops;
mod vcpu;
mod vm;

pub use backend::KvmHost;
#[cfg(feature = "test-hooks")]
pub use cpuid::hide_features;
pub use debug::Debug;
pub use host::MAX_VCPUS;
pub use vm::{Config, Observer, Vm};

/// Checks whether the host's KVM can be used, however slow it is. That needs a virtual machine:
/// the device can be opened although there can be none.
///
/// # Errors
/// Why not, in one line.
pub fn check() -> anyhow::Result<()> {
    host::create(&host::open()?).map(drop)
}

/// Checks whether the host's KVM has room for a machine with these vCPUs and this memory.
///
/// # Errors
/// Why not, in one line.
pub fn check_size(vcpus: u32, memory: u64) -> anyhow::Result<()> {
    let kvm = host::open()?;
    host::check_vcpus(vcpus, kvm.get_max_vcpus())?;
    host::check_memory(memory, &kvm)
}
