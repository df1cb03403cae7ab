// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
// Made by tools/abigen from abi/vmi.toml: change that, not this.
use crate::{CallInfo, Class, SectionInfo};
use core::mem::{offset_of, size_of};

/// Major API version.
pub const API_MAJOR: u8 = 1;
/// Minor API version.
pub const API_MINOR: u8 = 6;

// Option ROM and header
/// U16 at offset 0 (bytes 55 AA), as in every option ROM.
pub const ROM_SIGNATURE: u64 = 0xaa55;
/// U32 at offset 8: the characters VMI6.
pub const SIGNATURE: u64 = 0x36494d56;
/// Bytes in one unit of rom_length.
pub const ROM_UNIT: u64 = 0x200;
/// First guest-physical address that is scanned for ROMs.
pub const ROM_SCAN_START: u64 = 0xc0000;
/// First guest-physical address after the scanned range.
pub const ROM_SCAN_END: u64 = 0xf0000;
/// Alignment of a ROM, bytes.
pub const ROM_SCAN_STEP: u64 = 0x800;
/// Bytes of struct vmi_rom_header.
pub const HEADER_SIZE: u64 = 0x80;
/// Alignment of a loaded layer, bytes.
pub const LAYER_ALIGN: u64 = 0x1000;
/// Alignment of a vCPU's layer data, bytes.
pub const PERCPU_ALIGN: u64 = 0x40;
/// Largest size for core.costs, bytes.
pub const COSTS_MAX: u64 = 0x100;
/// Longest inline replacement, bytes.
pub const INLINE_MAX: u64 = 0xf;

// Bits of vmi_rom_header.flags
/// The hypervisor has mapped the layer where it must stay: do not copy it.
pub const HEADER_IN_PLACE: u64 = 0x1;
/// Privileged instructions do not work under this layer: only sites whose instruction needs no privilege may have VMI_RELOC_NONE, and a kernel that cannot patch must stop.
pub const HEADER_PARAVIRT: u64 = 0x2;

// What the kernel does to a site of this call (vmi_call_entry.reloc)
/// Leave the native instruction in place.
pub const RELOC_NONE: u64 = 0x0;
/// Call rel32 to base + offset.
pub const RELOC_CALL: u64 = 0x1;
/// Jmp rel32 to base + offset; only for calls that do not return.
pub const RELOC_JUMP: u64 = 0x2;
/// Erase the site.
pub const RELOC_NOP: u64 = 0x3;
/// Copy the struct vmi_inline at inline_offset; when the site is too short, as CALL.
pub const RELOC_INLINE: u64 = 0x4;

// Errors; a call that fails returns the negated value
/// Not allowed in this state.
pub const EPERM: u64 = 0x1;
/// No such section, vCPU or stub.
pub const ENOENT: u64 = 0x2;
/// The operation faulted (unknown MSR, address not mapped).
pub const EFAULT: u64 = 0xe;
/// In use.
pub const EBUSY: u64 = 0x10;
/// This layer cannot run here.
pub const ENODEV: u64 = 0x13;
/// An argument is outside what the call defines.
pub const EINVAL: u64 = 0x16;
/// No room.
pub const ENOSPC: u64 = 0x1c;
/// A version does not fit.
pub const ERANGE: u64 = 0x22;
/// This layer does not implement the call; the kernel uses its own way.
pub const ENOSYS: u64 = 0x26;

// Interrupt flag
/// The interrupt flag as RFLAGS has it.
pub const FLAGS_IF: u64 = 0x200;

// Argument of core.reboot
/// Like INIT: processors start again; memory is kept where the machine can keep it.
pub const REBOOT_SOFT: u64 = 0x0;
/// Like the reset line.
pub const REBOOT_HARD: u64 = 0x1;

// Levels of page tables, and flags of mmu.register_page_table
/// Maps 4 KiB.
pub const LEVEL_PT: u64 = 0x1;
/// Maps 2 MiB.
pub const LEVEL_PD: u64 = 0x2;
/// Maps 1 GiB.
pub const LEVEL_PDPT: u64 = 0x3;
/// A root.
pub const LEVEL_PML4: u64 = 0x4;
/// Kernel addresses are always translated with this root.
pub const PT_KERNEL_ROOT: u64 = 0x10;
/// Mmu.expect_space: end of the addresses that the kernel promises not to read.
pub const EXPECT_END: u64 = 0x40000000;
/// Mmu.set_cr3: the x87 and vector registers hold nothing that is needed; from the call until it has taken effect, they may hold anything that the machine has had in them. Only if the layer has VMI_MMU_NO_VECTORS.
pub const CR3_NO_VECTORS: u64 = 0x100000000000000;
/// The same for kernels that were written for section version 2: a bit that PCIDs would need. Only if the layer has VMI_MMU_NO_VECTORS_2.
pub const CR3_NO_VECTORS_2: u64 = 0x800;

// Flags of mmu.set_pte and mmu.set_ptes, or-ed with the level
/// The level, VMI_LEVEL_PT to VMI_LEVEL_PML4.
pub const PTE_LEVEL_MASK: u64 = 0xf;
/// The entry belongs to the loaded space and va is the address that it maps.
pub const PTE_CURRENT: u64 = 0x10;
/// The effect may wait until the next flush, queue flush or end of a lazy mode.
pub const PTE_DEFER: u64 = 0x20;

// Modes of mmu.set_lazy_mode
/// Everything takes effect at once.
pub const LAZY_NONE: u64 = 0x0;
/// Page-table writes may be queued.
pub const LAZY_MMU: u64 = 0x1;
/// Kernel stack, TLS, descriptor and CR3 loads may be queued (a context switch).
pub const LAZY_CPU: u64 = 0x2;

// Flags of mmu.flush_tlb
/// All translations except global ones.
pub const FLUSH_USER: u64 = 0x1;
/// Global ones too.
pub const FLUSH_ALL: u64 = 0x3;

// Time counters, and flags of time.set_alarm
/// Real time: advances whatever the vCPU does.
pub const TIME_REAL: u64 = 0x0;
/// Real time less stolen time: the vCPU ran or was halted.
pub const TIME_AVAILABLE: u64 = 0x1;
/// The vCPU wanted to run and did not.
pub const TIME_STOLEN: u64 = 0x2;
/// Or-ed with the counter: the alarm repeats.
pub const ALARM_PERIODIC: u64 = 0x100;
/// Shortest period, ns.
pub const ALARM_MIN_PERIOD_NS: u64 = 0x2710;

// Run states of a vCPU: vmi_run_state.state
/// Waits for STARTUP.
pub const RUN_OFF: u64 = 0x0;
/// Runs, polls in cpu.halt, or has lost its processor: lock.preempted tells.
pub const RUN_RUNNING: u64 = 0x1;
/// Waits in cpu.halt or lock.wait, without a processor.
pub const RUN_HALTED: u64 = 0x2;
/// Wants to run and has not begun to: it was woken, or moves between address spaces.
pub const RUN_READY: u64 = 0x3;

// Times of lock.preempted, ns
/// Age of what lock.preempted says to a vCPU that asks again and again.
pub const PREEMPTED_LATE_NS: u64 = 0x186a0;
/// Longest time between two calls of a vCPU that does.
pub const PREEMPTED_ASK_NS: u64 = 0x61a8;

// Places of line.route that are no local APIC
/// The vCPU that notified the device last; see line.pending.
pub const LINE_NOTIFIER: u64 = 0xfffffffe;

// Commands of bus.command
/// Alignment of a command in guest memory, bytes: its size.
pub const BUS_COMMAND_ALIGN: u64 = 0x40;

// Interrupt vectors
/// Lowest vector of an interrupt or alarm.
pub const VECTOR_MIN: u64 = 0x20;
/// Highest vector.
pub const VECTOR_MAX: u64 = 0xff;

// Statistics
/// Buckets of a histogram: bucket n counts calls of 2^n to 2^(n+1)-1 cycles; the last one also counts longer calls, the first also 0.
pub const STATS_BUCKETS: u64 = 0x20;

// Stubs for system calls
/// Bits 16 to 23 of every address of an area: a jump to the second half of a replaced site must meet an opcode that is invalid in 64-bit mode.
pub const PATCH_BYTE: u64 = 0x6;
/// Vmi_syscall_site.flags, patch.claim: only make the stub.
pub const SITE_ENTRY: u64 = 0x1;
/// Vmi_syscall_site.flags, patch.code: the instruction at syscall_offset is cpuid.
pub const SITE_CPUID: u64 = 0x2;
/// Vmi_syscall_site.flags, patch.code: the body that all cpuid stubs of a text share.
pub const SITE_BODY: u64 = 0x4;
/// Longest stub that patch.code writes, bytes.
pub const PATCH_SLOT_MAX: u64 = 0x30;
/// Longest body that patch.code writes, bytes.
pub const PATCH_BODY_MAX: u64 = 0x80;

