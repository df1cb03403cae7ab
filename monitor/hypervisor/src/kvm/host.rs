// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's /dev/kvm: whether it can be used, and why not.

use super::layout::GAP;
use anyhow::{Context, bail};
use kvm_bindings::KVM_MAX_CPUID_ENTRIES;
use kvm_ioctls::{Cap, Kvm, VmFd};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The device.
pub const DEVICE: &str = "/dev/kvm";
/// The version of its interface, which has not changed since 2007.
const API: i32 = 12;
/// vCPUs of a machine: as many as the ACPI tables and the conformance guest count.
pub const MAX_VCPUS: u32 = 64;
/// What to do without it.
const INSTEAD: &str = "use --hypervisor process";
/// The number of signals in a row that may interrupt the creation of a virtual machine.
const INTERRUPTIONS: u32 = 16;

/// Which clock the host's kernel uses, and those of its clocks that are the time-stamp counter.
const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
const COUNTERS: [&str; 2] = ["tsc", "hyperv_clocksource_tsc_page"];

/// The leaf of cpuid with the bits of guest-physical addresses, and how many there are without it.
const SIZES: u32 = 0x8000_0008;
const LEAST_BITS: u32 = 36;

/// What a machine needs of KVM, and what for.
const NEEDED: [(Cap, &str); 9] = [
    (Cap::UserMemory, "guest memory"),
    (Cap::ReadonlyMem, "register pages"),
    (Cap::ExtCpuid, "the processor's features"),
    (Cap::SplitIrqchip, "local APICs without an I/O APIC"),
    (Cap::IrqRouting, "interrupt routes"),
    (Cap::Irqfd, "interrupts of devices"),
    (Cap::Ioeventfd, "notifications of devices"),
    (
        Cap::SignalMsi,
        "non-maskable interrupts and those of a guest's choice",
    ),
    (Cap::TscDeadlineTimer, "timers"),
];

/// Opens the device and checks what a machine needs.
///
/// # Errors
/// What is missing, and what to do, in one line.
pub fn open() -> anyhow::Result<Kvm> {
    open_at(Path::new(DEVICE))
}

fn open_at(path: &Path) -> anyhow::Result<Kvm> {
    let name = CString::new(path.as_os_str().as_bytes()).context("a path with a zero byte")?;
    let kvm = match Kvm::new_with_path(name) {
        Ok(kvm) => kvm,
        Err(error) => bail!("{}", refusal(path, error.errno())),
    };
    let version = kvm.get_api_version();
    if version < 0 {
        bail!("{} is not a KVM: {INSTEAD}", path.display());
    }
    if version != API {
        bail!(
            "{} has version {version} of its interface, {API} is needed: {INSTEAD}",
            path.display()
        );
    }
    check(|cap| kvm.check_extension(cap))?;
    Ok(kvm)
}

/// Makes a virtual machine. That fails although the device can be opened if another hypervisor uses
/// the processor's virtualization.
///
/// # Errors
/// Why not, and what to do, in one line.
pub fn create(kvm: &Kvm) -> anyhow::Result<VmFd> {
    let refused = |error: kvm_ioctls::Error| anyhow::anyhow!(not_created(error.errno()));
    // A signal interrupts it, and it is tried again: a refusal would be taken for the host's.
    for _ in 0..INTERRUPTIONS {
        match kvm.create_vm() {
            Err(error) if error.errno() == libc::EINTR => {}
            made => return made.map_err(refused),
        }
    }
    kvm.create_vm().map_err(refused)
}

fn not_created(errno: i32) -> String {
    let error = std::io::Error::from_raw_os_error(errno);
    let why = match errno {
        libc::EBUSY => " (does another hypervisor run, such as VirtualBox?)",
        _ => "",
    };
    format!("the host's KVM makes no virtual machine: {error}{why}: {INSTEAD}")
}

/// Whether the host's kernel relies on the time-stamp counter. Where it does not say what it uses,
/// it is taken to. This opens a file.
pub fn relies_on_counter() -> bool {
    std::fs::read_to_string(CLOCK).map_or(true, |name| is_counter(&name))
}

fn is_counter(name: &str) -> bool {
    COUNTERS.contains(&name.trim())
}

fn refusal(path: &Path, errno: i32) -> String {
    let path = path.display();
    match errno {
        libc::ENOENT | libc::ENODEV | libc::ENXIO => {
            format!("there is no {path} (is the host's module kvm loaded?): {INSTEAD}")
        }
        libc::EACCES | libc::EPERM => format!(
            "this user may not open {path} (the group that owns it may, often `kvm`): {INSTEAD}"
        ),
        other => format!(
            "cannot open {path}: {}: {INSTEAD}",
            std::io::Error::from_raw_os_error(other)
        ),
    }
}

fn check(has: impl Fn(Cap) -> bool) -> anyhow::Result<()> {
    match NEEDED.iter().find(|(cap, _)| !has(*cap)) {
        None => Ok(()),
        Some((cap, what)) => bail!(
            "the host's KVM lacks {cap:?}, which {what} need: use a newer host kernel, or \
             --hypervisor process"
        ),
    }
}

