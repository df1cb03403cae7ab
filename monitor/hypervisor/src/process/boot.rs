// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a kernel finds in memory at its start: boot information, command line, devices, stack.
//!
//! All of it lies in the last MiB of RAM, which the memory map marks as reserved, in this order.

use super::kernel::Kernel;
use crate::boot_data::{check_command_line, initrd};
use crate::ram::Ram;
use paravane_abi as abi;
use paravane_abi::process as ph;
use vm_memory::ByteValued;

/// Size of the reserved range at the end of RAM in bytes.
pub const RESERVED: u64 = 1 << 20;
const COMMAND_LINE: u64 = 0x1000;
const COMMAND_LINE_MAX: usize = 0x4000;
const DEVICES: u64 = 0x8000;
const STACK_TOP: u64 = 0x20000;
const STACK_SIZE: u64 = 0x4000;

const _: () = assert!(size_of::<abi::BootInfo>() as u64 <= COMMAND_LINE);
const _: () = assert!(COMMAND_LINE + COMMAND_LINE_MAX as u64 <= DEVICES);
const _: () = assert!(
    DEVICES + ph::PHV_MAX_DEVICES * size_of::<abi::Device>() as u64 <= STACK_TOP - STACK_SIZE
);
const _: () = assert!(STACK_TOP <= RESERVED);

/// Linear addresses for the layer, which enters the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    pub boot_info: u64,
    pub stack: u64,
}

/// What the boot information says besides the kernel's place.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    pub command_line: &'a str,
    /// The initial RAM disk, empty for none.
    pub initrd: &'a [u8],
    pub vcpus: u32,
    /// Bytes that the layer occupies.
    pub layer_size: u64,
    pub tsc_hz: u64,
    /// Devices.
    pub devices: &'a [abi::Device],
}

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Info(abi::BootInfo);

// SAFETY: the generated structure has no padding (its offsets and its size are asserted), and every
// bit pattern is valid for its integer fields.
unsafe impl ByteValued for Info {}

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Entry(abi::Device);

// SAFETY: as for `Info`.
unsafe impl ByteValued for Entry {}

/// Writes all of it.
///
/// # Errors
/// The command line or the initial RAM disk is too large, or the command line has a zero byte.
pub fn store(ram: &Ram, image: &Kernel, facts: &Facts<'_>) -> anyhow::Result<Start> {
    let base = ram.size() - RESERVED;
    let direct_map = image.direct_map(ram.size());
    let linear = |offset: u64| direct_map + base + offset;
    check_command_line(facts.command_line, COMMAND_LINE_MAX - 1)?;
    // The byte after it is zero already.
    ram.write(base + COMMAND_LINE, facts.command_line.as_bytes())?;

    let initrd_gpa = initrd(ram, base, image.gpa + image.size, facts.initrd)?;

    for (at, device) in (base + DEVICES..)
        .step_by(size_of::<abi::Device>())
        .zip(facts.devices)
    {
        ram.write(at, Entry(*device).as_slice())?;
    }

    let ram_entry = abi::Mem {
        gpa: 0,
        size: base,
        kind: kind(abi::MEM_RAM),
        reserved: 0,
    };
    let mut mem = [abi::Mem {
        gpa: 0,
        size: 0,
        kind: 0,
        reserved: 0,
    }; 16];
    mem[0] = ram_entry;
    mem[1] = abi::Mem {
        gpa: base,
        size: RESERVED,
        kind: kind(abi::MEM_RESERVED),
        reserved: 0,
    };
    let mut holes = [abi::Hole { start: 0, end: 0 }; 4];
    holes[0] = abi::Hole {
        start: ph::PHV_HOLE_START,
        end: ph::PHV_HOLE_END,
    };
    holes[1].end = ph::PHV_USER_START;
    let info = abi::BootInfo {
        magic: abi::BOOT_MAGIC,
        size: u32::try_from(size_of::<abi::BootInfo>())?,
        api_version: u32::from(abi::API_MAJOR) << 16 | u32::from(abi::API_MINOR),
        rom: ph::PHV_LAYER_BASE,
        rom_size: facts.layer_size,
        image: image.address,
        image_gpa: image.gpa,
        image_size: image.size,
        image_delta: image.delta,
        direct_map,
        direct_map_size: ram.size(),
        user_end: direct_map,
        command_line: linear(COMMAND_LINE),
        initrd_gpa,
        initrd_size: facts.initrd.len() as u64,
        vcpu_count: facts.vcpus,
        mem_count: 2,
        hole_count: 2,
        flags: 0,
        tsc_hz: facts.tsc_hz,
        mem,
        holes,
        devices: if facts.devices.is_empty() {
            0
        } else {
            linear(DEVICES)
        },
        device_count: u32::try_from(facts.devices.len())?,
        device_size: u32::try_from(size_of::<abi::Device>())?,
        reserved: [0; 40],
    };
    ram.write(base, Info(info).as_slice())?;
    Ok(Start {
        boot_info: linear(0),
        stack: linear(STACK_TOP),
    })
}

/// Converts a small constant of the table.
const fn kind(value: u64) -> u32 {
    assert!(value <= 0xff);
    #[allow(clippy::cast_possible_truncation)] // just asserted
    {
        value as u32
    }
}