// Start by a hypervisor (ELF note and boot information)
/// Type of the ELF note, name VMI: desc is struct vmi_note_entry.
pub const NOTE_ENTRY: u64 = 0x1;
/// Bit of vmi_note_entry.flags: the kernel takes any user_end from 2^46 to 2^47, and needs 3 TiB from direct_map on if RAM has no more than 1 TiB.
pub const NOTE_COMPACT: u64 = 0x1;
/// Vmi_boot_info.magic: VMIBOOT.
pub const BOOT_MAGIC: u64 = 0x544f4f42494d56;
/// Entries of the memory map.
pub const BOOT_MAX_MEM: u64 = 0x10;
/// Memory map type: usable RAM.
pub const MEM_RAM: u64 = 0x1;
/// Memory map type: must not be used.
pub const MEM_RESERVED: u64 = 0x2;
/// Entries of the list of reserved linear addresses.
pub const BOOT_MAX_HOLES: u64 = 0x4;
/// Kind of a device: virtio over MMIO, version 2 (virtio 1.2, section 4.2).
pub const DEVICE_VIRTIO_MMIO: u64 = 0x1;
/// Kind of a device: a bridge to a virtual bus, docs/vbus.md.
pub const DEVICE_VBUS: u64 = 0x2;

/// The first 128 bytes of a layer's ROM.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RomHeader {
    /// VMI_ROM_SIGNATURE.
    pub rom_signature: u16,
    /// Size of the ROM in units of VMI_ROM_UNIT bytes, 1 to 255.
    pub rom_length: u8,
    /// 16-bit code that the firmware calls: a far return.
    pub bios_entry: [u8; 4],
    /// Makes the 8-bit sum of the ROM zero.
    pub checksum: u8,
    /// VMI_SIGNATURE.
    pub vmi_signature: u32,
    /// Minor API version: additions.
    pub api_minor: u8,
    /// Major API version: a kernel for another one stays native.
    pub api_major: u8,
    /// Bytes of this header, at least VMI_HEADER_SIZE.
    pub header_size: u16,
    /// Bytes of code and data in the ROM, at most rom_length * VMI_ROM_UNIT.
    pub image_size: u32,
    /// Bytes of memory that the loaded layer takes; those after image_size are zero at first.
    pub load_size: u32,
    /// Offset of the PCI data structure, 0 for none.
    pub pci_header: u16,
    /// Offset of the PnP header, 0 for none.
    pub pnp_header: u16,
    /// Bytes of layer data for each vCPU, a multiple of VMI_PERCPU_ALIGN.
    pub percpu_size: u32,
    /// Offset of the array of struct vmi_section.
    pub sections: u32,
    /// Entries in it.
    pub section_count: u16,
    /// Bytes of one entry, at least 16.
    pub section_size: u16,
    /// Offset of the array of struct vmi_extable_entry.
    pub extable: u32,
    /// Entries in it.
    pub extable_count: u32,
    /// First linear address that the hypervisor keeps for itself; 0 with reserve_end 0 for none.
    pub reserve_start: u64,
    /// Last such address + 1.
    pub reserve_end: u64,
    /// Name of the layer, for people, padded with zeros.
    pub name: [u8; 16],
    /// VMI_HEADER_*.
    pub flags: u32,
    /// Bytes of one struct vmi_call_entry, at least 12.
    pub call_size: u32,
    /// Zero.
    pub reserved: [u8; 40],
}

const _: () = assert!(size_of::<RomHeader>() == 128);
const _: () = assert!(offset_of!(RomHeader, rom_signature) == 0);
const _: () = assert!(offset_of!(RomHeader, rom_length) == 2);
const _: () = assert!(offset_of!(RomHeader, bios_entry) == 3);
const _: () = assert!(offset_of!(RomHeader, checksum) == 7);
const _: () = assert!(offset_of!(RomHeader, vmi_signature) == 8);
const _: () = assert!(offset_of!(RomHeader, api_minor) == 12);
const _: () = assert!(offset_of!(RomHeader, api_major) == 13);
const _: () = assert!(offset_of!(RomHeader, header_size) == 14);
const _: () = assert!(offset_of!(RomHeader, image_size) == 16);
const _: () = assert!(offset_of!(RomHeader, load_size) == 20);
const _: () = assert!(offset_of!(RomHeader, pci_header) == 24);
const _: () = assert!(offset_of!(RomHeader, pnp_header) == 26);
const _: () = assert!(offset_of!(RomHeader, percpu_size) == 28);
const _: () = assert!(offset_of!(RomHeader, sections) == 32);
const _: () = assert!(offset_of!(RomHeader, section_count) == 36);
const _: () = assert!(offset_of!(RomHeader, section_size) == 38);
const _: () = assert!(offset_of!(RomHeader, extable) == 40);
const _: () = assert!(offset_of!(RomHeader, extable_count) == 44);
const _: () = assert!(offset_of!(RomHeader, reserve_start) == 48);
const _: () = assert!(offset_of!(RomHeader, reserve_end) == 56);
const _: () = assert!(offset_of!(RomHeader, name) == 64);
const _: () = assert!(offset_of!(RomHeader, flags) == 80);
const _: () = assert!(offset_of!(RomHeader, call_size) == 84);
const _: () = assert!(offset_of!(RomHeader, reserved) == 88);

/// A section of the interface that a layer offers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// VMI_SECTION_*.
    pub id: u16,
    /// Version of the section that the layer implements.
    pub version: u16,
    /// Lowest version that a kernel may have been written for.
    pub compat: u16,
    /// Calls in the table; a call with a higher index is absent.
    pub call_count: u16,
    /// Offset of the array of struct vmi_call_entry.
    pub calls: u32,
    /// Feature bits of the section.
    pub features: u32,
}

const _: () = assert!(size_of::<Section>() == 16);
const _: () = assert!(offset_of!(Section, id) == 0);
const _: () = assert!(offset_of!(Section, version) == 2);
const _: () = assert!(offset_of!(Section, compat) == 4);
const _: () = assert!(offset_of!(Section, call_count) == 6);
const _: () = assert!(offset_of!(Section, calls) == 8);
const _: () = assert!(offset_of!(Section, features) == 12);

/// Relocation record of one call; final when core.init has returned.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CallEntry {
    /// Offset of the entry point; 0: the call is absent.
    pub offset: u32,
    /// VMI_RELOC_*: what the kernel does to a site.
    pub reloc: u8,
    /// Zero.
    pub reserved: [u8; 3],
    /// Offset of the struct vmi_inline for VMI_RELOC_INLINE, else 0.
    pub inline_offset: u32,
}

const _: () = assert!(size_of::<CallEntry>() == 12);
const _: () = assert!(offset_of!(CallEntry, offset) == 0);
const _: () = assert!(offset_of!(CallEntry, reloc) == 4);
const _: () = assert!(offset_of!(CallEntry, reserved) == 5);
const _: () = assert!(offset_of!(CallEntry, inline_offset) == 8);

/// Instructions that replace a site.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Inline {
    /// Bytes of code, 1 to VMI_INLINE_MAX.
    pub length: u8,
    /// Position-independent code without branches out of it.
    pub code: [u8; 15],
}

const _: () = assert!(size_of::<Inline>() == 16);
const _: () = assert!(offset_of!(Inline, length) == 0);
const _: () = assert!(offset_of!(Inline, code) == 1);

/// An instruction of the layer that may fault, and where execution continues then.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ExtableEntry {
    /// Offset of the instruction.
    pub insn: u32,
    /// Offset of the code at which execution continues; the stack pointer is unchanged.
    pub fixup: u32,
}

const _: () = assert!(size_of::<ExtableEntry>() == 8);
const _: () = assert!(offset_of!(ExtableEntry, insn) == 0);
const _: () = assert!(offset_of!(ExtableEntry, fixup) == 4);

/// A site in the kernel (section .vmi.sites).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// Address of the site, relative to this field.
    pub addr: i32,
    /// Call number.
    pub call: u16,
    /// Bytes of the site, at least 5.
    pub length: u8,
    /// Zero.
    pub reserved: u8,
}

const _: () = assert!(size_of::<Site>() == 8);
const _: () = assert!(offset_of!(Site, addr) == 0);
const _: () = assert!(offset_of!(Site, call) == 4);
const _: () = assert!(offset_of!(Site, length) == 6);
const _: () = assert!(offset_of!(Site, reserved) == 7);

