// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guest-physical addresses and interrupt pins of the machine.

use crate::ram::MIN_SIZE;
use paravane_devices::mmio::PAGE;
use std::ops::Range;

/// RAM has a gap here, for registers. RAM that does not fit below it follows it.
pub const GAP: Range<u64> = 0xc000_0000..0x1_0000_0000;
/// The register page of the first device. The others follow.
pub const DEVICES: u64 = 0xd000_0000;
/// The I/O APIC.
pub const IOAPIC: u64 = 0xfec0_0000;
/// Bytes of its registers.
pub const IOAPIC_SIZE: u64 = 0x1000;
/// Each vCPU's local APIC, which the host's kernel provides.
pub const APIC: u32 = 0xfee0_0000;
/// Three pages that KVM needs on some processors, in no other use.
pub const TSS: u64 = 0xfffb_d000;

/// Low memory that a boot loader leaves to the kernel ends here, as on a PC.
pub const LOW_END: u64 = 0x9_fc00;
/// The descriptor table with which a kernel starts.
pub const GDT: u64 = 0x500;
/// The start information of PVH, and its memory map.
pub const START_INFO: u64 = 0x6000;
/// Linux's `boot_params`.
pub const ZERO_PAGE: u64 = 0x7000;
/// The page tables with which a 64-bit kernel starts: a root, and one table, then four.
pub const PAGE_TABLES: u64 = 0x9000;
/// The command line.
pub const COMMAND_LINE: u64 = 0x2_0000;
/// Bytes of it, with the zero byte at its end.
pub const COMMAND_LINE_MAX: usize = 0x4000;
/// A layer's ROM, where a kernel looks for option ROMs.
pub const ROM: u64 = paravane_abi::ROM_SCAN_START;
/// The end of that range.
pub const ROM_END: u64 = paravane_abi::ROM_SCAN_END;
/// The ACPI tables, up to 1 MiB.
pub const TABLES: u64 = 0xf_0000;
/// Ordinary memory begins again here.
pub const HIGH: u64 = 0x10_0000;

const _: () = assert!(PAGE_TABLES + 6 * 0x1000 <= COMMAND_LINE);
const _: () = assert!(COMMAND_LINE + COMMAND_LINE_MAX as u64 <= LOW_END);
const _: () = assert!(ROM_END <= TABLES && HIGH < MIN_SIZE);
const _: () = assert!(DEVICES >= GAP.start && DEVICES + (MAX_DEVICES * PAGE) as u64 <= IOAPIC);

/// Devices of a machine.
pub const MAX_DEVICES: usize = 32;
/// Pins of the I/O APIC.
pub const PINS: u32 = 64;
/// The serial line's pin, as on a PC.
pub const SERIAL_PIN: u32 = 4;
/// The first device's pin. The others follow.
pub const DEVICE_PIN: u32 = 16;
const _: () = assert!(DEVICE_PIN as usize + MAX_DEVICES <= PINS as usize);

/// Ports of the machine's own: the power-off and the restart that the ACPI tables name.
pub const SLEEP_CONTROL: u16 = 0x600;
/// The register beside it, which always reads as 0.
pub const SLEEP_STATUS: u16 = 0x601;
/// Writing [`RESET_VALUE`] restarts the machine.
pub const RESET: u16 = 0x602;
/// See [`RESET`].
pub const RESET_VALUE: u8 = 1;
/// The port by which a driver notifies a device that has registers of its own: an exit that KVM
/// serves without decoding an instruction.
pub const fn doorbell(device: u16) -> u16 {
    DOORBELLS + device * DOORBELL_SIZE as u16
}
/// The doorbell of the first device.
pub const DOORBELLS: u16 = 0xb000;
/// Ports of a doorbell: it takes a word of four bytes.
pub const DOORBELL_SIZE: u8 = 4;
/// The port of the call `bus.command` of a layer. It is this machine's alone: a layer learns of it
/// by CPUID (`cpuid.rs`).
pub const BUS_CALL: u16 = 0xb100;
const _: () =
    assert!(DOORBELLS as usize + MAX_DEVICES * DOORBELL_SIZE as usize <= BUS_CALL as usize);
/// The sleep type of a power-off.
pub const SLEEP_OFF: u8 = 5;
