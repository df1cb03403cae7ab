// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the process hypervisor needs of the host's processor, and what it can use.

use anyhow::bail;

/// `AT_HWCAP2`: user programs may execute rdfsbase, wrfsbase, rdgsbase and wrgsbase.
const HWCAP2_FSGSBASE: u64 = 1 << 1;
/// `arch_prctl`.
const ARCH_SET_CPUID: i32 = 0x1012;

/// Whether user programs may change the FS and GS bases themselves.
pub fn fsgsbase() -> bool {
    // SAFETY: reads a value that the kernel gave this program at its start.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & HWCAP2_FSGSBASE != 0 }
}

/// Whether the host can make the cpuid instruction fault.
pub fn cpuid_faulting() -> bool {
    // SAFETY: sets the state that holds already: cpuid does not fault. The call fails where cpuid
    // cannot be made to fault.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_CPUID, 1) == 0 }
}

/// Checks whether guests can run on this host.
///
/// # Errors
/// Why they cannot.
pub fn check() -> anyhow::Result<()> {
    if !fsgsbase() {
        bail!(
            "this host does not let programs use FSGSBASE: the process hypervisor needs Linux 5.9 \
             or later, on a processor that has it (see paravane doctor)"
        );
    }
    Ok(())
}