/// Part of each vCPU's data that the kernel keeps for the layer, at vmi_init.percpu_gs_offset from the kernel GS base; 64-byte aligned.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Percpu {
    /// Linear address of this vCPU's layer data (percpu_size bytes, zeroed), set by the kernel before the vCPU makes its first call.
    pub data: u64,
    /// Number of the vCPU, from 0, below vmi_init.vcpu_count; set by the kernel.
    pub vcpu: u32,
    /// Its local APIC id; set by the kernel.
    pub apic_id: u32,
    /// For the layer; zeroed by the kernel, which does not touch it later.
    pub fast: [u8; 48],
}

const _: () = assert!(size_of::<Percpu>() == 64);
const _: () = assert!(offset_of!(Percpu, data) == 0);
const _: () = assert!(offset_of!(Percpu, vcpu) == 8);
const _: () = assert!(offset_of!(Percpu, apic_id) == 12);
const _: () = assert!(offset_of!(Percpu, fast) == 16);

/// Argument of core.init: filled by the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Init {
    /// Bytes of this structure as the kernel knows it.
    pub size: u32,
    /// Major << 16 | minor that the kernel was written for.
    pub api_version: u32,
    /// Linear address of the loaded layer, VMI_LAYER_ALIGN aligned.
    pub layer_base: u64,
    /// Linear address at which guest-physical 0 is mapped.
    pub direct_map: u64,
    /// Bytes of it.
    pub direct_map_size: u64,
    /// Offset of struct vmi_percpu from the kernel GS base, signed 32 bit.
    pub percpu_gs_offset: u64,
    /// Linear address of an array of vcpu_count pointers to struct vmi_percpu. An entry may change, and may be 0, until smp.set_ap_state is called for that vCPU. The boot vCPU's may change, with the structure's contents, just before its cpu.set_gs_base.
    pub percpu_table: u64,
    /// VCPUs that the kernel may ever start, at least 1.
    pub vcpu_count: u32,
    /// Zero.
    pub flags: u32,
    /// Linear address at which the kernel has mapped the local APIC page uncached, 0 when it has none.
    pub apic: u64,
    /// Guest-physical address of a free, identity-mapped page below 1 MiB for starting APs, 0 for none.
    pub low_page: u64,
    /// Frequency of the time-stamp counter, Hz, if the kernel knows it, else 0.
    pub tsc_hz: u64,
    /// The kernel's 64-bit code selector.
    pub kernel_cs: u16,
    /// The kernel's stack selector.
    pub kernel_ss: u16,
    /// The 64-bit user code selector.
    pub user_cs: u16,
    /// The user stack selector.
    pub user_ss: u16,
    /// Zero.
    pub reserved: [u8; 40],
}

const _: () = assert!(size_of::<Init>() == 128);
const _: () = assert!(offset_of!(Init, size) == 0);
const _: () = assert!(offset_of!(Init, api_version) == 4);
const _: () = assert!(offset_of!(Init, layer_base) == 8);
const _: () = assert!(offset_of!(Init, direct_map) == 16);
const _: () = assert!(offset_of!(Init, direct_map_size) == 24);
const _: () = assert!(offset_of!(Init, percpu_gs_offset) == 32);
const _: () = assert!(offset_of!(Init, percpu_table) == 40);
const _: () = assert!(offset_of!(Init, vcpu_count) == 48);
const _: () = assert!(offset_of!(Init, flags) == 52);
const _: () = assert!(offset_of!(Init, apic) == 56);
const _: () = assert!(offset_of!(Init, low_page) == 64);
const _: () = assert!(offset_of!(Init, tsc_hz) == 72);
const _: () = assert!(offset_of!(Init, kernel_cs) == 80);
const _: () = assert!(offset_of!(Init, kernel_ss) == 82);
const _: () = assert!(offset_of!(Init, user_cs) == 84);
const _: () = assert!(offset_of!(Init, user_ss) == 86);
const _: () = assert!(offset_of!(Init, reserved) == 88);

/// Argument and result of cpu.cpuid.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Cpuid {
    /// In: leaf.
    pub eax: u32,
    /// Ebx.
    pub ebx: u32,
    /// In: subleaf.
    pub ecx: u32,
    /// Edx.
    pub edx: u32,
}

const _: () = assert!(size_of::<Cpuid>() == 16);
const _: () = assert!(offset_of!(Cpuid, eax) == 0);
const _: () = assert!(offset_of!(Cpuid, ebx) == 4);
const _: () = assert!(offset_of!(Cpuid, ecx) == 8);
const _: () = assert!(offset_of!(Cpuid, edx) == 12);

/// GDTR or IDTR, after six bytes that align the base.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TableRegister {
    /// Ignored.
    pub pad: [u8; 6],
    /// Limit; lgdt and lidt take the address of this field.
    pub limit: u16,
    /// Linear address.
    pub base: u64,
}

const _: () = assert!(size_of::<TableRegister>() == 16);
const _: () = assert!(offset_of!(TableRegister, pad) == 0);
const _: () = assert!(offset_of!(TableRegister, limit) == 6);
const _: () = assert!(offset_of!(TableRegister, base) == 8);

/// Complete initial state of an application processor, for smp.set_ap_state.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ApState {
    /// PE and PG must be set.
    pub cr0: u64,
    /// Guest-physical address of the root.
    pub cr3: u64,
    /// PAE must be set.
    pub cr4: u64,
    /// LME must be set.
    pub efer: u64,
    /// Rip.
    pub rip: u64,
    /// IF should be clear.
    pub rflags: u64,
    /// Rax rcx rdx rbx rsp rbp rsi rdi r8 to r15: the order of the encoding.
    pub gpr: [u64; 16],
    /// Fs_base.
    pub fs_base: u64,
    /// The kernel GS base: the vCPU may make calls at once.
    pub gs_base: u64,
    /// Gdt_base.
    pub gdt_base: u64,
    /// Idt_base.
    pub idt_base: u64,
    /// Gdt_limit.
    pub gdt_limit: u16,
    /// Idt_limit.
    pub idt_limit: u16,
    /// A 64-bit code segment of the GDT.
    pub cs: u16,
    /// Also loaded into ds, es.
    pub ss: u16,
    /// 0: none.
    pub tr: u16,
    /// 0: none.
    pub ldtr: u16,
    /// Zero.
    pub context: u32,
    /// As in mmu.set_cr3.
    pub context_id: u64,
    /// As in mmu.set_cr3.
    pub generation: u64,
    /// Zero.
    pub reserved: [u8; 16],
}

const _: () = assert!(size_of::<ApState>() == 256);
const _: () = assert!(offset_of!(ApState, cr0) == 0);
const _: () = assert!(offset_of!(ApState, cr3) == 8);
const _: () = assert!(offset_of!(ApState, cr4) == 16);
const _: () = assert!(offset_of!(ApState, efer) == 24);
const _: () = assert!(offset_of!(ApState, rip) == 32);
const _: () = assert!(offset_of!(ApState, rflags) == 40);
const _: () = assert!(offset_of!(ApState, gpr) == 48);
const _: () = assert!(offset_of!(ApState, fs_base) == 176);
const _: () = assert!(offset_of!(ApState, gs_base) == 184);
const _: () = assert!(offset_of!(ApState, gdt_base) == 192);
const _: () = assert!(offset_of!(ApState, idt_base) == 200);
const _: () = assert!(offset_of!(ApState, gdt_limit) == 208);
const _: () = assert!(offset_of!(ApState, idt_limit) == 210);
const _: () = assert!(offset_of!(ApState, cs) == 212);
const _: () = assert!(offset_of!(ApState, ss) == 214);
const _: () = assert!(offset_of!(ApState, tr) == 216);
const _: () = assert!(offset_of!(ApState, ldtr) == 218);
const _: () = assert!(offset_of!(ApState, context) == 220);
const _: () = assert!(offset_of!(ApState, context_id) == 224);
const _: () = assert!(offset_of!(ApState, generation) == 232);
const _: () = assert!(offset_of!(ApState, reserved) == 240);

/// Result of core.costs: what an operation takes more than on a processor. The unit is the time in which a page of 4 KiB is copied from the cache. 0: nothing that matters.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// A page fault of user code that the kernel handles.
    pub page_fault: u32,
    /// The flush of a translation that is in use.
    pub flush: u32,
    /// Pages that are neighbours, linear and physical, whose translations take no longer to make than a single page's; 0: no such gain.
    pub run_pages: u32,
    /// A system call in user code at an instruction that patch.claim or patch.code could replace.
    pub syscall_trap: u32,
    /// A cpuid instruction in user code.
    pub cpuid: u32,
    /// Zero.
    pub reserved: [u32; 3],
}

