// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /dev/kvm, and whether it is useful: some hosts have one that only emulates.

use super::child::in_child;
use super::{Finding, Status};
use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::{Kvm, VcpuExit};
use std::path::Path;
use std::time::{Duration, Instant};
use vm_memory::MmapRegion;

const DEVICE: &str = "/dev/kvm";
/// Instructions per second. A slower processor is emulated.
const EMULATED: u64 = 100_000_000;
/// The shortest duration of the measurement.
const MEASURE: Duration = Duration::from_millis(200);
/// Timeout of the whole measurement. One round of the loop takes that long only if nothing works.
const TIMEOUT: Duration = Duration::from_secs(10);
const CODE: u64 = 0x1000;
const PAGE: usize = 4096;
/// Rounds of the loop between two exits. A round has two instructions.
const ROUNDS: u64 = 50_000;

pub fn finding() -> Finding {
    if !Path::new(DEVICE).exists() {
        return Finding::new(
            "kvm",
            Status::Ok,
            0,
            "there is no /dev/kvm: the process hypervisor does not need one",
        );
    }
    match in_child(TIMEOUT, measure) {
        None => Finding::new(
            "kvm",
            Status::Ok,
            0,
            "/dev/kvm is there, but cannot be used by this user, or does not work",
        ),
        Some(rate) => {
            let millions = rate / 1_000_000;
            let text = if rate < EMULATED {
                format!(
                    "/dev/kvm runs {millions} million instructions per second: emulated only; \
                     the process hypervisor runs guests at the processor's speed"
                )
            } else {
                format!(
                    "/dev/kvm runs {millions} million instructions per second: hardware \
                     virtualization"
                )
            };
            Finding::new("kvm", Status::Ok, rate, text)
        }
    }
}

/// Instructions per second of a loop in real mode.
fn measure() -> Option<u64> {
    // dec %ecx; jnz back to it; hlt
    const LOOP: [u8; 5] = [0x66, 0x49, 0x75, 0xfc, 0xf4];
    let machine = Kvm::new().ok()?.create_vm().ok()?;
    let page: MmapRegion = MmapRegion::new(PAGE).ok()?;
    for (at, byte) in LOOP.into_iter().enumerate() {
        // SAFETY: inside of the page, to which no other reference exists.
        unsafe { page.as_ptr().add(at).write_volatile(byte) };
    }
    let region = kvm_userspace_memory_region {
        slot: 0,
        guest_phys_addr: CODE,
        memory_size: PAGE as u64,
        userspace_addr: page.as_ptr().addr() as u64,
        flags: 0,
    };
    // SAFETY: the page is dropped after the virtual machine, so it stays mapped while the machine
    // uses it.
    unsafe { machine.set_user_memory_region(region).ok()? };
    let mut vcpu = machine.create_vcpu(0).ok()?;
    let mut segments = vcpu.get_sregs().ok()?;
    segments.cs.base = 0;
    segments.cs.selector = 0;
    vcpu.set_sregs(&segments).ok()?;
    let mut registers = vcpu.get_regs().ok()?;
    let start = Instant::now();
    let mut instructions = 0u64;
    loop {
        registers.rip = CODE;
        registers.rcx = ROUNDS;
        registers.rflags = 2;
        vcpu.set_regs(&registers).ok()?;
        if !matches!(vcpu.run().ok()?, VcpuExit::Hlt) {
            return None;
        }
        instructions += 2 * ROUNDS + 1;
        let time = start.elapsed();
        if time >= MEASURE {
            return u64::try_from(u128::from(instructions) * 1_000_000_000 / time.as_nanos()).ok();
        }
    }
}
