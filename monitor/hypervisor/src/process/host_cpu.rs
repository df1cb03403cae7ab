// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What this hypervisor cannot do without, and what it can use.

use anyhow::bail;

/// `AT_HWCAP2`: user programs may use rdfsbase and its kin.
const HWCAP2_FSGSBASE: u64 = 1 << 1;
/// `arch_prctl`.
const ARCH_SET_CPUID: i32 = 0x1012;

/// Whether user programs may change the FS and GS bases without the kernel.
pub fn fsgsbase() -> bool {
    // SAFETY: reads a value that the kernel gave this program at its start.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & HWCAP2_FSGSBASE != 0 }
}

/// Whether the host can make the cpuid instruction fault.
pub fn cpuid_faulting() -> bool {
    // SAFETY: asks for what is so already, that cpuid does not fault. Fails where it cannot be made to.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_CPUID, 1) == 0 }
}

/// Fails with a reason if guests cannot run here.
pub fn check() -> anyhow::Result<()> {
    if !fsgsbase() {
        bail!(
            "this host does not let programs use FSGSBASE: the process hypervisor needs Linux 5.9 or later, on a \
             processor that has it (see paravane doctor)"
        );
    }
    Ok(())
}