const _: () = assert!(size_of::<Costs>() == 32);
const _: () = assert!(offset_of!(Costs, page_fault) == 0);
const _: () = assert!(offset_of!(Costs, flush) == 4);
const _: () = assert!(offset_of!(Costs, run_pages) == 8);
const _: () = assert!(offset_of!(Costs, syscall_trap) == 12);
const _: () = assert!(offset_of!(Costs, cpuid) == 16);
const _: () = assert!(offset_of!(Costs, reserved) == 20);

/// Result of time.read: one consistent sample; real = available + stolen.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Ns since core.init.
    pub real: u64,
    /// Ns.
    pub available: u64,
    /// Ns.
    pub stolen: u64,
}

const _: () = assert!(size_of::<Times>() == 24);
const _: () = assert!(offset_of!(Times, real) == 0);
const _: () = assert!(offset_of!(Times, available) == 8);
const _: () = assert!(offset_of!(Times, stolen) == 16);

/// Page that converts the time-stamp counter to real time without a call; also for the guest's user programs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Odd while the page is being written; read before and after.
    pub sequence: u32,
    /// Bit 0: valid on all vCPUs.
    pub flags: u32,
    /// Counter value at which real time was real_ns.
    pub tsc: u64,
    /// Ns.
    pub real_ns: u64,
    /// Wall-clock time at which real time was 0, ns since 1970-01-01T00:00:00Z.
    pub wall_ns: u64,
    /// Real_ns + (((counter - tsc) * mult) >> shift), 128-bit product.
    pub mult: u32,
    /// 0 to 63.
    pub shift: u32,
    /// Zero.
    pub reserved: [u8; 24],
}

const _: () = assert!(size_of::<Clock>() == 64);
const _: () = assert!(offset_of!(Clock, sequence) == 0);
const _: () = assert!(offset_of!(Clock, flags) == 4);
const _: () = assert!(offset_of!(Clock, tsc) == 8);
const _: () = assert!(offset_of!(Clock, real_ns) == 16);
const _: () = assert!(offset_of!(Clock, wall_ns) == 24);
const _: () = assert!(offset_of!(Clock, mult) == 32);
const _: () = assert!(offset_of!(Clock, shift) == 36);
const _: () = assert!(offset_of!(Clock, reserved) == 40);

/// What a vCPU does, written by the layer, for every vCPU to read without a call (lock.run_state).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RunState {
    /// VMI_RUN_*.
    pub state: u32,
    /// The last answer of lock.preempted about it, 0 or 1.
    pub preempted: u32,
    /// Its stolen time at its last sample, ns; it only grows.
    pub stolen: u64,
    /// Zero.
    pub reserved: [u64; 6],
}

const _: () = assert!(size_of::<RunState>() == 64);
const _: () = assert!(offset_of!(RunState, state) == 0);
const _: () = assert!(offset_of!(RunState, preempted) == 4);
const _: () = assert!(offset_of!(RunState, stolen) == 8);
const _: () = assert!(offset_of!(RunState, reserved) == 16);

/// What must be carried of a vCPU besides its registers (smp.vcpu_state). Alarms have their counter as index, VMI_TIME_REAL or VMI_TIME_AVAILABLE.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VcpuState {
    /// Its pending bit, 0 or 1; lock.kick restores it.
    pub kick: u32,
    /// Bit n: the alarm on counter n is set, and time.ack_alarm has not reported it for the last time; time.set_alarm restores it.
    pub armed: u32,
    /// Vector of the alarms that are set.
    pub alarm_vector: u32,
    /// Zero.
    pub zero: u32,
    /// When an alarm that is set expires or expired, ns.
    pub expiry: [u64; 2],
    /// Its period, ns; 0: it does not repeat.
    pub period: [u64; 2],
    /// Bit n of word n / 64: interrupt vector n is requested and not delivered yet; apic.send_ipi to itself restores it.
    pub requested: [u64; 4],
    /// Zero.
    pub reserved: [u64; 6],
}

const _: () = assert!(size_of::<VcpuState>() == 128);
const _: () = assert!(offset_of!(VcpuState, kick) == 0);
const _: () = assert!(offset_of!(VcpuState, armed) == 4);
const _: () = assert!(offset_of!(VcpuState, alarm_vector) == 8);
const _: () = assert!(offset_of!(VcpuState, zero) == 12);
const _: () = assert!(offset_of!(VcpuState, expiry) == 16);
const _: () = assert!(offset_of!(VcpuState, period) == 32);
const _: () = assert!(offset_of!(VcpuState, requested) == 48);
const _: () = assert!(offset_of!(VcpuState, reserved) == 80);

/// Argument and result of patch.claim, argument of patch.code: a system-call or cpuid instruction in user text.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SyscallSite {
    /// In: user address of the first byte of code.
    pub addr: u64,
    /// In: the bytes there.
    pub code: [u8; 16],
    /// In: number of valid bytes in code.
    pub length: u32,
    /// In: offset of the syscall or cpuid instruction in code.
    pub syscall_offset: u32,
    /// Out: user address of the stub; with VMI_SITE_ENTRY, the address to jump to. patch.code: in.
    pub slot: u64,
    /// Out: the bytes to write at addr; none with VMI_SITE_ENTRY.
    pub patch: [u8; 16],
    /// Out: number of bytes in patch.
    pub patch_length: u32,
    /// In: VMI_SITE_*; other bits are zero, and a layer ignores those that it does not know.
    pub flags: u32,
}

const _: () = assert!(size_of::<SyscallSite>() == 64);
const _: () = assert!(offset_of!(SyscallSite, addr) == 0);
const _: () = assert!(offset_of!(SyscallSite, code) == 8);
const _: () = assert!(offset_of!(SyscallSite, length) == 24);
const _: () = assert!(offset_of!(SyscallSite, syscall_offset) == 28);
const _: () = assert!(offset_of!(SyscallSite, slot) == 32);
const _: () = assert!(offset_of!(SyscallSite, patch) == 40);
const _: () = assert!(offset_of!(SyscallSite, patch_length) == 56);
const _: () = assert!(offset_of!(SyscallSite, flags) == 60);

/// Pages of an address space in which the layer keeps its stubs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PatchArea {
    /// User address of the area, executable for user code, below 2 GiB, bits 16 to 23 VMI_PATCH_BYTE; anywhere if all its sites have VMI_SITE_ENTRY.
    pub user: u64,
    /// Linear address at which the layer can write the same pages.
    pub kernel: u64,
    /// Bytes, a multiple of 4096, at most 65536; the area must not cross a 64 KiB boundary.
    pub size: u64,
    /// For the layer; zero at first.
    pub used: u64,
}

const _: () = assert!(size_of::<PatchArea>() == 32);
const _: () = assert!(offset_of!(PatchArea, user) == 0);
const _: () = assert!(offset_of!(PatchArea, kernel) == 8);
const _: () = assert!(offset_of!(PatchArea, size) == 16);
const _: () = assert!(offset_of!(PatchArea, used) == 24);

/// Result of stats.read, summed over all vCPUs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CallStats {
    /// Number of calls.
    pub calls: u64,
    /// Time-stamp counter cycles, summed over all calls.
    pub cycles: u64,
    /// Histogram, see VMI_STATS_BUCKETS.
    pub buckets: [u64; 32],
}

const _: () = assert!(size_of::<CallStats>() == 272);
const _: () = assert!(offset_of!(CallStats, calls) == 0);
const _: () = assert!(offset_of!(CallStats, cycles) == 8);
const _: () = assert!(offset_of!(CallStats, buckets) == 16);

/// An entry of the memory map.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Mem {
    /// Guest-physical address.
    pub gpa: u64,
    /// Bytes.
    pub size: u64,
    /// VMI_MEM_*.
    pub kind: u32,
    /// Zero.
    pub reserved: u32,
}

const _: () = assert!(size_of::<Mem>() == 24);
const _: () = assert!(offset_of!(Mem, gpa) == 0);
const _: () = assert!(offset_of!(Mem, size) == 8);
const _: () = assert!(offset_of!(Mem, kind) == 16);
const _: () = assert!(offset_of!(Mem, reserved) == 20);

/// Linear addresses that programs must not use, nor the kernel, except for its own file and what it maps below that. A hole that begins at 0 ends where the addresses of programs begin.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Hole {
    /// Start.
    pub start: u64,
    /// Last address + 1.
    pub end: u64,
}