/// Whether interrupts can wait while a debugger steps (KVM_CAP_SET_GUEST_DEBUG2, Linux 5.15).
pub fn steps_without_interrupts(kvm: &Kvm) -> bool {
    const GUEST_DEBUG: std::ffi::c_ulong = 195;
    const BLOCK_INTERRUPTS: i32 = 0x10_0000;
    kvm.check_extension_raw(GUEST_DEBUG) & BLOCK_INTERRUPTS != 0
}

/// Checks a number of vCPUs.
///
/// # Errors
/// It is not possible.
pub fn check_vcpus(wanted: u32, most: usize) -> anyhow::Result<()> {
    let most = u32::try_from(most).map_or(MAX_VCPUS, |most| most.min(MAX_VCPUS));
    if wanted == 0 || wanted > most {
        bail!("--cpus {wanted}: 1 to {most} virtual CPUs are possible with this host's KVM");
    }
    Ok(())
}

/// Checks a size of memory: the guest's processor must be able to address it.
///
/// # Errors
/// It is not possible.
pub fn check_memory(wanted: u64, kvm: &Kvm) -> anyhow::Result<()> {
    let features = kvm
        .get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
        .context("the host's KVM does not tell the processor's features")?;
    let sizes = features.as_slice().iter().find(|e| e.function == SIZES);
    check_addresses(wanted, sizes.map_or(LEAST_BITS, |e| e.eax & 0xff))
}

fn check_addresses(wanted: u64, bits: u32) -> anyhow::Result<()> {
    let most = 1u64
        .checked_shl(bits)
        .map_or(u64::MAX, |end| end - (GAP.end - GAP.start));
    if wanted > most {
        bail!(
            "--memory: {} MiB, but this host's processor addresses at most {} MiB with KVM",
            wanted >> 20,
            most >> 20
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_device_is_told() {
        let error = open_at(Path::new("/dev/kvm-not-there")).err().unwrap();
        let line = format!("{error:#}");
        assert!(line.starts_with("there is no /dev/kvm-not-there"), "{line}");
        assert!(line.ends_with("use --hypervisor process"), "{line}");
    }

    #[test]
    fn no_permission_is_told() {
        let line = refusal(Path::new(DEVICE), libc::EACCES);
        assert!(
            line.starts_with("this user may not open /dev/kvm"),
            "{line}"
        );
        let line = refusal(Path::new(DEVICE), libc::EBUSY);
        assert!(line.starts_with("cannot open /dev/kvm: "), "{line}");
    }

    /// A file that is no KVM device.
    #[test]
    fn another_device_is_refused() {
        let error = open_at(Path::new("/dev/null")).err().unwrap();
        assert!(
            format!("{error:#}").contains("/dev/null is not a KVM"),
            "{error:#}"
        );
    }

    #[test]
    fn a_machine_that_is_not_made_is_told() {
        let line = not_created(libc::EBUSY);
        assert!(line.contains("VirtualBox"), "{line}");
        assert!(line.ends_with(": use --hypervisor process"), "{line}");
        assert!(!not_created(libc::ENOMEM).contains("VirtualBox"));
    }

    #[test]
    fn a_host_with_another_clock_does_not_rely_on_the_counter() {
        assert!(is_counter("tsc\n"));
        assert!(!is_counter("hpet\n") && !is_counter("kvm-clock\n"));
    }

    #[test]
    fn each_missing_capability_is_told() {
        assert!(check(|_| true).is_ok());
        for (missing, what) in NEEDED {
            let error = check(|cap| cap as u32 != missing as u32).err().unwrap();
            let line = format!("{error:#}");
            assert!(line.contains(&format!("{missing:?}")), "{line}");
            assert!(line.contains(what), "{line}");
        }
    }

    #[test]
    fn memory_is_what_the_processor_addresses() {
        for (mebibytes, bits, good) in [
            (5 << 10, 36, true),
            (63 << 10, 36, true),
            (64 << 10, 36, false),
            (64 << 10, 40, true),
        ] {
            let result = check_addresses(mebibytes << 20, bits);
            assert_eq!(result.is_ok(), good, "{mebibytes} MiB, {bits} bits");
        }
        let line = format!("{:#}", check_addresses(64 << 30, 36).err().unwrap());
        assert!(line.contains("at most 64512 MiB"), "{line}");
    }

    #[test]
    fn vcpus_are_counted() {
        for (wanted, most, good) in [(1, 1, true), (64, 1024, true), (2, 1, false)] {
            assert_eq!(
                check_vcpus(wanted, most).is_ok(),
                good,
                "{wanted} of {most}"
            );
        }
        assert!(check_vcpus(0, 8).is_err());
        let line = format!("{:#}", check_vcpus(65, 1024).err().unwrap());
        assert!(line.contains("1 to 64"), "{line}");
    }
}
