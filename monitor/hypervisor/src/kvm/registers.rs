// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The registers with which vCPU 0 starts. The others wait for a STARTUP interrupt.

use super::layout::{GDT, PAGE_TABLES, START_INFO, ZERO_PAGE};
use super::load::Entry;
use kvm_bindings::{Msrs, kvm_msr_entry, kvm_regs, kvm_segment, kvm_sregs, kvm_xcrs};
use kvm_ioctls::VcpuFd;

/// Descriptors: 64-bit code at 0x10 and data at 0x18, where Linux expects them.
const CODE64: u64 = 0x00af_9b00_0000_ffff;
const DATA: u64 = 0x00cf_9300_0000_ffff;
const CODE_SELECTOR: u16 = 0x10;
const DATA_SELECTOR: u16 = 0x18;
/// Bits of CR0, CR4 and EFER.
const PROTECTED: u64 = 1;
const EXTENSION_TYPE: u64 = 1 << 4;
const PAGING: u64 = 1 << 31;
const PAE: u64 = 1 << 5;
const LONG_MODE: u64 = 1 << 8 | 1 << 10;
/// IA32_MISC_ENABLE, and its bit for fast instructions for strings.
const MISC_ENABLE: u32 = 0x1a0;
const FAST_STRINGS: u64 = 1;
/// The bit of RFLAGS that is always set. Interrupts are off.
const FLAGS: u64 = 2;
/// Types of segments.
const CODE: u8 = 0xb;
const DATA_TYPE: u8 = 0x3;
const TASK: u8 = 0xb;

/// The descriptor table of a 64-bit start, for [`GDT`].
pub fn descriptors() -> Vec<u8> {
    [0, 0, CODE64, DATA]
        .iter()
        .flat_map(|entry| entry.to_le_bytes())
        .collect()
}

/// Lets the processor copy memory fast by instructions for strings. As firmware does on Intel's
/// processors: a kernel that finds the bit clear uses no such instructions.
///
/// # Errors
/// KVM has no such register.
pub fn enable_fast_strings(vcpu: &VcpuFd) -> Result<(), kvm_ioctls::Error> {
    let missing = || kvm_ioctls::Error::new(libc::EINVAL);
    let mut one = Msrs::from_entries(&[kvm_msr_entry {
        index: MISC_ENABLE,
        ..Default::default()
    }])
    .map_err(|_| missing())?;
    if vcpu.get_msrs(&mut one)? != 1 {
        return Err(missing());
    }
    for entry in one.as_mut_slice() {
        entry.data |= FAST_STRINGS;
    }
    match vcpu.set_msrs(&one)? {
        1 => Ok(()),
        _ => Err(missing()),
    }
}

/// Changes the registers of a reset to those of a start.
pub fn start(entry: Entry, special: &mut kvm_sregs) -> kvm_regs {
    let flat = |selector, type_, long: bool| kvm_segment {
        base: 0,
        limit: 0xffff_ffff,
        selector,
        type_,
        present: 1,
        s: 1,
        db: u8::from(!long),
        l: u8::from(long),
        g: 1,
        ..Default::default()
    };
    let long = matches!(entry, Entry::Linux(_));
    special.cs = flat(CODE_SELECTOR, CODE, long);
    let data = flat(DATA_SELECTOR, DATA_TYPE, false);
    (special.ds, special.es, special.ss) = (data, data, data);
    (special.fs, special.gs) = (data, data);
    special.tr = kvm_segment {
        limit: 0x67,
        type_: TASK,
        present: 1,
        ..Default::default()
    };
    special.cr0 = PROTECTED | EXTENSION_TYPE;
    let mut general = kvm_regs {
        rflags: FLAGS,
        ..Default::default()
    };
    match entry {
        Entry::Pvh(at) => {
            general.rip = at.into();
            general.rbx = START_INFO;
        }
        Entry::Linux(at) => {
            special.gdt.base = GDT;
            special.gdt.limit = 31;
            special.cr0 |= PAGING;
            special.cr3 = PAGE_TABLES;
            special.cr4 = PAE;
            special.efer = LONG_MODE;
            general.rip = at;
            general.rsi = ZERO_PAGE;
        }
    }
    general
}

/// XCR0 with these bits.
pub fn extended_control(enabled: u64) -> kvm_xcrs {
    let mut registers = kvm_xcrs {
        nr_xcrs: 1,
        ..Default::default()
    };
    registers.xcrs[0].value = enabled;
    registers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_protocol_has_its_mode() {
        let mut special = kvm_sregs::default();
        let general = start(Entry::Pvh(0x20_0000), &mut special);
        assert_eq!((general.rip, general.rbx), (0x20_0000, START_INFO));
        assert_eq!(
            (special.cr0 & PAGING, special.cs.l, special.cs.db),
            (0, 0, 1)
        );
        let general = start(Entry::Linux(0x100_0000), &mut special);
        assert_eq!((general.rip, general.rsi), (0x100_0000, ZERO_PAGE));
        assert_eq!(
            (special.cr3, special.cs.l, special.cs.db),
            (PAGE_TABLES, 1, 0)
        );
        let code = descriptors();
        assert_eq!(code[16..24], CODE64.to_le_bytes());
    }
}