const _: () = assert!(size_of::<Hole>() == 16);
const _: () = assert!(offset_of!(Hole, start) == 0);
const _: () = assert!(offset_of!(Hole, end) == 8);

/// A device of the machine.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// VMI_DEVICE_*; a kernel ignores kinds that it does not know.
    pub kind: u32,
    /// Its interrupt line, for line.route.
    pub line: u32,
    /// Guest-physical address of its registers, page-aligned, not inside RAM.
    pub gpa: u64,
    /// Bytes of registers.
    pub size: u64,
    /// Zero.
    pub reserved: u64,
}

const _: () = assert!(size_of::<Device>() == 32);
const _: () = assert!(offset_of!(Device, kind) == 0);
const _: () = assert!(offset_of!(Device, line) == 4);
const _: () = assert!(offset_of!(Device, gpa) == 8);
const _: () = assert!(offset_of!(Device, size) == 16);
const _: () = assert!(offset_of!(Device, reserved) == 24);

/// Descriptor of the ELF note VMI_NOTE_ENTRY.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NoteEntry {
    /// Link-time linear address of the 64-bit entry.
    pub entry: u64,
    /// Major << 16 | minor that the kernel was written for.
    pub api_version: u32,
    /// VMI_NOTE_*; a hypervisor ignores bits that it does not know.
    pub flags: u32,
}

const _: () = assert!(size_of::<NoteEntry>() == 16);
const _: () = assert!(offset_of!(NoteEntry, entry) == 0);
const _: () = assert!(offset_of!(NoteEntry, api_version) == 8);
const _: () = assert!(offset_of!(NoteEntry, flags) == 12);

/// What a hypervisor passes to the kernel's VMI entry; rdi has its linear address.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BootInfo {
    /// VMI_BOOT_MAGIC.
    pub magic: u64,
    /// Bytes of this structure as the hypervisor knows it.
    pub size: u32,
    /// Major << 16 | minor.
    pub api_version: u32,
    /// Linear address of the layer's ROM; 0 for none.
    pub rom: u64,
    /// Bytes mapped there.
    pub rom_size: u64,
    /// Linear address at which the kernel was loaded.
    pub image: u64,
    /// Guest-physical address of it.
    pub image_gpa: u64,
    /// Bytes.
    pub image_size: u64,
    /// Load address less link address, modulo 2^64.
    pub image_delta: u64,
    /// Linear address at which guest-physical 0 is mapped.
    pub direct_map: u64,
    /// Bytes of it that are mapped.
    pub direct_map_size: u64,
    /// Last linear address + 1 that user programs may use.
    pub user_end: u64,
    /// Linear address of a string that ends with a zero byte.
    pub command_line: u64,
    /// Guest-physical address of the initial RAM disk, 0 for none.
    pub initrd_gpa: u64,
    /// Bytes.
    pub initrd_size: u64,
    /// VCPUs; their APIC ids are 0 to vcpu_count - 1.
    pub vcpu_count: u32,
    /// Valid entries of mem.
    pub mem_count: u32,
    /// Valid entries of holes.
    pub hole_count: u32,
    /// Zero.
    pub flags: u32,
    /// Frequency of the time-stamp counter, Hz.
    pub tsc_hz: u64,
    /// Memory map, ascending.
    pub mem: [Mem; 16],
    /// Reserved linear addresses.
    pub holes: [Hole; 4],
    /// Linear address of an array of struct vmi_device (since 1.2; 0 before).
    pub devices: u64,
    /// Entries in it.
    pub device_count: u32,
    /// Bytes of one entry, at least 32 where there are any.
    pub device_size: u32,
    /// Zero.
    pub reserved: [u8; 40],
}

const _: () = assert!(size_of::<BootInfo>() == 640);
const _: () = assert!(offset_of!(BootInfo, magic) == 0);
const _: () = assert!(offset_of!(BootInfo, size) == 8);
const _: () = assert!(offset_of!(BootInfo, api_version) == 12);
const _: () = assert!(offset_of!(BootInfo, rom) == 16);
const _: () = assert!(offset_of!(BootInfo, rom_size) == 24);
const _: () = assert!(offset_of!(BootInfo, image) == 32);
const _: () = assert!(offset_of!(BootInfo, image_gpa) == 40);
const _: () = assert!(offset_of!(BootInfo, image_size) == 48);
const _: () = assert!(offset_of!(BootInfo, image_delta) == 56);
const _: () = assert!(offset_of!(BootInfo, direct_map) == 64);
const _: () = assert!(offset_of!(BootInfo, direct_map_size) == 72);
const _: () = assert!(offset_of!(BootInfo, user_end) == 80);
const _: () = assert!(offset_of!(BootInfo, command_line) == 88);
const _: () = assert!(offset_of!(BootInfo, initrd_gpa) == 96);
const _: () = assert!(offset_of!(BootInfo, initrd_size) == 104);
const _: () = assert!(offset_of!(BootInfo, vcpu_count) == 112);
const _: () = assert!(offset_of!(BootInfo, mem_count) == 116);
const _: () = assert!(offset_of!(BootInfo, hole_count) == 120);
const _: () = assert!(offset_of!(BootInfo, flags) == 124);
const _: () = assert!(offset_of!(BootInfo, tsc_hz) == 128);
const _: () = assert!(offset_of!(BootInfo, mem) == 136);
const _: () = assert!(offset_of!(BootInfo, holes) == 520);
const _: () = assert!(offset_of!(BootInfo, devices) == 584);
const _: () = assert!(offset_of!(BootInfo, device_count) == 592);
const _: () = assert!(offset_of!(BootInfo, device_size) == 596);
const _: () = assert!(offset_of!(BootInfo, reserved) == 600);

/// Reports whether the layer can run here.
pub const CALL_CORE_PROBE: u16 = 0x000;
/// Starts the layer: once, with interrupts off, on the boot vCPU, with the boot vCPU's vmi_percpu in place.
pub const CALL_CORE_INIT: u16 = 0x001;
/// Returns features << 32 | version of a section.
pub const CALL_CORE_VERSION: u16 = 0x002;
/// Restarts the machine, VMI_REBOOT_SOFT or VMI_REBOOT_HARD.
pub const CALL_CORE_REBOOT: u16 = 0x003;
/// Ends the machine.
pub const CALL_CORE_SHUTDOWN: u16 = 0x004;
/// Writes to the console, for early messages.
pub const CALL_CORE_CONSOLE_WRITE: u16 = 0x005;
/// Reports what operations cost here beyond their cost on a processor, so that a kernel can avoid them.
pub const CALL_CORE_COSTS: u16 = 0x006;

/// CR0.TS makes FPU instructions raise #NM; without this feature the bit is only kept.
pub const CPU_TASK_SWITCHED: u32 = 0x1;
/// Descriptors of the GDT, LDT and TLS, and IDT stack switching, work in user and kernel mode as on a processor; without this feature they are only kept.
pub const CPU_SEGMENTS: u32 = 0x2;
/// XCR0 can be changed; without this feature cpu.set_xcr accepts only the present value.
pub const CPU_XCR: u32 = 0x4;
/// Clears the interrupt flag: no interrupt is delivered to this vCPU from here on.
pub const CALL_CPU_IRQ_DISABLE: u16 = 0x100;
/// Sets the interrupt flag.
pub const CALL_CPU_IRQ_ENABLE: u16 = 0x101;
/// Returns the interrupt flag: VMI_FLAGS_IF is set in the result if interrupts are enabled.
pub const CALL_CPU_IRQ_FLAG: u16 = 0x102;
/// Sets the interrupt flag to VMI_FLAGS_IF of flags, which must come from cpu.irq_flag or cpu.irq_save.
pub const CALL_CPU_IRQ_RESTORE: u16 = 0x103;
/// Cpu.irq_flag, then cpu.irq_disable.
pub const CALL_CPU_IRQ_SAVE: u16 = 0x104;
/// Enables interrupts and waits for one.
pub const CALL_CPU_HALT: u16 = 0x105;
/// Stops this vCPU for good, with interrupts off; another vCPU may start it again with INIT and STARTUP.
pub const CALL_CPU_STOP: u16 = 0x106;
/// Hints to the processor that this is a spin loop.
pub const CALL_CPU_PAUSE: u16 = 0x107;
/// Returns CR0 as the kernel last set it.
pub const CALL_CPU_GET_CR0: u16 = 0x108;
/// Sets CR0.
pub const CALL_CPU_SET_CR0: u16 = 0x109;
/// Clears CR0.TS.
pub const CALL_CPU_CLTS: u16 = 0x10a;
/// Returns the address of this vCPU's last page fault.
pub const CALL_CPU_GET_CR2: u16 = 0x10b;
/// Sets CR2.
pub const CALL_CPU_SET_CR2: u16 = 0x10c;
/// Returns CR4 as the kernel last set it.
pub const CALL_CPU_GET_CR4: u16 = 0x10d;
/// Sets CR4.
pub const CALL_CPU_SET_CR4: u16 = 0x10e;
/// Returns the task priority.
pub const CALL_CPU_GET_CR8: u16 = 0x10f;
/// Sets the task priority, 0 to 15.
pub const CALL_CPU_SET_CR8: u16 = 0x110;
/// Reads debug register 0 to 3, 6 or 7.
pub const CALL_CPU_GET_DR: u16 = 0x111;
/// Writes debug register 0 to 3, 6 or 7.
pub const CALL_CPU_SET_DR: u16 = 0x112;
/// Reads a model-specific register.
pub const CALL_CPU_READ_MSR: u16 = 0x113;
/// Writes a model-specific register.
pub const CALL_CPU_WRITE_MSR: u16 = 0x114;
/// Reads a performance counter.
pub const CALL_CPU_READ_PMC: u16 = 0x115;
/// Returns CPUID as the kernel should see it: the layer hides what does not work under it.
pub const CALL_CPU_CPUID: u16 = 0x116;
/// Returns the time-stamp counter, which has the frequency of time.frequency and is monotonic across vCPUs.
pub const CALL_CPU_READ_TSC: u16 = 0x117;
/// Loads the GDTR.
pub const CALL_CPU_SET_GDT: u16 = 0x118;
/// Returns the GDTR that the kernel last set.
pub const CALL_CPU_GET_GDT: u16 = 0x119;
/// Loads the IDTR.
pub const CALL_CPU_SET_IDT: u16 = 0x11a;
/// Returns the IDTR that the kernel last set.
pub const CALL_CPU_GET_IDT: u16 = 0x11b;
/// Loads the LDTR with a selector of the GDT, or 0.
pub const CALL_CPU_SET_LDT: u16 = 0x11c;
/// Returns the selector in LDTR.
pub const CALL_CPU_GET_LDT: u16 = 0x11d;
/// Loads the task register; the descriptor must name an available TSS.
pub const CALL_CPU_SET_TR: u16 = 0x11e;
/// Returns the selector in TR.
pub const CALL_CPU_GET_TR: u16 = 0x11f;
/// Writes a descriptor of one or two 8-byte words into a GDT, loaded or not.
pub const CALL_CPU_WRITE_GDT: u16 = 0x120;
/// Writes a descriptor into an LDT.
pub const CALL_CPU_WRITE_LDT: u16 = 0x121;
/// Writes a gate of 16 bytes into an IDT.
pub const CALL_CPU_WRITE_IDT: u16 = 0x122;
/// Writes count thread-local-storage descriptors into the loaded GDT, at index and up.
pub const CALL_CPU_SET_TLS: u16 = 0x123;
/// Loads the user's GS selector.
pub const CALL_CPU_LOAD_GS: u16 = 0x124;
/// Returns the FS base.
pub const CALL_CPU_GET_FS_BASE: u16 = 0x125;
/// Sets the FS base.
pub const CALL_CPU_SET_FS_BASE: u16 = 0x126;
/// Returns the kernel's GS base.
pub const CALL_CPU_GET_GS_BASE: u16 = 0x127;
/// Sets the kernel's GS base.
pub const CALL_CPU_SET_GS_BASE: u16 = 0x128;
/// Returns the GS base that user code will have.
pub const CALL_CPU_GET_USER_GS_BASE: u16 = 0x129;
/// Sets the GS base that user code will have.
pub const CALL_CPU_SET_USER_GS_BASE: u16 = 0x12a;
/// Exchanges the user's and the kernel's GS base: first after an entry from user mode, and last before a cpu.iret or cpu.sysret to it.
pub const CALL_CPU_SWAPGS: u16 = 0x12b;
/// Sets the stack on which this vCPU enters privilege level 0; tss is the loaded TSS.
pub const CALL_CPU_SET_KERNEL_STACK: u16 = 0x12c;
/// Returns by the frame at the stack pointer (rip, cs, rflags, rsp, ss).
pub const CALL_CPU_IRET: u16 = 0x12d;
/// Returns to 64-bit user mode at rcx with rflags from r11.
pub const CALL_CPU_SYSRET: u16 = 0x12e;
/// Reads a port, width 1, 2 or 4 bytes.
pub const CALL_CPU_PORT_IN: u16 = 0x12f;
/// Writes a port, width 1, 2 or 4 bytes.
pub const CALL_CPU_PORT_OUT: u16 = 0x130;
/// Reads a port count times into a buffer.
pub const CALL_CPU_PORT_IN_STRING: u16 = 0x131;
/// Writes count values of a buffer to a port.
pub const CALL_CPU_PORT_OUT_STRING: u16 = 0x132;
/// Waits as long as an old device needs between two accesses: under a hypervisor, not at all.
pub const CALL_CPU_IO_DELAY: u16 = 0x133;
/// Sets an extended control register: XCR0, the state components that XSAVE handles.
pub const CALL_CPU_SET_XCR: u16 = 0x134;
/// Writes back and invalidates the caches.
pub const CALL_CPU_WBINVD: u16 = 0x135;
/// Sets which ports user code on this vCPU may use.
pub const CALL_CPU_SET_IO_BITMAP: u16 = 0x136;

/// Mmu.flush_space works; without this feature the kernel interrupts the other vCPUs itself.
pub const MMU_FLUSH_SPACE: u32 = 0x1;
/// User code cannot reach kernel memory; without this feature the machine is one trust domain, and the user bit is checked in the user range only.
pub const MMU_USER_ISOLATION: u32 = 0x2;
/// Mmu.fill of one entry also flushes it, on all vCPUs that have the space loaded.
pub const MMU_FILL_REPLACES: u32 = 0x4;
/// Mmu.set_cr3 accepts VMI_CR3_NO_VECTORS_2; new kernels use VMI_CR3_NO_VECTORS.
pub const MMU_NO_VECTORS_2: u32 = 0x8;
/// Mmu.set_cr3 accepts VMI_CR3_NO_VECTORS (since section version 3).
pub const MMU_NO_VECTORS: u32 = 0x10;
/// Mmu.flush_preempted works (since section version 4).
pub const MMU_FLUSH_PREEMPTED: u32 = 0x20;
/// Mmu.flush_kernel_everywhere works (since section version 5).
pub const MMU_FLUSH_KERNEL: u32 = 0x40;
/// Registers a page as a page table of this level, which may be or-ed with VMI_PT_KERNEL_ROOT.
pub const CALL_MMU_REGISTER_PAGE_TABLE: u16 = 0x200;
/// Ends the use of a page as a page table; without effect if it is not registered.
pub const CALL_MMU_RELEASE_PAGE_TABLE: u16 = 0x201;
/// Writes an entry of a page table.
pub const CALL_MMU_SET_PTE: u16 = 0x202;
/// Writes count consecutive entries.
pub const CALL_MMU_SET_PTES: u16 = 0x203;
/// Loads an address space.
pub const CALL_MMU_SET_CR3: u16 = 0x204;
/// Returns the last value given to mmu.set_cr3 (queued or not).
pub const CALL_MMU_GET_CR3: u16 = 0x205;
/// Flushes this vCPU's translation of one address, in the loaded space, global or not.
pub const CALL_MMU_INVALIDATE_PAGE: u16 = 0x206;
/// Flushes this vCPU's translations of the addresses from start to end - 1.
pub const CALL_MMU_INVALIDATE_RANGE: u16 = 0x207;
/// Flushes all of this vCPU's translations: VMI_FLUSH_USER or VMI_FLUSH_ALL.
pub const CALL_MMU_FLUSH_TLB: u16 = 0x208;
/// Flushes kernel translations of start to end - 1 on this vCPU, in every space, loaded or not.
pub const CALL_MMU_FLUSH_KERNEL_RANGE: u16 = 0x209;
/// Flushes start to end - 1 of a space on every vCPU: before it returns where the space is loaded, and by the generation at the next load where it is not.
pub const CALL_MMU_FLUSH_SPACE: u16 = 0x20a;
/// Enters VMI_LAZY_MMU or VMI_LAZY_CPU.
pub const CALL_MMU_SET_LAZY_MODE: u16 = 0x20b;
/// Carries out what is queued on this vCPU.
pub const CALL_MMU_FLUSH_QUEUE: u16 = 0x20c;
/// Announces that user code will soon use these count consecutive entries of a page table of the loaded space, so the layer may prepare their translations.
pub const CALL_MMU_FILL: u16 = 0x20d;
/// Announces that this vCPU loads the space with this root next, for the first time, and that the space will soon have much in common with earlier spaces that had the same hint.
pub const CALL_MMU_EXPECT_SPACE: u16 = 0x20e;
/// Returns 1 if another vCPU wants to run and does not.
pub const CALL_MMU_FLUSH_PREEMPTED: u16 = 0x20f;
/// Flushes kernel translations of start to end - 1 on every vCPU, in every space, loaded or not, before it returns.
pub const CALL_MMU_FLUSH_KERNEL_EVERYWHERE: u16 = 0x210;

/// Reads a register of 32 bits.
pub const CALL_APIC_READ: u16 = 0x300;
/// Writes a register of 32 bits.
pub const CALL_APIC_WRITE: u16 = 0x301;
/// Ends the interrupt of the highest priority that is in service.
pub const CALL_APIC_EOI: u16 = 0x302;
/// Sends an interprocessor interrupt.
pub const CALL_APIC_SEND_IPI: u16 = 0x303;

/// Sets the complete state in which a vCPU starts when it gets INIT and then STARTUP; without effect before.
pub const CALL_SMP_SET_AP_STATE: u16 = 0x400;
/// Returns the vector for the STARTUP interrupt.
pub const CALL_SMP_STARTUP_VECTOR: u16 = 0x401;
/// Writes what a vCPU has besides its registers and what must be carried when it is saved and continued elsewhere: of this vCPU, with interrupts disabled, or of one that has got an INIT, which has taken all but the pending bit.
pub const CALL_SMP_VCPU_STATE: u16 = 0x402;

/// The clock page is right without calls, whatever the vCPUs execute (since section version 2); without this feature it may wait for the next call of the section.
pub const TIME_PAGE_KEPT: u32 = 0x1;
/// Returns the frequency of cpu.read_tsc, Hz.
pub const CALL_TIME_FREQUENCY: u16 = 0x500;
/// Reads the three times of this vCPU in one consistent sample: real = available + stolen.
pub const CALL_TIME_READ: u16 = 0x501;
/// Returns nanoseconds since 1970-01-01T00:00:00Z.
pub const CALL_TIME_WALLCLOCK: u16 = 0x502;
/// Returns 1 once after the wall clock jumped against real time, else 0.
pub const CALL_TIME_WALLCLOCK_UPDATED: u16 = 0x503;
/// Gives the layer a page that it keeps up to date from now on; 0, 0 ends that.
pub const CALL_TIME_SET_CLOCK: u16 = 0x504;
/// Arms this vCPU's alarm of a counter, VMI_TIME_REAL or VMI_TIME_AVAILABLE, for the moment at which the counter reaches expiry (in the past: at once).
pub const CALL_TIME_SET_ALARM: u16 = 0x505;
/// Disarms an alarm.
pub const CALL_TIME_CANCEL_ALARM: u16 = 0x506;
/// Call it in the alarm interrupt.
pub const CALL_TIME_ACK_ALARM: u16 = 0x507;

/// Lock.run_state follows each vCPU; without this feature it always says that a vCPU runs.
pub const LOCK_RUN_STATES: u32 = 0x1;
/// Returns at once if *location differs from value (the pending bit then stays), or if this vCPU's pending bit is set, which it clears.
pub const CALL_LOCK_WAIT: u16 = 0x600;
/// Sets the pending bit of a vCPU, and wakes it if it waits.
pub const CALL_LOCK_KICK: u16 = 0x601;
/// Returns the pending bit of a vCPU, 0 or 1, for saving the vCPU's state.
pub const CALL_LOCK_PENDING: u16 = 0x602;
/// Returns 1 if the vCPU is ready to run and does not run, whatever runs on its processor, so that spinning for it is useless, else 0.
pub const CALL_LOCK_PREEMPTED: u16 = 0x603;
/// Gives way to a vCPU that is preempted.
pub const CALL_LOCK_YIELD: u16 = 0x604;
/// Returns the linear address of a vCPU's struct vmi_run_state, which the kernel may read at any time from then on, in an NMI too; 0 if vcpu is not below vcpu_count, or has no layer data.
pub const CALL_LOCK_RUN_STATE: u16 = 0x605;

/// Stubs are offered; without this feature every call answers ENOSYS.
pub const PATCH_SLOTS: u32 = 0x1;
/// VMI_SITE_ENTRY and patch.set_entry work.
pub const PATCH_ENTRIES: u32 = 0x2;
/// Patch.code works, for system calls.
pub const PATCH_CODE: u32 = 0x4;
/// Patch.code works for cpuid: VMI_SITE_CPUID and VMI_SITE_BODY.
pub const PATCH_CPUID: u32 = 0x8;
/// Prepares a stub for a site and returns what to write there.
pub const CALL_PATCH_CLAIM: u16 = 0x700;
/// Releases a stub, after the kernel has restored the site's own bytes and no vCPU can be in the stub.
pub const CALL_PATCH_RELEASE: u16 = 0x701;
/// For an invalid-opcode exception in user mode at *rip.
pub const CALL_PATCH_FIXUP: u16 = 0x702;
/// Sets where system calls from stubs enter the kernel on this vCPU.
pub const CALL_PATCH_SET_ENTRY: u16 = 0x703;
/// Writes the code of a stub that the kernel places itself, and returns its length.
pub const CALL_PATCH_CODE: u16 = 0x704;

/// Reads the statistics of one call since core.init or the last reset.
pub const CALL_STATS_READ: u16 = 0x800;
/// Sets all statistics to zero.
pub const CALL_STATS_RESET: u16 = 0x801;

/// Routes the interrupts of a line, with this vector, to the vCPU with this local APIC id.
pub const CALL_LINE_ROUTE: u16 = 0x900;
/// Notifies the device of a line that its driver has added buffers to a queue: the effect of a store of the queue's number to QueueNotify, without a trap.
pub const CALL_LINE_NOTIFY: u16 = 0x901;
/// Returns InterruptStatus of a line's device and clears the bits that it returns: the effect of a load, and of a store of the value to InterruptACK, without a trap.
pub const CALL_LINE_STATUS: u16 = 0x902;
/// Takes the signals of lines that are routed to VMI_LINE_NOTIFIER: bit n is set if line n was signalled since the last call on any vCPU.
pub const CALL_LINE_PENDING: u16 = 0x903;

/// Returns the guest-physical address of the registers of the bridge with this number.
pub const CALL_BUS_FIND: u16 = 0xa00;
/// Carries out the struct vbus_command of abi/vbus.toml that lies at the guest-physical address command: the effect of a store of that address to the register command, without a trap.
pub const CALL_BUS_COMMAND: u16 = 0xa01;
/// Notifies the device of a connection that its driver has changed a queue: the effect of a store of the connection's number to the register notify, without a fault or the decoding of an instruction.
pub const CALL_BUS_NOTIFY: u16 = 0xa02;

/// Every section with its calls, in the order of their numbers.
pub const SECTIONS: &[SectionInfo] = &[
    SectionInfo {
        id: 0,
        name: "core",
        version: 2,
        compat: 1,
        calls: &[
            CallInfo {
                number: 0x000,
                name: "core.probe",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x001,
                name: "core.init",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x002,
                name: "core.version",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x003,
                name: "core.reboot",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x004,
                name: "core.shutdown",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x005,
                name: "core.console_write",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x006,
                name: "core.costs",
                class: Class::Sysv,
                since: 2,
            },
        ],
    },
    SectionInfo {
        id: 1,
        name: "cpu",
        version: 2,
        compat: 1,
        calls: &[
            CallInfo {
                number: 0x100,
                name: "cpu.irq_disable",
                class: Class::Primitive,
                since: 1,
            },
            CallInfo {
                number: 0x101,
                name: "cpu.irq_enable",
                class: Class::Primitive,
                since: 1,
            },
            CallInfo {
                number: 0x102,
                name: "cpu.irq_flag",
                class: Class::Primitive,
                since: 1,
            },
            CallInfo {
                number: 0x103,
                name: "cpu.irq_restore",
                class: Class::Primitive,
                since: 1,
            },
            CallInfo {
                number: 0x104,
                name: "cpu.irq_save",
                class: Class::Primitive,
                since: 1,
            },
            CallInfo {
                number: 0x105,
                name: "cpu.halt",
                class: Class::Primitive,
                since: 1,
            },
            CallInfo {
                number: 0x106,
                name: "cpu.stop",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x107,
                name: "cpu.pause",
                class: Class::Primitive,
                since: 1,
            },
            CallInfo {
                number: 0x108,
                name: "cpu.get_cr0",
                class: Class::Primitive,
                since: 1,
            },
            CallInfo {
                number: 0x109,
                name: "cpu.set_cr0",
                class: Class::Primitive,
                since: 1,
            },
            CallInfo {
                number: 0x10a,
                name: "cpu.clts",
                class: Class::Primitive,
                since: 1,
            },
            CallInfo {
                number: 0x10b,
                name: "cpu.get_cr2",
                class: Class::Primitive,
                since: 1,
            },
            CallInfo {
                number: 0x10c,
                name: "cpu.set_cr2",
                class: Class::Primitive,
                since: 1,
            },
            CallInfo {
                number: 0x10d,
                name: "cpu.get_cr4",
                class: Class::Primitive,
                since: 1,
            },
            CallInfo {
                number: 0x10e,
                name: "cpu.set_cr4",
                class: Class::Primitive,
                since: 1,
            },
            CallInfo {
                number: 0x10f,
                name: "cpu.get_cr8",
                class: Class::Primitive,
                since: 1,
            },
            CallInfo {
                number: 0x110,
                name: "cpu.set_cr8",
                class: Class::Primitive,
                since: 1,
            },
            CallInfo {
                number: 0x111,
                name: "cpu.get_dr",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x112,
                name: "cpu.set_dr",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x113,
                name: "cpu.read_msr",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x114,
                name: "cpu.write_msr",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x115,
                name: "cpu.read_pmc",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x116,
                name: "cpu.cpuid",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x117,
                name: "cpu.read_tsc",
                class: Class::Primitive,
                since: 1,
            },
            CallInfo {
                number: 0x118,
                name: "cpu.set_gdt",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x119,
                name: "cpu.get_gdt",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x11a,
                name: "cpu.set_idt",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x11b,
                name: "cpu.get_idt",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x11c,
                name: "cpu.set_ldt",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x11d,
                name: "cpu.get_ldt",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x11e,
                name: "cpu.set_tr",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x11f,
                name: "cpu.get_tr",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x120,
                name: "cpu.write_gdt",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x121,
                name: "cpu.write_ldt",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x122,
                name: "cpu.write_idt",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x123,
                name: "cpu.set_tls",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x124,
                name: "cpu.load_gs",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x125,
                name: "cpu.get_fs_base",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x126,
                name: "cpu.set_fs_base",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x127,
                name: "cpu.get_gs_base",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x128,
                name: "cpu.set_gs_base",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x129,
                name: "cpu.get_user_gs_base",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x12a,
                name: "cpu.set_user_gs_base",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x12b,
                name: "cpu.swapgs",
                class: Class::Primitive,
                since: 1,
            },
            CallInfo {
                number: 0x12c,
                name: "cpu.set_kernel_stack",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x12d,
                name: "cpu.iret",
                class: Class::Jump,
                since: 1,
            },
            CallInfo {
                number: 0x12e,
                name: "cpu.sysret",
                class: Class::Jump,
                since: 1,
            },
            CallInfo {
                number: 0x12f,
                name: "cpu.port_in",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x130,
                name: "cpu.port_out",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x131,
                name: "cpu.port_in_string",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x132,
                name: "cpu.port_out_string",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x133,
                name: "cpu.io_delay",
                class: Class::Primitive,
                since: 1,
            },
            CallInfo {
                number: 0x134,
                name: "cpu.set_xcr",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x135,
                name: "cpu.wbinvd",
                class: Class::Primitive,
                since: 1,
            },
            CallInfo {
                number: 0x136,
                name: "cpu.set_io_bitmap",
                class: Class::Sysv,
                since: 2,
            },
        ],
    },
    SectionInfo {
        id: 2,
        name: "mmu",
        version: 5,
        compat: 1,
        calls: &[
            CallInfo {
                number: 0x200,
                name: "mmu.register_page_table",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x201,
                name: "mmu.release_page_table",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x202,
                name: "mmu.set_pte",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x203,
                name: "mmu.set_ptes",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x204,
                name: "mmu.set_cr3",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x205,
                name: "mmu.get_cr3",
                class: Class::Primitive,
                since: 1,
            },
            CallInfo {
                number: 0x206,
                name: "mmu.invalidate_page",
                class: Class::Primitive,
                since: 1,
            },
            CallInfo {
                number: 0x207,
                name: "mmu.invalidate_range",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x208,
                name: "mmu.flush_tlb",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x209,
                name: "mmu.flush_kernel_range",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x20a,
                name: "mmu.flush_space",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x20b,
                name: "mmu.set_lazy_mode",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x20c,
                name: "mmu.flush_queue",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x20d,
                name: "mmu.fill",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x20e,
                name: "mmu.expect_space",
                class: Class::Sysv,
                since: 2,
            },
            CallInfo {
                number: 0x20f,
                name: "mmu.flush_preempted",
                class: Class::Sysv,
                since: 4,
            },
            CallInfo {
                number: 0x210,
                name: "mmu.flush_kernel_everywhere",
                class: Class::Sysv,
                since: 5,
            },
        ],
    },
    SectionInfo {
        id: 3,
        name: "apic",
        version: 1,
        compat: 1,
        calls: &[
            CallInfo {
                number: 0x300,
                name: "apic.read",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x301,
                name: "apic.write",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x302,
                name: "apic.eoi",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x303,
                name: "apic.send_ipi",
                class: Class::Sysv,
                since: 1,
            },
        ],
    },
    SectionInfo {
        id: 4,
        name: "smp",
        version: 2,
        compat: 1,
        calls: &[
            CallInfo {
                number: 0x400,
                name: "smp.set_ap_state",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x401,
                name: "smp.startup_vector",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x402,
                name: "smp.vcpu_state",
                class: Class::Sysv,
                since: 2,
            },
        ],
    },
    SectionInfo {
        id: 5,
        name: "time",
        version: 2,
        compat: 1,
        calls: &[
            CallInfo {
                number: 0x500,
                name: "time.frequency",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x501,
                name: "time.read",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x502,
                name: "time.wallclock",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x503,
                name: "time.wallclock_updated",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x504,
                name: "time.set_clock",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x505,
                name: "time.set_alarm",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x506,
                name: "time.cancel_alarm",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x507,
                name: "time.ack_alarm",
                class: Class::Sysv,
                since: 1,
            },
        ],
    },
    SectionInfo {
        id: 6,
        name: "lock",
        version: 2,
        compat: 1,
        calls: &[
            CallInfo {
                number: 0x600,
                name: "lock.wait",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x601,
                name: "lock.kick",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x602,
                name: "lock.pending",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x603,
                name: "lock.preempted",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x604,
                name: "lock.yield",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x605,
                name: "lock.run_state",
                class: Class::Sysv,
                since: 2,
            },
        ],
    },
    SectionInfo {
        id: 7,
        name: "patch",
        version: 3,
        compat: 1,
        calls: &[
            CallInfo {
                number: 0x700,
                name: "patch.claim",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x701,
                name: "patch.release",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x702,
                name: "patch.fixup",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x703,
                name: "patch.set_entry",
                class: Class::Sysv,
                since: 2,
            },
            CallInfo {
                number: 0x704,
                name: "patch.code",
                class: Class::Sysv,
                since: 3,
            },
        ],
    },
    SectionInfo {
        id: 8,
        name: "stats",
        version: 1,
        compat: 1,
        calls: &[
            CallInfo {
                number: 0x800,
                name: "stats.read",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x801,
                name: "stats.reset",
                class: Class::Sysv,
                since: 1,
            },
        ],
    },
    SectionInfo {
        id: 9,
        name: "line",
        version: 2,
        compat: 1,
        calls: &[
            CallInfo {
                number: 0x900,
                name: "line.route",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0x901,
                name: "line.notify",
                class: Class::Sysv,
                since: 2,
            },
            CallInfo {
                number: 0x902,
                name: "line.status",
                class: Class::Sysv,
                since: 2,
            },
            CallInfo {
                number: 0x903,
                name: "line.pending",
                class: Class::Sysv,
                since: 2,
            },
        ],
    },
    SectionInfo {
        id: 10,
        name: "bus",
        version: 1,
        compat: 1,
        calls: &[
            CallInfo {
                number: 0xa00,
                name: "bus.find",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0xa01,
                name: "bus.command",
                class: Class::Sysv,
                since: 1,
            },
            CallInfo {
                number: 0xa02,
                name: "bus.notify",
                class: Class::Sysv,
                since: 1,
            },
        ],
    },
];
