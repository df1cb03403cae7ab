/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * The VMI. Made by tools/abigen from abi/vmi.toml: change that, not this.
 * The rules that are not tables are in docs/vmi.md.
 */
#ifndef PARAVANE_VMI_H
#define PARAVANE_VMI_H

#define VMI_API_MAJOR 1
#define VMI_API_MINOR 6
#define VMI_API_VERSION (VMI_API_MAJOR << 16 | VMI_API_MINOR)

/* Option ROM and header */
#define VMI_ROM_SIGNATURE 0xaa55 /* u16 at offset 0 (bytes 55 AA), as in every option ROM */
#define VMI_SIGNATURE 0x36494d56 /* u32 at offset 8: the characters VMI6 */
#define VMI_ROM_UNIT 0x200 /* bytes in one unit of rom_length */
#define VMI_ROM_SCAN_START 0xc0000 /* first guest-physical address that is scanned for ROMs */
#define VMI_ROM_SCAN_END 0xf0000 /* first guest-physical address after the scanned range */
#define VMI_ROM_SCAN_STEP 0x800 /* alignment of a ROM, bytes */
#define VMI_HEADER_SIZE 0x80 /* bytes of struct vmi_rom_header */
#define VMI_LAYER_ALIGN 0x1000 /* alignment of a loaded layer, bytes */
#define VMI_PERCPU_ALIGN 0x40 /* alignment of a vCPU's layer data, bytes */
#define VMI_COSTS_MAX 0x100 /* largest size for core.costs, bytes */
#define VMI_INLINE_MAX 0xf /* longest inline replacement, bytes */

/* Bits of vmi_rom_header.flags */
#define VMI_HEADER_IN_PLACE 0x1 /* the hypervisor has mapped the layer where it must stay: do not copy it */
#define VMI_HEADER_PARAVIRT 0x2 /* privileged instructions do not work under this layer: only sites whose instruction needs no privilege may have VMI_RELOC_NONE, and a kernel that cannot patch must stop */

/* What the kernel does to a site of this call (vmi_call_entry.reloc) */
#define VMI_RELOC_NONE 0x0 /* leave the native instruction in place */
#define VMI_RELOC_CALL 0x1 /* call rel32 to base + offset */
#define VMI_RELOC_JUMP 0x2 /* jmp rel32 to base + offset; only for calls that do not return */
#define VMI_RELOC_NOP 0x3 /* erase the site */
#define VMI_RELOC_INLINE 0x4 /* copy the struct vmi_inline at inline_offset; when the site is too short, as CALL */

/* Errors; a call that fails returns the negated value */
#define VMI_EPERM 0x1 /* not allowed in this state */
#define VMI_ENOENT 0x2 /* no such section, vCPU or stub */
#define VMI_EFAULT 0xe /* the operation faulted (unknown MSR, address not mapped) */
#define VMI_EBUSY 0x10 /* in use */
#define VMI_ENODEV 0x13 /* this layer cannot run here */
#define VMI_EINVAL 0x16 /* an argument is outside what the call defines */
#define VMI_ENOSPC 0x1c /* no room */
#define VMI_ERANGE 0x22 /* a version does not fit */
#define VMI_ENOSYS 0x26 /* this layer does not implement the call; the kernel uses its own way */

/* Interrupt flag */
#define VMI_FLAGS_IF 0x200 /* the interrupt flag as RFLAGS has it */

/* Argument of core.reboot */
#define VMI_REBOOT_SOFT 0x0 /* like INIT: processors start again; memory is kept where the machine can keep it */
#define VMI_REBOOT_HARD 0x1 /* like the reset line */

/* Levels of page tables, and flags of mmu.register_page_table */
#define VMI_LEVEL_PT 0x1 /* maps 4 KiB */
#define VMI_LEVEL_PD 0x2 /* maps 2 MiB */
#define VMI_LEVEL_PDPT 0x3 /* maps 1 GiB */
#define VMI_LEVEL_PML4 0x4 /* a root */
#define VMI_PT_KERNEL_ROOT 0x10 /* kernel addresses are always translated with this root */
#define VMI_EXPECT_END 0x40000000 /* mmu.expect_space: end of the addresses that the kernel promises not to read */
#define VMI_CR3_NO_VECTORS 0x100000000000000 /* mmu.set_cr3: the x87 and vector registers hold nothing that is needed; from the call until it has taken effect, they may hold anything that the machine has had in them. Only if the layer has VMI_MMU_NO_VECTORS */
#define VMI_CR3_NO_VECTORS_2 0x800 /* the same for kernels that were written for section version 2: a bit that PCIDs would need. Only if the layer has VMI_MMU_NO_VECTORS_2 */

/* Flags of mmu.set_pte and mmu.set_ptes, or-ed with the level */
#define VMI_PTE_LEVEL_MASK 0xf /* the level, VMI_LEVEL_PT to VMI_LEVEL_PML4 */
#define VMI_PTE_CURRENT 0x10 /* the entry belongs to the loaded space and va is the address that it maps */
#define VMI_PTE_DEFER 0x20 /* the effect may wait until the next flush, queue flush or end of a lazy mode */

/* Modes of mmu.set_lazy_mode */
#define VMI_LAZY_NONE 0x0 /* everything takes effect at once */
#define VMI_LAZY_MMU 0x1 /* page-table writes may be queued */
#define VMI_LAZY_CPU 0x2 /* kernel stack, TLS, descriptor and CR3 loads may be queued (a context switch) */

/* Flags of mmu.flush_tlb */
#define VMI_FLUSH_USER 0x1 /* all translations except global ones */
#define VMI_FLUSH_ALL 0x3 /* global ones too */

/* Time counters, and flags of time.set_alarm */
#define VMI_TIME_REAL 0x0 /* real time: advances whatever the vCPU does */
#define VMI_TIME_AVAILABLE 0x1 /* real time less stolen time: the vCPU ran or was halted */
#define VMI_TIME_STOLEN 0x2 /* the vCPU wanted to run and did not */
#define VMI_ALARM_PERIODIC 0x100 /* or-ed with the counter: the alarm repeats */
#define VMI_ALARM_MIN_PERIOD_NS 0x2710 /* shortest period, ns */

/* Run states of a vCPU: vmi_run_state.state */
#define VMI_RUN_OFF 0x0 /* waits for STARTUP */
#define VMI_RUN_RUNNING 0x1 /* runs, polls in cpu.halt, or has lost its processor: lock.preempted tells */
#define VMI_RUN_HALTED 0x2 /* waits in cpu.halt or lock.wait, without a processor */
#define VMI_RUN_READY 0x3 /* wants to run and has not begun to: it was woken, or moves between address spaces */

/* Times of lock.preempted, ns */
#define VMI_PREEMPTED_LATE_NS 0x186a0 /* age of what lock.preempted says to a vCPU that asks again and again */
#define VMI_PREEMPTED_ASK_NS 0x61a8 /* longest time between two calls of a vCPU that does */

/* Places of line.route that are no local APIC */
#define VMI_LINE_NOTIFIER 0xfffffffe /* the vCPU that notified the device last; see line.pending */

/* Commands of bus.command */
#define VMI_BUS_COMMAND_ALIGN 0x40 /* alignment of a command in guest memory, bytes: its size */

/* Interrupt vectors */
#define VMI_VECTOR_MIN 0x20 /* lowest vector of an interrupt or alarm */
#define VMI_VECTOR_MAX 0xff /* highest vector */

/* Statistics */
#define VMI_STATS_BUCKETS 0x20 /* buckets of a histogram: bucket n counts calls of 2^n to 2^(n+1)-1 cycles; the last one also counts longer calls, the first also 0 */

/* Stubs for system calls */
#define VMI_PATCH_BYTE 0x6 /* bits 16 to 23 of every address of an area: a jump to the second half of a replaced site must meet an opcode that is invalid in 64-bit mode */
#define VMI_SITE_ENTRY 0x1 /* vmi_syscall_site.flags, patch.claim: only make the stub */
#define VMI_SITE_CPUID 0x2 /* vmi_syscall_site.flags, patch.code: the instruction at syscall_offset is cpuid */
#define VMI_SITE_BODY 0x4 /* vmi_syscall_site.flags, patch.code: the body that all cpuid stubs of a text share */
#define VMI_PATCH_SLOT_MAX 0x30 /* longest stub that patch.code writes, bytes */
#define VMI_PATCH_BODY_MAX 0x80 /* longest body that patch.code writes, bytes */

/* Start by a hypervisor (ELF note and boot information) */
#define VMI_NOTE_ENTRY 0x1 /* type of the ELF note, name VMI: desc is struct vmi_note_entry */
#define VMI_NOTE_COMPACT 0x1 /* bit of vmi_note_entry.flags: the kernel takes any user_end from 2^46 to 2^47, and needs 3 TiB from direct_map on if RAM has no more than 1 TiB */
#define VMI_BOOT_MAGIC 0x544f4f42494d56 /* vmi_boot_info.magic: VMIBOOT */
#define VMI_BOOT_MAX_MEM 0x10 /* entries of the memory map */
#define VMI_MEM_RAM 0x1 /* memory map type: usable RAM */
#define VMI_MEM_RESERVED 0x2 /* memory map type: must not be used */
#define VMI_BOOT_MAX_HOLES 0x4 /* entries of the list of reserved linear addresses */
#define VMI_DEVICE_VIRTIO_MMIO 0x1 /* kind of a device: virtio over MMIO, version 2 (virtio 1.2, section 4.2) */
#define VMI_DEVICE_VBUS 0x2 /* kind of a device: a bridge to a virtual bus, docs/vbus.md */

/* struct vmi_rom_header */
#define VMI_SIZE_ROM_HEADER 128
#define VMI_OFF_ROM_HEADER_ROM_SIGNATURE 0
#define VMI_OFF_ROM_HEADER_ROM_LENGTH 2
#define VMI_OFF_ROM_HEADER_BIOS_ENTRY 3
#define VMI_OFF_ROM_HEADER_CHECKSUM 7
#define VMI_OFF_ROM_HEADER_VMI_SIGNATURE 8
#define VMI_OFF_ROM_HEADER_API_MINOR 12
#define VMI_OFF_ROM_HEADER_API_MAJOR 13
#define VMI_OFF_ROM_HEADER_HEADER_SIZE 14
#define VMI_OFF_ROM_HEADER_IMAGE_SIZE 16
#define VMI_OFF_ROM_HEADER_LOAD_SIZE 20
#define VMI_OFF_ROM_HEADER_PCI_HEADER 24
#define VMI_OFF_ROM_HEADER_PNP_HEADER 26
#define VMI_OFF_ROM_HEADER_PERCPU_SIZE 28
#define VMI_OFF_ROM_HEADER_SECTIONS 32
#define VMI_OFF_ROM_HEADER_SECTION_COUNT 36
#define VMI_OFF_ROM_HEADER_SECTION_SIZE 38
#define VMI_OFF_ROM_HEADER_EXTABLE 40
#define VMI_OFF_ROM_HEADER_EXTABLE_COUNT 44
#define VMI_OFF_ROM_HEADER_RESERVE_START 48
#define VMI_OFF_ROM_HEADER_RESERVE_END 56
#define VMI_OFF_ROM_HEADER_NAME 64
#define VMI_OFF_ROM_HEADER_FLAGS 80
#define VMI_OFF_ROM_HEADER_CALL_SIZE 84
#define VMI_OFF_ROM_HEADER_RESERVED 88

/* struct vmi_section */
#define VMI_SIZE_SECTION 16
#define VMI_OFF_SECTION_ID 0
#define VMI_OFF_SECTION_VERSION 2
#define VMI_OFF_SECTION_COMPAT 4
#define VMI_OFF_SECTION_CALL_COUNT 6
#define VMI_OFF_SECTION_CALLS 8
#define VMI_OFF_SECTION_FEATURES 12

/* struct vmi_call_entry */
#define VMI_SIZE_CALL_ENTRY 12
#define VMI_OFF_CALL_ENTRY_OFFSET 0
#define VMI_OFF_CALL_ENTRY_RELOC 4
#define VMI_OFF_CALL_ENTRY_RESERVED 5
#define VMI_OFF_CALL_ENTRY_INLINE_OFFSET 8

/* struct vmi_inline */
#define VMI_SIZE_INLINE 16
#define VMI_OFF_INLINE_LENGTH 0
#define VMI_OFF_INLINE_CODE 1

/* struct vmi_extable_entry */
#define VMI_SIZE_EXTABLE_ENTRY 8
#define VMI_OFF_EXTABLE_ENTRY_INSN 0
#define VMI_OFF_EXTABLE_ENTRY_FIXUP 4

/* struct vmi_site */
#define VMI_SIZE_SITE 8
#define VMI_OFF_SITE_ADDR 0
#define VMI_OFF_SITE_CALL 4
#define VMI_OFF_SITE_LENGTH 6
#define VMI_OFF_SITE_RESERVED 7

/* struct vmi_percpu */
#define VMI_SIZE_PERCPU 64
#define VMI_OFF_PERCPU_DATA 0
#define VMI_OFF_PERCPU_VCPU 8
#define VMI_OFF_PERCPU_APIC_ID 12
#define VMI_OFF_PERCPU_FAST 16

/* struct vmi_init */
#define VMI_SIZE_INIT 128
#define VMI_OFF_INIT_SIZE 0
#define VMI_OFF_INIT_API_VERSION 4
#define VMI_OFF_INIT_LAYER_BASE 8
#define VMI_OFF_INIT_DIRECT_MAP 16
#define VMI_OFF_INIT_DIRECT_MAP_SIZE 24
#define VMI_OFF_INIT_PERCPU_GS_OFFSET 32
#define VMI_OFF_INIT_PERCPU_TABLE 40
#define VMI_OFF_INIT_VCPU_COUNT 48
#define VMI_OFF_INIT_FLAGS 52
#define VMI_OFF_INIT_APIC 56
#define VMI_OFF_INIT_LOW_PAGE 64
#define VMI_OFF_INIT_TSC_HZ 72
#define VMI_OFF_INIT_KERNEL_CS 80
#define VMI_OFF_INIT_KERNEL_SS 82
#define VMI_OFF_INIT_USER_CS 84
#define VMI_OFF_INIT_USER_SS 86
#define VMI_OFF_INIT_RESERVED 88

/* struct vmi_cpuid */
#define VMI_SIZE_CPUID 16
#define VMI_OFF_CPUID_EAX 0
#define VMI_OFF_CPUID_EBX 4
#define VMI_OFF_CPUID_ECX 8
#define VMI_OFF_CPUID_EDX 12

/* struct vmi_table_register */
#define VMI_SIZE_TABLE_REGISTER 16
#define VMI_OFF_TABLE_REGISTER_PAD 0
#define VMI_OFF_TABLE_REGISTER_LIMIT 6
#define VMI_OFF_TABLE_REGISTER_BASE 8

/* struct vmi_ap_state */
#define VMI_SIZE_AP_STATE 256
#define VMI_OFF_AP_STATE_CR0 0
#define VMI_OFF_AP_STATE_CR3 8
#define VMI_OFF_AP_STATE_CR4 16
#define VMI_OFF_AP_STATE_EFER 24
#define VMI_OFF_AP_STATE_RIP 32
#define VMI_OFF_AP_STATE_RFLAGS 40
#define VMI_OFF_AP_STATE_GPR 48
#define VMI_OFF_AP_STATE_FS_BASE 176
#define VMI_OFF_AP_STATE_GS_BASE 184
#define VMI_OFF_AP_STATE_GDT_BASE 192
#define VMI_OFF_AP_STATE_IDT_BASE 200
#define VMI_OFF_AP_STATE_GDT_LIMIT 208
#define VMI_OFF_AP_STATE_IDT_LIMIT 210
#define VMI_OFF_AP_STATE_CS 212
#define VMI_OFF_AP_STATE_SS 214
#define VMI_OFF_AP_STATE_TR 216
#define VMI_OFF_AP_STATE_LDTR 218
#define VMI_OFF_AP_STATE_CONTEXT 220
#define VMI_OFF_AP_STATE_CONTEXT_ID 224
#define VMI_OFF_AP_STATE_GENERATION 232
#define VMI_OFF_AP_STATE_RESERVED 240

/* struct vmi_costs */
#define VMI_SIZE_COSTS 32
#define VMI_OFF_COSTS_PAGE_FAULT 0
#define VMI_OFF_COSTS_FLUSH 4
#define VMI_OFF_COSTS_RUN_PAGES 8
#define VMI_OFF_COSTS_SYSCALL_TRAP 12
#define VMI_OFF_COSTS_CPUID 16
#define VMI_OFF_COSTS_RESERVED 20

/* struct vmi_times */
#define VMI_SIZE_TIMES 24
#define VMI_OFF_TIMES_REAL 0
#define VMI_OFF_TIMES_AVAILABLE 8
#define VMI_OFF_TIMES_STOLEN 16

/* struct vmi_clock */
#define VMI_SIZE_CLOCK 64
#define VMI_OFF_CLOCK_SEQUENCE 0
#define VMI_OFF_CLOCK_FLAGS 4
#define VMI_OFF_CLOCK_TSC 8
#define VMI_OFF_CLOCK_REAL_NS 16
#define VMI_OFF_CLOCK_WALL_NS 24
#define VMI_OFF_CLOCK_MULT 32
#define VMI_OFF_CLOCK_SHIFT 36
#define VMI_OFF_CLOCK_RESERVED 40

/* struct vmi_run_state */
#define VMI_SIZE_RUN_STATE 64
#define VMI_OFF_RUN_STATE_STATE 0
#define VMI_OFF_RUN_STATE_PREEMPTED 4
#define VMI_OFF_RUN_STATE_STOLEN 8
#define VMI_OFF_RUN_STATE_RESERVED 16

/* struct vmi_vcpu_state */
#define VMI_SIZE_VCPU_STATE 128
#define VMI_OFF_VCPU_STATE_KICK 0
#define VMI_OFF_VCPU_STATE_ARMED 4
#define VMI_OFF_VCPU_STATE_ALARM_VECTOR 8
#define VMI_OFF_VCPU_STATE_ZERO 12
#define VMI_OFF_VCPU_STATE_EXPIRY 16
#define VMI_OFF_VCPU_STATE_PERIOD 32
#define VMI_OFF_VCPU_STATE_REQUESTED 48
#define VMI_OFF_VCPU_STATE_RESERVED 80

/* struct vmi_syscall_site */
#define VMI_SIZE_SYSCALL_SITE 64
#define VMI_OFF_SYSCALL_SITE_ADDR 0
#define VMI_OFF_SYSCALL_SITE_CODE 8
#define VMI_OFF_SYSCALL_SITE_LENGTH 24
#define VMI_OFF_SYSCALL_SITE_SYSCALL_OFFSET 28
#define VMI_OFF_SYSCALL_SITE_SLOT 32
#define VMI_OFF_SYSCALL_SITE_PATCH 40
#define VMI_OFF_SYSCALL_SITE_PATCH_LENGTH 56
#define VMI_OFF_SYSCALL_SITE_FLAGS 60

/* struct vmi_patch_area */
#define VMI_SIZE_PATCH_AREA 32
#define VMI_OFF_PATCH_AREA_USER 0
#define VMI_OFF_PATCH_AREA_KERNEL 8
#define VMI_OFF_PATCH_AREA_SIZE 16
#define VMI_OFF_PATCH_AREA_USED 24

/* struct vmi_call_stats */
#define VMI_SIZE_CALL_STATS 272
#define VMI_OFF_CALL_STATS_CALLS 0
#define VMI_OFF_CALL_STATS_CYCLES 8
#define VMI_OFF_CALL_STATS_BUCKETS 16

/* struct vmi_mem */
#define VMI_SIZE_MEM 24
#define VMI_OFF_MEM_GPA 0
#define VMI_OFF_MEM_SIZE 8
#define VMI_OFF_MEM_KIND 16
#define VMI_OFF_MEM_RESERVED 20

/* struct vmi_hole */
#define VMI_SIZE_HOLE 16
#define VMI_OFF_HOLE_START 0
#define VMI_OFF_HOLE_END 8

/* struct vmi_device */
#define VMI_SIZE_DEVICE 32
#define VMI_OFF_DEVICE_KIND 0
#define VMI_OFF_DEVICE_LINE 4
#define VMI_OFF_DEVICE_GPA 8
#define VMI_OFF_DEVICE_SIZE 16
#define VMI_OFF_DEVICE_RESERVED 24

/* struct vmi_note_entry */
#define VMI_SIZE_NOTE_ENTRY 16
#define VMI_OFF_NOTE_ENTRY_ENTRY 0
#define VMI_OFF_NOTE_ENTRY_API_VERSION 8
#define VMI_OFF_NOTE_ENTRY_FLAGS 12

/* struct vmi_boot_info */
#define VMI_SIZE_BOOT_INFO 640
#define VMI_OFF_BOOT_INFO_MAGIC 0
#define VMI_OFF_BOOT_INFO_SIZE 8
#define VMI_OFF_BOOT_INFO_API_VERSION 12
#define VMI_OFF_BOOT_INFO_ROM 16
#define VMI_OFF_BOOT_INFO_ROM_SIZE 24
#define VMI_OFF_BOOT_INFO_IMAGE 32
#define VMI_OFF_BOOT_INFO_IMAGE_GPA 40
#define VMI_OFF_BOOT_INFO_IMAGE_SIZE 48
#define VMI_OFF_BOOT_INFO_IMAGE_DELTA 56
#define VMI_OFF_BOOT_INFO_DIRECT_MAP 64
#define VMI_OFF_BOOT_INFO_DIRECT_MAP_SIZE 72
#define VMI_OFF_BOOT_INFO_USER_END 80
#define VMI_OFF_BOOT_INFO_COMMAND_LINE 88
#define VMI_OFF_BOOT_INFO_INITRD_GPA 96
#define VMI_OFF_BOOT_INFO_INITRD_SIZE 104
#define VMI_OFF_BOOT_INFO_VCPU_COUNT 112
#define VMI_OFF_BOOT_INFO_MEM_COUNT 116
#define VMI_OFF_BOOT_INFO_HOLE_COUNT 120
#define VMI_OFF_BOOT_INFO_FLAGS 124
#define VMI_OFF_BOOT_INFO_TSC_HZ 128
#define VMI_OFF_BOOT_INFO_MEM 136
#define VMI_OFF_BOOT_INFO_HOLES 520
#define VMI_OFF_BOOT_INFO_DEVICES 584
#define VMI_OFF_BOOT_INFO_DEVICE_COUNT 592
#define VMI_OFF_BOOT_INFO_DEVICE_SIZE 596
#define VMI_OFF_BOOT_INFO_RESERVED 600

/* Section core: Finding, starting and ending. */
#define VMI_SECTION_CORE 0
#define VMI_SECTION_CORE_VERSION 2
#define VMI_SECTION_CORE_COMPAT 1
#define VMI_SECTION_CORE_CALLS 7
#define VMI_CALL_CORE_PROBE 0x000
#define VMI_CALL_CORE_INIT 0x001
#define VMI_CALL_CORE_VERSION 0x002
#define VMI_CALL_CORE_REBOOT 0x003
#define VMI_CALL_CORE_SHUTDOWN 0x004
#define VMI_CALL_CORE_CONSOLE_WRITE 0x005
#define VMI_CALL_CORE_COSTS 0x006

/* Section cpu: What the processor does differently, or not at all, outside privilege level 0. */
#define VMI_SECTION_CPU 1
#define VMI_SECTION_CPU_VERSION 2
#define VMI_SECTION_CPU_COMPAT 1
#define VMI_SECTION_CPU_CALLS 55
#define VMI_CPU_TASK_SWITCHED 0x1 /* CR0.TS makes FPU instructions raise #NM; without this feature the bit is only kept */
#define VMI_CPU_SEGMENTS 0x2 /* descriptors of the GDT, LDT and TLS, and IDT stack switching, work in user and kernel mode as on a processor; without this feature they are only kept */
#define VMI_CPU_XCR 0x4 /* XCR0 can be changed; without this feature cpu.set_xcr accepts only the present value */
#define VMI_CALL_CPU_IRQ_DISABLE 0x100
#define VMI_CALL_CPU_IRQ_ENABLE 0x101
#define VMI_CALL_CPU_IRQ_FLAG 0x102
#define VMI_CALL_CPU_IRQ_RESTORE 0x103
#define VMI_CALL_CPU_IRQ_SAVE 0x104
#define VMI_CALL_CPU_HALT 0x105
#define VMI_CALL_CPU_STOP 0x106
#define VMI_CALL_CPU_PAUSE 0x107
#define VMI_CALL_CPU_GET_CR0 0x108
#define VMI_CALL_CPU_SET_CR0 0x109
#define VMI_CALL_CPU_CLTS 0x10a
#define VMI_CALL_CPU_GET_CR2 0x10b
#define VMI_CALL_CPU_SET_CR2 0x10c
#define VMI_CALL_CPU_GET_CR4 0x10d
#define VMI_CALL_CPU_SET_CR4 0x10e
#define VMI_CALL_CPU_GET_CR8 0x10f
#define VMI_CALL_CPU_SET_CR8 0x110
#define VMI_CALL_CPU_GET_DR 0x111
#define VMI_CALL_CPU_SET_DR 0x112
#define VMI_CALL_CPU_READ_MSR 0x113
#define VMI_CALL_CPU_WRITE_MSR 0x114
#define VMI_CALL_CPU_READ_PMC 0x115
#define VMI_CALL_CPU_CPUID 0x116
#define VMI_CALL_CPU_READ_TSC 0x117
#define VMI_CALL_CPU_SET_GDT 0x118
#define VMI_CALL_CPU_GET_GDT 0x119
#define VMI_CALL_CPU_SET_IDT 0x11a
#define VMI_CALL_CPU_GET_IDT 0x11b
#define VMI_CALL_CPU_SET_LDT 0x11c
#define VMI_CALL_CPU_GET_LDT 0x11d
#define VMI_CALL_CPU_SET_TR 0x11e
#define VMI_CALL_CPU_GET_TR 0x11f
#define VMI_CALL_CPU_WRITE_GDT 0x120
#define VMI_CALL_CPU_WRITE_LDT 0x121
#define VMI_CALL_CPU_WRITE_IDT 0x122
#define VMI_CALL_CPU_SET_TLS 0x123
#define VMI_CALL_CPU_LOAD_GS 0x124
#define VMI_CALL_CPU_GET_FS_BASE 0x125
#define VMI_CALL_CPU_SET_FS_BASE 0x126
#define VMI_CALL_CPU_GET_GS_BASE 0x127
#define VMI_CALL_CPU_SET_GS_BASE 0x128
#define VMI_CALL_CPU_GET_USER_GS_BASE 0x129
#define VMI_CALL_CPU_SET_USER_GS_BASE 0x12a
#define VMI_CALL_CPU_SWAPGS 0x12b
#define VMI_CALL_CPU_SET_KERNEL_STACK 0x12c
#define VMI_CALL_CPU_IRET 0x12d
#define VMI_CALL_CPU_SYSRET 0x12e
#define VMI_CALL_CPU_PORT_IN 0x12f
#define VMI_CALL_CPU_PORT_OUT 0x130
#define VMI_CALL_CPU_PORT_IN_STRING 0x131
#define VMI_CALL_CPU_PORT_OUT_STRING 0x132
#define VMI_CALL_CPU_IO_DELAY 0x133
#define VMI_CALL_CPU_SET_XCR 0x134
#define VMI_CALL_CPU_WBINVD 0x135
#define VMI_CALL_CPU_SET_IO_BITMAP 0x136
#define VMI_NATIVE_CPU_IRQ_DISABLE cli
#define VMI_NATIVE_STR_CPU_IRQ_DISABLE "cli"
#define VMI_NATIVE_CPU_IRQ_ENABLE sti
#define VMI_NATIVE_STR_CPU_IRQ_ENABLE "sti"
#define VMI_NATIVE_CPU_IRQ_FLAG pushfq; popq %rax
#define VMI_NATIVE_STR_CPU_IRQ_FLAG "pushfq; popq %%rax"
#define VMI_NATIVE_CPU_IRQ_RESTORE pushq %rdi; popfq
#define VMI_NATIVE_STR_CPU_IRQ_RESTORE "pushq %%rdi; popfq"
#define VMI_NATIVE_CPU_IRQ_SAVE pushfq; popq %rax; cli
#define VMI_NATIVE_STR_CPU_IRQ_SAVE "pushfq; popq %%rax; cli"
#define VMI_NATIVE_CPU_HALT sti; hlt
#define VMI_NATIVE_STR_CPU_HALT "sti; hlt"
#define VMI_NATIVE_CPU_PAUSE pause
#define VMI_NATIVE_STR_CPU_PAUSE "pause"
#define VMI_NATIVE_CPU_GET_CR0 movq %cr0, %rax
#define VMI_NATIVE_STR_CPU_GET_CR0 "movq %%cr0, %%rax"
#define VMI_NATIVE_CPU_SET_CR0 movq %rdi, %cr0
#define VMI_NATIVE_STR_CPU_SET_CR0 "movq %%rdi, %%cr0"
#define VMI_NATIVE_CPU_CLTS clts
#define VMI_NATIVE_STR_CPU_CLTS "clts"
#define VMI_NATIVE_CPU_GET_CR2 movq %cr2, %rax
#define VMI_NATIVE_STR_CPU_GET_CR2 "movq %%cr2, %%rax"
#define VMI_NATIVE_CPU_SET_CR2 movq %rdi, %cr2
#define VMI_NATIVE_STR_CPU_SET_CR2 "movq %%rdi, %%cr2"
#define VMI_NATIVE_CPU_GET_CR4 movq %cr4, %rax
#define VMI_NATIVE_STR_CPU_GET_CR4 "movq %%cr4, %%rax"
#define VMI_NATIVE_CPU_SET_CR4 movq %rdi, %cr4
#define VMI_NATIVE_STR_CPU_SET_CR4 "movq %%rdi, %%cr4"
#define VMI_NATIVE_CPU_GET_CR8 movq %cr8, %rax
#define VMI_NATIVE_STR_CPU_GET_CR8 "movq %%cr8, %%rax"
#define VMI_NATIVE_CPU_SET_CR8 movq %rdi, %cr8
#define VMI_NATIVE_STR_CPU_SET_CR8 "movq %%rdi, %%cr8"
#define VMI_NATIVE_CPU_READ_TSC pushq %rdx; rdtsc; shlq $32, %rdx; orq %rdx, %rax; popq %rdx
#define VMI_NATIVE_STR_CPU_READ_TSC "pushq %%rdx; rdtsc; shlq $32, %%rdx; orq %%rdx, %%rax; popq %%rdx"
#define VMI_NATIVE_CPU_SWAPGS swapgs
#define VMI_NATIVE_STR_CPU_SWAPGS "swapgs"
#define VMI_NATIVE_CPU_IRET iretq
#define VMI_NATIVE_STR_CPU_IRET "iretq"
#define VMI_NATIVE_CPU_SYSRET sysretq
#define VMI_NATIVE_STR_CPU_SYSRET "sysretq"
#define VMI_NATIVE_CPU_IO_DELAY outb %al, $0x80
#define VMI_NATIVE_STR_CPU_IO_DELAY "outb %%al, $0x80"
#define VMI_NATIVE_CPU_WBINVD wbinvd
#define VMI_NATIVE_STR_CPU_WBINVD "wbinvd"

/* Section mmu: Page tables and translations. A translation may be used until it is flushed; a not-present entry is never cached. So correctness depends on flushes and CR3 loads; set_pte, registration and fill make a hypervisor fast. */
#define VMI_SECTION_MMU 2
#define VMI_SECTION_MMU_VERSION 5
#define VMI_SECTION_MMU_COMPAT 1
#define VMI_SECTION_MMU_CALLS 17
#define VMI_MMU_FLUSH_SPACE 0x1 /* mmu.flush_space works; without this feature the kernel interrupts the other vCPUs itself */
#define VMI_MMU_USER_ISOLATION 0x2 /* user code cannot reach kernel memory; without this feature the machine is one trust domain, and the user bit is checked in the user range only */
#define VMI_MMU_FILL_REPLACES 0x4 /* mmu.fill of one entry also flushes it, on all vCPUs that have the space loaded */
#define VMI_MMU_NO_VECTORS_2 0x8 /* mmu.set_cr3 accepts VMI_CR3_NO_VECTORS_2; new kernels use VMI_CR3_NO_VECTORS */
#define VMI_MMU_NO_VECTORS 0x10 /* mmu.set_cr3 accepts VMI_CR3_NO_VECTORS (since section version 3) */
#define VMI_MMU_FLUSH_PREEMPTED 0x20 /* mmu.flush_preempted works (since section version 4) */
#define VMI_MMU_FLUSH_KERNEL 0x40 /* mmu.flush_kernel_everywhere works (since section version 5) */
#define VMI_CALL_MMU_REGISTER_PAGE_TABLE 0x200
#define VMI_CALL_MMU_RELEASE_PAGE_TABLE 0x201
#define VMI_CALL_MMU_SET_PTE 0x202
#define VMI_CALL_MMU_SET_PTES 0x203
#define VMI_CALL_MMU_SET_CR3 0x204
#define VMI_CALL_MMU_GET_CR3 0x205
#define VMI_CALL_MMU_INVALIDATE_PAGE 0x206
#define VMI_CALL_MMU_INVALIDATE_RANGE 0x207
#define VMI_CALL_MMU_FLUSH_TLB 0x208
#define VMI_CALL_MMU_FLUSH_KERNEL_RANGE 0x209
#define VMI_CALL_MMU_FLUSH_SPACE 0x20a
#define VMI_CALL_MMU_SET_LAZY_MODE 0x20b
#define VMI_CALL_MMU_FLUSH_QUEUE 0x20c
#define VMI_CALL_MMU_FILL 0x20d
#define VMI_CALL_MMU_EXPECT_SPACE 0x20e
#define VMI_CALL_MMU_FLUSH_PREEMPTED 0x20f
#define VMI_CALL_MMU_FLUSH_KERNEL_EVERYWHERE 0x210
#define VMI_NATIVE_MMU_SET_CR3 movq %rdi, %cr3
#define VMI_NATIVE_STR_MMU_SET_CR3 "movq %%rdi, %%cr3"
#define VMI_NATIVE_MMU_GET_CR3 movq %cr3, %rax
#define VMI_NATIVE_STR_MMU_GET_CR3 "movq %%cr3, %%rax"
#define VMI_NATIVE_MMU_INVALIDATE_PAGE invlpg (%rdi)
#define VMI_NATIVE_STR_MMU_INVALIDATE_PAGE "invlpg (%%rdi)"

/* Section apic: The local APIC of this vCPU. Registers are named by their offset in the xAPIC page. */
#define VMI_SECTION_APIC 3
#define VMI_SECTION_APIC_VERSION 1
#define VMI_SECTION_APIC_COMPAT 1
#define VMI_SECTION_APIC_CALLS 4
#define VMI_CALL_APIC_READ 0x300
#define VMI_CALL_APIC_WRITE 0x301
#define VMI_CALL_APIC_EOI 0x302
#define VMI_CALL_APIC_SEND_IPI 0x303

/* Section smp: Other vCPUs. */
#define VMI_SECTION_SMP 4
#define VMI_SECTION_SMP_VERSION 2
#define VMI_SECTION_SMP_COMPAT 1
#define VMI_SECTION_SMP_CALLS 3
#define VMI_CALL_SMP_SET_AP_STATE 0x400
#define VMI_CALL_SMP_STARTUP_VECTOR 0x401
#define VMI_CALL_SMP_VCPU_STATE 0x402

/* Section time: Real, available and stolen time; wall-clock time; alarms. All in nanoseconds. */
#define VMI_SECTION_TIME 5
#define VMI_SECTION_TIME_VERSION 2
#define VMI_SECTION_TIME_COMPAT 1
#define VMI_SECTION_TIME_CALLS 8
#define VMI_TIME_PAGE_KEPT 0x1 /* the clock page is right without calls, whatever the vCPUs execute (since section version 2); without this feature it may wait for the next call of the section */
#define VMI_CALL_TIME_FREQUENCY 0x500
#define VMI_CALL_TIME_READ 0x501
#define VMI_CALL_TIME_WALLCLOCK 0x502
#define VMI_CALL_TIME_WALLCLOCK_UPDATED 0x503
#define VMI_CALL_TIME_SET_CLOCK 0x504
#define VMI_CALL_TIME_SET_ALARM 0x505
#define VMI_CALL_TIME_CANCEL_ALARM 0x506
#define VMI_CALL_TIME_ACK_ALARM 0x507

/* Section lock: Waiting for a lock without spinning. A kick is sticky: each vCPU has one pending bit, part of its state. */
#define VMI_SECTION_LOCK 6
#define VMI_SECTION_LOCK_VERSION 2
#define VMI_SECTION_LOCK_COMPAT 1
#define VMI_SECTION_LOCK_CALLS 6
#define VMI_LOCK_RUN_STATES 0x1 /* lock.run_state follows each vCPU; without this feature it always says that a vCPU runs */
#define VMI_CALL_LOCK_WAIT 0x600
#define VMI_CALL_LOCK_KICK 0x601
#define VMI_CALL_LOCK_PENDING 0x602
#define VMI_CALL_LOCK_PREEMPTED 0x603
#define VMI_CALL_LOCK_YIELD 0x604
#define VMI_CALL_LOCK_RUN_STATE 0x605

/* Section patch: System-call and cpuid sites in user text. Where these instructions are expensive, the layer offers a replacement. The kernel decides, and writes it into a private copy or one that all programs share. (Stubs are called slots in this section's names.) */
#define VMI_SECTION_PATCH 7
#define VMI_SECTION_PATCH_VERSION 3
#define VMI_SECTION_PATCH_COMPAT 1
#define VMI_SECTION_PATCH_CALLS 5
#define VMI_PATCH_SLOTS 0x1 /* stubs are offered; without this feature every call answers ENOSYS */
#define VMI_PATCH_ENTRIES 0x2 /* VMI_SITE_ENTRY and patch.set_entry work */
#define VMI_PATCH_CODE 0x4 /* patch.code works, for system calls */
#define VMI_PATCH_CPUID 0x8 /* patch.code works for cpuid: VMI_SITE_CPUID and VMI_SITE_BODY */
#define VMI_CALL_PATCH_CLAIM 0x700
#define VMI_CALL_PATCH_RELEASE 0x701
#define VMI_CALL_PATCH_FIXUP 0x702
#define VMI_CALL_PATCH_SET_ENTRY 0x703
#define VMI_CALL_PATCH_CODE 0x704

/* Section stats: Statistics of the layer. A layer that counts nothing does not offer the section. */
#define VMI_SECTION_STATS 8
#define VMI_SECTION_STATS_VERSION 1
#define VMI_SECTION_STATS_COMPAT 1
#define VMI_SECTION_STATS_CALLS 2
#define VMI_CALL_STATS_READ 0x800
#define VMI_CALL_STATS_RESET 0x801

/* Section line: Interrupt lines of the devices that vmi_boot_info.devices lists, numbered from 0. Since 1.2. A layer for a machine whose devices have controllers of their own does not offer the section. */
#define VMI_SECTION_LINE 9
#define VMI_SECTION_LINE_VERSION 2
#define VMI_SECTION_LINE_COMPAT 1
#define VMI_SECTION_LINE_CALLS 4
#define VMI_CALL_LINE_ROUTE 0x900
#define VMI_CALL_LINE_NOTIFY 0x901
#define VMI_CALL_LINE_STATUS 0x902
#define VMI_CALL_LINE_PENDING 0x903

/* Section bus: Bridges to virtual buses, by calls in place of traps. Since 1.6. A bridge is named by the guest-physical address of its registers (struct vbus_bridge of abi/vbus.toml), however the kernel has found it. Loads of registers are no traps and need no call: the version and the features of a bridge, and the register that changes with its events. The stores of the registers keep working, and a driver may mix both. A layer may offer the section to a machine without a bridge. A layer for real computers does not offer it. */
#define VMI_SECTION_BUS 10
#define VMI_SECTION_BUS_VERSION 1
#define VMI_SECTION_BUS_COMPAT 1
#define VMI_SECTION_BUS_CALLS 3
#define VMI_CALL_BUS_FIND 0xa00
#define VMI_CALL_BUS_COMMAND 0xa01
#define VMI_CALL_BUS_NOTIFY 0xa02

#define VMI_SECTION_COUNT 11

#define VMI_FOR_EACH_CORE_CALL(X) \
	X(CORE, core, PROBE, probe, 0x000, SYSV, 1) \
	X(CORE, core, INIT, init, 0x001, SYSV, 1) \
	X(CORE, core, VERSION, version, 0x002, SYSV, 1) \
	X(CORE, core, REBOOT, reboot, 0x003, SYSV, 1) \
	X(CORE, core, SHUTDOWN, shutdown, 0x004, SYSV, 1) \
	X(CORE, core, CONSOLE_WRITE, console_write, 0x005, SYSV, 1) \
	X(CORE, core, COSTS, costs, 0x006, SYSV, 2)

#define VMI_FOR_EACH_CPU_CALL(X) \
	X(CPU, cpu, IRQ_DISABLE, irq_disable, 0x100, PRIMITIVE, 1) \
	X(CPU, cpu, IRQ_ENABLE, irq_enable, 0x101, PRIMITIVE, 1) \
	X(CPU, cpu, IRQ_FLAG, irq_flag, 0x102, PRIMITIVE, 1) \
	X(CPU, cpu, IRQ_RESTORE, irq_restore, 0x103, PRIMITIVE, 1) \
	X(CPU, cpu, IRQ_SAVE, irq_save, 0x104, PRIMITIVE, 1) \
	X(CPU, cpu, HALT, halt, 0x105, PRIMITIVE, 1) \
	X(CPU, cpu, STOP, stop, 0x106, SYSV, 1) \
	X(CPU, cpu, PAUSE, pause, 0x107, PRIMITIVE, 1) \
	X(CPU, cpu, GET_CR0, get_cr0, 0x108, PRIMITIVE, 1) \
	X(CPU, cpu, SET_CR0, set_cr0, 0x109, PRIMITIVE, 1) \
	X(CPU, cpu, CLTS, clts, 0x10a, PRIMITIVE, 1) \
	X(CPU, cpu, GET_CR2, get_cr2, 0x10b, PRIMITIVE, 1) \
	X(CPU, cpu, SET_CR2, set_cr2, 0x10c, PRIMITIVE, 1) \
	X(CPU, cpu, GET_CR4, get_cr4, 0x10d, PRIMITIVE, 1) \
	X(CPU, cpu, SET_CR4, set_cr4, 0x10e, PRIMITIVE, 1) \
	X(CPU, cpu, GET_CR8, get_cr8, 0x10f, PRIMITIVE, 1) \
	X(CPU, cpu, SET_CR8, set_cr8, 0x110, PRIMITIVE, 1) \
	X(CPU, cpu, GET_DR, get_dr, 0x111, SYSV, 1) \
	X(CPU, cpu, SET_DR, set_dr, 0x112, SYSV, 1) \
	X(CPU, cpu, READ_MSR, read_msr, 0x113, SYSV, 1) \
	X(CPU, cpu, WRITE_MSR, write_msr, 0x114, SYSV, 1) \
	X(CPU, cpu, READ_PMC, read_pmc, 0x115, SYSV, 1) \
	X(CPU, cpu, CPUID, cpuid, 0x116, SYSV, 1) \
	X(CPU, cpu, READ_TSC, read_tsc, 0x117, PRIMITIVE, 1) \
	X(CPU, cpu, SET_GDT, set_gdt, 0x118, SYSV, 1) \
	X(CPU, cpu, GET_GDT, get_gdt, 0x119, SYSV, 1) \
	X(CPU, cpu, SET_IDT, set_idt, 0x11a, SYSV, 1) \
	X(CPU, cpu, GET_IDT, get_idt, 0x11b, SYSV, 1) \
	X(CPU, cpu, SET_LDT, set_ldt, 0x11c, SYSV, 1) \
	X(CPU, cpu, GET_LDT, get_ldt, 0x11d, SYSV, 1) \
	X(CPU, cpu, SET_TR, set_tr, 0x11e, SYSV, 1) \
	X(CPU, cpu, GET_TR, get_tr, 0x11f, SYSV, 1) \
	X(CPU, cpu, WRITE_GDT, write_gdt, 0x120, SYSV, 1) \
	X(CPU, cpu, WRITE_LDT, write_ldt, 0x121, SYSV, 1) \
	X(CPU, cpu, WRITE_IDT, write_idt, 0x122, SYSV, 1) \
	X(CPU, cpu, SET_TLS, set_tls, 0x123, SYSV, 1) \
	X(CPU, cpu, LOAD_GS, load_gs, 0x124, SYSV, 1) \
	X(CPU, cpu, GET_FS_BASE, get_fs_base, 0x125, SYSV, 1) \
	X(CPU, cpu, SET_FS_BASE, set_fs_base, 0x126, SYSV, 1) \
	X(CPU, cpu, GET_GS_BASE, get_gs_base, 0x127, SYSV, 1) \
	X(CPU, cpu, SET_GS_BASE, set_gs_base, 0x128, SYSV, 1) \
	X(CPU, cpu, GET_USER_GS_BASE, get_user_gs_base, 0x129, SYSV, 1) \
	X(CPU, cpu, SET_USER_GS_BASE, set_user_gs_base, 0x12a, SYSV, 1) \
	X(CPU, cpu, SWAPGS, swapgs, 0x12b, PRIMITIVE, 1) \
	X(CPU, cpu, SET_KERNEL_STACK, set_kernel_stack, 0x12c, SYSV, 1) \
	X(CPU, cpu, IRET, iret, 0x12d, JUMP, 1) \
	X(CPU, cpu, SYSRET, sysret, 0x12e, JUMP, 1) \
	X(CPU, cpu, PORT_IN, port_in, 0x12f, SYSV, 1) \
	X(CPU, cpu, PORT_OUT, port_out, 0x130, SYSV, 1) \
	X(CPU, cpu, PORT_IN_STRING, port_in_string, 0x131, SYSV, 1) \
	X(CPU, cpu, PORT_OUT_STRING, port_out_string, 0x132, SYSV, 1) \
	X(CPU, cpu, IO_DELAY, io_delay, 0x133, PRIMITIVE, 1) \
	X(CPU, cpu, SET_XCR, set_xcr, 0x134, SYSV, 1) \
	X(CPU, cpu, WBINVD, wbinvd, 0x135, PRIMITIVE, 1) \
	X(CPU, cpu, SET_IO_BITMAP, set_io_bitmap, 0x136, SYSV, 2)

#define VMI_FOR_EACH_MMU_CALL(X) \
	X(MMU, mmu, REGISTER_PAGE_TABLE, register_page_table, 0x200, SYSV, 1) \
	X(MMU, mmu, RELEASE_PAGE_TABLE, release_page_table, 0x201, SYSV, 1) \
	X(MMU, mmu, SET_PTE, set_pte, 0x202, SYSV, 1) \
	X(MMU, mmu, SET_PTES, set_ptes, 0x203, SYSV, 1) \
	X(MMU, mmu, SET_CR3, set_cr3, 0x204, SYSV, 1) \
	X(MMU, mmu, GET_CR3, get_cr3, 0x205, PRIMITIVE, 1) \
	X(MMU, mmu, INVALIDATE_PAGE, invalidate_page, 0x206, PRIMITIVE, 1) \
	X(MMU, mmu, INVALIDATE_RANGE, invalidate_range, 0x207, SYSV, 1) \
	X(MMU, mmu, FLUSH_TLB, flush_tlb, 0x208, SYSV, 1) \
	X(MMU, mmu, FLUSH_KERNEL_RANGE, flush_kernel_range, 0x209, SYSV, 1) \
	X(MMU, mmu, FLUSH_SPACE, flush_space, 0x20a, SYSV, 1) \
	X(MMU, mmu, SET_LAZY_MODE, set_lazy_mode, 0x20b, SYSV, 1) \
	X(MMU, mmu, FLUSH_QUEUE, flush_queue, 0x20c, SYSV, 1) \
	X(MMU, mmu, FILL, fill, 0x20d, SYSV, 1) \
	X(MMU, mmu, EXPECT_SPACE, expect_space, 0x20e, SYSV, 2) \
	X(MMU, mmu, FLUSH_PREEMPTED, flush_preempted, 0x20f, SYSV, 4) \
	X(MMU, mmu, FLUSH_KERNEL_EVERYWHERE, flush_kernel_everywhere, 0x210, SYSV, 5)

#define VMI_FOR_EACH_APIC_CALL(X) \
	X(APIC, apic, READ, read, 0x300, SYSV, 1) \
	X(APIC, apic, WRITE, write, 0x301, SYSV, 1) \
	X(APIC, apic, EOI, eoi, 0x302, SYSV, 1) \
	X(APIC, apic, SEND_IPI, send_ipi, 0x303, SYSV, 1)

#define VMI_FOR_EACH_SMP_CALL(X) \
	X(SMP, smp, SET_AP_STATE, set_ap_state, 0x400, SYSV, 1) \
	X(SMP, smp, STARTUP_VECTOR, startup_vector, 0x401, SYSV, 1) \
	X(SMP, smp, VCPU_STATE, vcpu_state, 0x402, SYSV, 2)

#define VMI_FOR_EACH_TIME_CALL(X) \
	X(TIME, time, FREQUENCY, frequency, 0x500, SYSV, 1) \
	X(TIME, time, READ, read, 0x501, SYSV, 1) \
	X(TIME, time, WALLCLOCK, wallclock, 0x502, SYSV, 1) \
	X(TIME, time, WALLCLOCK_UPDATED, wallclock_updated, 0x503, SYSV, 1) \
	X(TIME, time, SET_CLOCK, set_clock, 0x504, SYSV, 1) \
	X(TIME, time, SET_ALARM, set_alarm, 0x505, SYSV, 1) \
	X(TIME, time, CANCEL_ALARM, cancel_alarm, 0x506, SYSV, 1) \
	X(TIME, time, ACK_ALARM, ack_alarm, 0x507, SYSV, 1)

#define VMI_FOR_EACH_LOCK_CALL(X) \
	X(LOCK, lock, WAIT, wait, 0x600, SYSV, 1) \
	X(LOCK, lock, KICK, kick, 0x601, SYSV, 1) \
	X(LOCK, lock, PENDING, pending, 0x602, SYSV, 1) \
	X(LOCK, lock, PREEMPTED, preempted, 0x603, SYSV, 1) \
	X(LOCK, lock, YIELD, yield, 0x604, SYSV, 1) \
	X(LOCK, lock, RUN_STATE, run_state, 0x605, SYSV, 2)

#define VMI_FOR_EACH_PATCH_CALL(X) \
	X(PATCH, patch, CLAIM, claim, 0x700, SYSV, 1) \
	X(PATCH, patch, RELEASE, release, 0x701, SYSV, 1) \
	X(PATCH, patch, FIXUP, fixup, 0x702, SYSV, 1) \
	X(PATCH, patch, SET_ENTRY, set_entry, 0x703, SYSV, 2) \
	X(PATCH, patch, CODE, code, 0x704, SYSV, 3)

#define VMI_FOR_EACH_STATS_CALL(X) \
	X(STATS, stats, READ, read, 0x800, SYSV, 1) \
	X(STATS, stats, RESET, reset, 0x801, SYSV, 1)

#define VMI_FOR_EACH_LINE_CALL(X) \
	X(LINE, line, ROUTE, route, 0x900, SYSV, 1) \
	X(LINE, line, NOTIFY, notify, 0x901, SYSV, 2) \
	X(LINE, line, STATUS, status, 0x902, SYSV, 2) \
	X(LINE, line, PENDING, pending, 0x903, SYSV, 2)

#define VMI_FOR_EACH_BUS_CALL(X) \
	X(BUS, bus, FIND, find, 0xa00, SYSV, 1) \
	X(BUS, bus, COMMAND, command, 0xa01, SYSV, 1) \
	X(BUS, bus, NOTIFY, notify, 0xa02, SYSV, 1)

#define VMI_FOR_EACH_CALL(X) \
	VMI_FOR_EACH_CORE_CALL(X) \
	VMI_FOR_EACH_CPU_CALL(X) \
	VMI_FOR_EACH_MMU_CALL(X) \
	VMI_FOR_EACH_APIC_CALL(X) \
	VMI_FOR_EACH_SMP_CALL(X) \
	VMI_FOR_EACH_TIME_CALL(X) \
	VMI_FOR_EACH_LOCK_CALL(X) \
	VMI_FOR_EACH_PATCH_CALL(X) \
	VMI_FOR_EACH_STATS_CALL(X) \
	VMI_FOR_EACH_LINE_CALL(X) \
	VMI_FOR_EACH_BUS_CALL(X)

/* Y(SECTION, section, id, version, compat, calls) */
#define VMI_FOR_EACH_SECTION(Y) \
	Y(CORE, core, 0, 2, 1, 7) \
	Y(CPU, cpu, 1, 2, 1, 55) \
	Y(MMU, mmu, 2, 5, 1, 17) \
	Y(APIC, apic, 3, 1, 1, 4) \
	Y(SMP, smp, 4, 2, 1, 3) \
	Y(TIME, time, 5, 2, 1, 8) \
	Y(LOCK, lock, 6, 2, 1, 6) \
	Y(PATCH, patch, 7, 3, 1, 5) \
	Y(STATS, stats, 8, 1, 1, 2) \
	Y(LINE, line, 9, 2, 1, 4) \
	Y(BUS, bus, 10, 1, 1, 3)

#ifndef __ASSEMBLER__

#ifdef __KERNEL__
#include <linux/types.h>
#include <linux/stddef.h>
#else
#include <stddef.h>
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef signed int __s32;
typedef unsigned long long __u64;
typedef signed long long __s64;
#endif

/* The first 128 bytes of a layer's ROM */
struct vmi_rom_header {
	__u16 rom_signature; /* VMI_ROM_SIGNATURE */
	__u8 rom_length; /* size of the ROM in units of VMI_ROM_UNIT bytes, 1 to 255 */
	__u8 bios_entry[4]; /* 16-bit code that the firmware calls: a far return */
	__u8 checksum; /* makes the 8-bit sum of the ROM zero */
	__u32 vmi_signature; /* VMI_SIGNATURE */
	__u8 api_minor; /* minor API version: additions */
	__u8 api_major; /* major API version: a kernel for another one stays native */
	__u16 header_size; /* bytes of this header, at least VMI_HEADER_SIZE */
	__u32 image_size; /* bytes of code and data in the ROM, at most rom_length * VMI_ROM_UNIT */
	__u32 load_size; /* bytes of memory that the loaded layer takes; those after image_size are zero at first */
	__u16 pci_header; /* offset of the PCI data structure, 0 for none */
	__u16 pnp_header; /* offset of the PnP header, 0 for none */
	__u32 percpu_size; /* bytes of layer data for each vCPU, a multiple of VMI_PERCPU_ALIGN */
	__u32 sections; /* offset of the array of struct vmi_section */
	__u16 section_count; /* entries in it */
	__u16 section_size; /* bytes of one entry, at least 16 */
	__u32 extable; /* offset of the array of struct vmi_extable_entry */
	__u32 extable_count; /* entries in it */
	__u64 reserve_start; /* first linear address that the hypervisor keeps for itself; 0 with reserve_end 0 for none */
	__u64 reserve_end; /* last such address + 1 */
	__u8 name[16]; /* name of the layer, for people, padded with zeros */
	__u32 flags; /* VMI_HEADER_* */
	__u32 call_size; /* bytes of one struct vmi_call_entry, at least 12 */
	__u8 reserved[40]; /* zero */
};
_Static_assert(sizeof(struct vmi_rom_header) == VMI_SIZE_ROM_HEADER, "vmi_rom_header");
_Static_assert(offsetof(struct vmi_rom_header, rom_signature) == VMI_OFF_ROM_HEADER_ROM_SIGNATURE, "vmi_rom_header.rom_signature");
_Static_assert(offsetof(struct vmi_rom_header, rom_length) == VMI_OFF_ROM_HEADER_ROM_LENGTH, "vmi_rom_header.rom_length");
_Static_assert(offsetof(struct vmi_rom_header, bios_entry) == VMI_OFF_ROM_HEADER_BIOS_ENTRY, "vmi_rom_header.bios_entry");
_Static_assert(offsetof(struct vmi_rom_header, checksum) == VMI_OFF_ROM_HEADER_CHECKSUM, "vmi_rom_header.checksum");
_Static_assert(offsetof(struct vmi_rom_header, vmi_signature) == VMI_OFF_ROM_HEADER_VMI_SIGNATURE, "vmi_rom_header.vmi_signature");
_Static_assert(offsetof(struct vmi_rom_header, api_minor) == VMI_OFF_ROM_HEADER_API_MINOR, "vmi_rom_header.api_minor");
_Static_assert(offsetof(struct vmi_rom_header, api_major) == VMI_OFF_ROM_HEADER_API_MAJOR, "vmi_rom_header.api_major");
_Static_assert(offsetof(struct vmi_rom_header, header_size) == VMI_OFF_ROM_HEADER_HEADER_SIZE, "vmi_rom_header.header_size");
_Static_assert(offsetof(struct vmi_rom_header, image_size) == VMI_OFF_ROM_HEADER_IMAGE_SIZE, "vmi_rom_header.image_size");
_Static_assert(offsetof(struct vmi_rom_header, load_size) == VMI_OFF_ROM_HEADER_LOAD_SIZE, "vmi_rom_header.load_size");
_Static_assert(offsetof(struct vmi_rom_header, pci_header) == VMI_OFF_ROM_HEADER_PCI_HEADER, "vmi_rom_header.pci_header");
_Static_assert(offsetof(struct vmi_rom_header, pnp_header) == VMI_OFF_ROM_HEADER_PNP_HEADER, "vmi_rom_header.pnp_header");
_Static_assert(offsetof(struct vmi_rom_header, percpu_size) == VMI_OFF_ROM_HEADER_PERCPU_SIZE, "vmi_rom_header.percpu_size");
_Static_assert(offsetof(struct vmi_rom_header, sections) == VMI_OFF_ROM_HEADER_SECTIONS, "vmi_rom_header.sections");
_Static_assert(offsetof(struct vmi_rom_header, section_count) == VMI_OFF_ROM_HEADER_SECTION_COUNT, "vmi_rom_header.section_count");
_Static_assert(offsetof(struct vmi_rom_header, section_size) == VMI_OFF_ROM_HEADER_SECTION_SIZE, "vmi_rom_header.section_size");
_Static_assert(offsetof(struct vmi_rom_header, extable) == VMI_OFF_ROM_HEADER_EXTABLE, "vmi_rom_header.extable");
_Static_assert(offsetof(struct vmi_rom_header, extable_count) == VMI_OFF_ROM_HEADER_EXTABLE_COUNT, "vmi_rom_header.extable_count");
_Static_assert(offsetof(struct vmi_rom_header, reserve_start) == VMI_OFF_ROM_HEADER_RESERVE_START, "vmi_rom_header.reserve_start");
_Static_assert(offsetof(struct vmi_rom_header, reserve_end) == VMI_OFF_ROM_HEADER_RESERVE_END, "vmi_rom_header.reserve_end");
_Static_assert(offsetof(struct vmi_rom_header, name) == VMI_OFF_ROM_HEADER_NAME, "vmi_rom_header.name");
_Static_assert(offsetof(struct vmi_rom_header, flags) == VMI_OFF_ROM_HEADER_FLAGS, "vmi_rom_header.flags");
_Static_assert(offsetof(struct vmi_rom_header, call_size) == VMI_OFF_ROM_HEADER_CALL_SIZE, "vmi_rom_header.call_size");
_Static_assert(offsetof(struct vmi_rom_header, reserved) == VMI_OFF_ROM_HEADER_RESERVED, "vmi_rom_header.reserved");

/* A section of the interface that a layer offers */
struct vmi_section {
	__u16 id; /* VMI_SECTION_* */
	__u16 version; /* version of the section that the layer implements */
	__u16 compat; /* lowest version that a kernel may have been written for */
	__u16 call_count; /* calls in the table; a call with a higher index is absent */
	__u32 calls; /* offset of the array of struct vmi_call_entry */
	__u32 features; /* feature bits of the section */
};
_Static_assert(sizeof(struct vmi_section) == VMI_SIZE_SECTION, "vmi_section");
_Static_assert(offsetof(struct vmi_section, id) == VMI_OFF_SECTION_ID, "vmi_section.id");
_Static_assert(offsetof(struct vmi_section, version) == VMI_OFF_SECTION_VERSION, "vmi_section.version");
_Static_assert(offsetof(struct vmi_section, compat) == VMI_OFF_SECTION_COMPAT, "vmi_section.compat");
_Static_assert(offsetof(struct vmi_section, call_count) == VMI_OFF_SECTION_CALL_COUNT, "vmi_section.call_count");
_Static_assert(offsetof(struct vmi_section, calls) == VMI_OFF_SECTION_CALLS, "vmi_section.calls");
_Static_assert(offsetof(struct vmi_section, features) == VMI_OFF_SECTION_FEATURES, "vmi_section.features");

/* Relocation record of one call; final when core.init has returned */
struct vmi_call_entry {
	__u32 offset; /* offset of the entry point; 0: the call is absent */
	__u8 reloc; /* VMI_RELOC_*: what the kernel does to a site */
	__u8 reserved[3]; /* zero */
	__u32 inline_offset; /* offset of the struct vmi_inline for VMI_RELOC_INLINE, else 0 */
};
_Static_assert(sizeof(struct vmi_call_entry) == VMI_SIZE_CALL_ENTRY, "vmi_call_entry");
_Static_assert(offsetof(struct vmi_call_entry, offset) == VMI_OFF_CALL_ENTRY_OFFSET, "vmi_call_entry.offset");
_Static_assert(offsetof(struct vmi_call_entry, reloc) == VMI_OFF_CALL_ENTRY_RELOC, "vmi_call_entry.reloc");
_Static_assert(offsetof(struct vmi_call_entry, reserved) == VMI_OFF_CALL_ENTRY_RESERVED, "vmi_call_entry.reserved");
_Static_assert(offsetof(struct vmi_call_entry, inline_offset) == VMI_OFF_CALL_ENTRY_INLINE_OFFSET, "vmi_call_entry.inline_offset");

/* Instructions that replace a site */
struct vmi_inline {
	__u8 length; /* bytes of code, 1 to VMI_INLINE_MAX */
	__u8 code[15]; /* position-independent code without branches out of it */
};
_Static_assert(sizeof(struct vmi_inline) == VMI_SIZE_INLINE, "vmi_inline");
_Static_assert(offsetof(struct vmi_inline, length) == VMI_OFF_INLINE_LENGTH, "vmi_inline.length");
_Static_assert(offsetof(struct vmi_inline, code) == VMI_OFF_INLINE_CODE, "vmi_inline.code");

/* An instruction of the layer that may fault, and where execution continues then */
struct vmi_extable_entry {
	__u32 insn; /* offset of the instruction */
	__u32 fixup; /* offset of the code at which execution continues; the stack pointer is unchanged */
};
_Static_assert(sizeof(struct vmi_extable_entry) == VMI_SIZE_EXTABLE_ENTRY, "vmi_extable_entry");
_Static_assert(offsetof(struct vmi_extable_entry, insn) == VMI_OFF_EXTABLE_ENTRY_INSN, "vmi_extable_entry.insn");
_Static_assert(offsetof(struct vmi_extable_entry, fixup) == VMI_OFF_EXTABLE_ENTRY_FIXUP, "vmi_extable_entry.fixup");

/* A site in the kernel (section .vmi.sites) */
struct vmi_site {
	__s32 addr; /* address of the site, relative to this field */
	__u16 call; /* call number */
	__u8 length; /* bytes of the site, at least 5 */
	__u8 reserved; /* zero */
};
_Static_assert(sizeof(struct vmi_site) == VMI_SIZE_SITE, "vmi_site");
_Static_assert(offsetof(struct vmi_site, addr) == VMI_OFF_SITE_ADDR, "vmi_site.addr");
_Static_assert(offsetof(struct vmi_site, call) == VMI_OFF_SITE_CALL, "vmi_site.call");
_Static_assert(offsetof(struct vmi_site, length) == VMI_OFF_SITE_LENGTH, "vmi_site.length");
_Static_assert(offsetof(struct vmi_site, reserved) == VMI_OFF_SITE_RESERVED, "vmi_site.reserved");

/* Part of each vCPU's data that the kernel keeps for the layer, at vmi_init.percpu_gs_offset from the kernel GS base; 64-byte aligned */
struct vmi_percpu {
	__u64 data; /* linear address of this vCPU's layer data (percpu_size bytes, zeroed), set by the kernel before the vCPU makes its first call */
	__u32 vcpu; /* number of the vCPU, from 0, below vmi_init.vcpu_count; set by the kernel */
	__u32 apic_id; /* its local APIC id; set by the kernel */
	__u8 fast[48]; /* for the layer; zeroed by the kernel, which does not touch it later */
};
_Static_assert(sizeof(struct vmi_percpu) == VMI_SIZE_PERCPU, "vmi_percpu");
_Static_assert(offsetof(struct vmi_percpu, data) == VMI_OFF_PERCPU_DATA, "vmi_percpu.data");
_Static_assert(offsetof(struct vmi_percpu, vcpu) == VMI_OFF_PERCPU_VCPU, "vmi_percpu.vcpu");
_Static_assert(offsetof(struct vmi_percpu, apic_id) == VMI_OFF_PERCPU_APIC_ID, "vmi_percpu.apic_id");
_Static_assert(offsetof(struct vmi_percpu, fast) == VMI_OFF_PERCPU_FAST, "vmi_percpu.fast");

/* Argument of core.init: filled by the kernel */
struct vmi_init {
	__u32 size; /* bytes of this structure as the kernel knows it */
	__u32 api_version; /* major << 16 | minor that the kernel was written for */
	__u64 layer_base; /* linear address of the loaded layer, VMI_LAYER_ALIGN aligned */
	__u64 direct_map; /* linear address at which guest-physical 0 is mapped */
	__u64 direct_map_size; /* bytes of it */
	__u64 percpu_gs_offset; /* offset of struct vmi_percpu from the kernel GS base, signed 32 bit */
	__u64 percpu_table; /* linear address of an array of vcpu_count pointers to struct vmi_percpu. An entry may change, and may be 0, until smp.set_ap_state is called for that vCPU. The boot vCPU's may change, with the structure's contents, just before its cpu.set_gs_base */
	__u32 vcpu_count; /* vCPUs that the kernel may ever start, at least 1 */
	__u32 flags; /* zero */
	__u64 apic; /* linear address at which the kernel has mapped the local APIC page uncached, 0 when it has none */
	__u64 low_page; /* guest-physical address of a free, identity-mapped page below 1 MiB for starting APs, 0 for none */
	__u64 tsc_hz; /* frequency of the time-stamp counter, Hz, if the kernel knows it, else 0 */
	__u16 kernel_cs; /* the kernel's 64-bit code selector */
	__u16 kernel_ss; /* the kernel's stack selector */
	__u16 user_cs; /* the 64-bit user code selector */
	__u16 user_ss; /* the user stack selector */
	__u8 reserved[40]; /* zero */
};
_Static_assert(sizeof(struct vmi_init) == VMI_SIZE_INIT, "vmi_init");
_Static_assert(offsetof(struct vmi_init, size) == VMI_OFF_INIT_SIZE, "vmi_init.size");
_Static_assert(offsetof(struct vmi_init, api_version) == VMI_OFF_INIT_API_VERSION, "vmi_init.api_version");
_Static_assert(offsetof(struct vmi_init, layer_base) == VMI_OFF_INIT_LAYER_BASE, "vmi_init.layer_base");
_Static_assert(offsetof(struct vmi_init, direct_map) == VMI_OFF_INIT_DIRECT_MAP, "vmi_init.direct_map");
_Static_assert(offsetof(struct vmi_init, direct_map_size) == VMI_OFF_INIT_DIRECT_MAP_SIZE, "vmi_init.direct_map_size");
_Static_assert(offsetof(struct vmi_init, percpu_gs_offset) == VMI_OFF_INIT_PERCPU_GS_OFFSET, "vmi_init.percpu_gs_offset");
_Static_assert(offsetof(struct vmi_init, percpu_table) == VMI_OFF_INIT_PERCPU_TABLE, "vmi_init.percpu_table");
_Static_assert(offsetof(struct vmi_init, vcpu_count) == VMI_OFF_INIT_VCPU_COUNT, "vmi_init.vcpu_count");
_Static_assert(offsetof(struct vmi_init, flags) == VMI_OFF_INIT_FLAGS, "vmi_init.flags");
_Static_assert(offsetof(struct vmi_init, apic) == VMI_OFF_INIT_APIC, "vmi_init.apic");
_Static_assert(offsetof(struct vmi_init, low_page) == VMI_OFF_INIT_LOW_PAGE, "vmi_init.low_page");
_Static_assert(offsetof(struct vmi_init, tsc_hz) == VMI_OFF_INIT_TSC_HZ, "vmi_init.tsc_hz");
_Static_assert(offsetof(struct vmi_init, kernel_cs) == VMI_OFF_INIT_KERNEL_CS, "vmi_init.kernel_cs");
_Static_assert(offsetof(struct vmi_init, kernel_ss) == VMI_OFF_INIT_KERNEL_SS, "vmi_init.kernel_ss");
_Static_assert(offsetof(struct vmi_init, user_cs) == VMI_OFF_INIT_USER_CS, "vmi_init.user_cs");
_Static_assert(offsetof(struct vmi_init, user_ss) == VMI_OFF_INIT_USER_SS, "vmi_init.user_ss");
_Static_assert(offsetof(struct vmi_init, reserved) == VMI_OFF_INIT_RESERVED, "vmi_init.reserved");

/* Argument and result of cpu.cpuid */
struct vmi_cpuid {
	__u32 eax; /* in: leaf */
	__u32 ebx;
	__u32 ecx; /* in: subleaf */
	__u32 edx;
};
_Static_assert(sizeof(struct vmi_cpuid) == VMI_SIZE_CPUID, "vmi_cpuid");
_Static_assert(offsetof(struct vmi_cpuid, eax) == VMI_OFF_CPUID_EAX, "vmi_cpuid.eax");
_Static_assert(offsetof(struct vmi_cpuid, ebx) == VMI_OFF_CPUID_EBX, "vmi_cpuid.ebx");
_Static_assert(offsetof(struct vmi_cpuid, ecx) == VMI_OFF_CPUID_ECX, "vmi_cpuid.ecx");
_Static_assert(offsetof(struct vmi_cpuid, edx) == VMI_OFF_CPUID_EDX, "vmi_cpuid.edx");

/* GDTR or IDTR, after six bytes that align the base */
struct vmi_table_register {
	__u8 pad[6]; /* ignored */
	__u16 limit; /* limit; lgdt and lidt take the address of this field */
	__u64 base; /* linear address */
};
_Static_assert(sizeof(struct vmi_table_register) == VMI_SIZE_TABLE_REGISTER, "vmi_table_register");
_Static_assert(offsetof(struct vmi_table_register, pad) == VMI_OFF_TABLE_REGISTER_PAD, "vmi_table_register.pad");
_Static_assert(offsetof(struct vmi_table_register, limit) == VMI_OFF_TABLE_REGISTER_LIMIT, "vmi_table_register.limit");
_Static_assert(offsetof(struct vmi_table_register, base) == VMI_OFF_TABLE_REGISTER_BASE, "vmi_table_register.base");

/* Complete initial state of an application processor, for smp.set_ap_state */
struct vmi_ap_state {
	__u64 cr0; /* PE and PG must be set */
	__u64 cr3; /* guest-physical address of the root */
	__u64 cr4; /* PAE must be set */
	__u64 efer; /* LME must be set */
	__u64 rip;
	__u64 rflags; /* IF should be clear */
	__u64 gpr[16]; /* rax rcx rdx rbx rsp rbp rsi rdi r8 to r15: the order of the encoding */
	__u64 fs_base;
	__u64 gs_base; /* the kernel GS base: the vCPU may make calls at once */
	__u64 gdt_base;
	__u64 idt_base;
	__u16 gdt_limit;
	__u16 idt_limit;
	__u16 cs; /* a 64-bit code segment of the GDT */
	__u16 ss; /* also loaded into ds, es */
	__u16 tr; /* 0: none */
	__u16 ldtr; /* 0: none */
	__u32 context; /* zero */
	__u64 context_id; /* as in mmu.set_cr3 */
	__u64 generation; /* as in mmu.set_cr3 */
	__u8 reserved[16]; /* zero */
};
_Static_assert(sizeof(struct vmi_ap_state) == VMI_SIZE_AP_STATE, "vmi_ap_state");
_Static_assert(offsetof(struct vmi_ap_state, cr0) == VMI_OFF_AP_STATE_CR0, "vmi_ap_state.cr0");
_Static_assert(offsetof(struct vmi_ap_state, cr3) == VMI_OFF_AP_STATE_CR3, "vmi_ap_state.cr3");
_Static_assert(offsetof(struct vmi_ap_state, cr4) == VMI_OFF_AP_STATE_CR4, "vmi_ap_state.cr4");
_Static_assert(offsetof(struct vmi_ap_state, efer) == VMI_OFF_AP_STATE_EFER, "vmi_ap_state.efer");
_Static_assert(offsetof(struct vmi_ap_state, rip) == VMI_OFF_AP_STATE_RIP, "vmi_ap_state.rip");
_Static_assert(offsetof(struct vmi_ap_state, rflags) == VMI_OFF_AP_STATE_RFLAGS, "vmi_ap_state.rflags");
_Static_assert(offsetof(struct vmi_ap_state, gpr) == VMI_OFF_AP_STATE_GPR, "vmi_ap_state.gpr");
_Static_assert(offsetof(struct vmi_ap_state, fs_base) == VMI_OFF_AP_STATE_FS_BASE, "vmi_ap_state.fs_base");
_Static_assert(offsetof(struct vmi_ap_state, gs_base) == VMI_OFF_AP_STATE_GS_BASE, "vmi_ap_state.gs_base");
_Static_assert(offsetof(struct vmi_ap_state, gdt_base) == VMI_OFF_AP_STATE_GDT_BASE, "vmi_ap_state.gdt_base");
_Static_assert(offsetof(struct vmi_ap_state, idt_base) == VMI_OFF_AP_STATE_IDT_BASE, "vmi_ap_state.idt_base");
_Static_assert(offsetof(struct vmi_ap_state, gdt_limit) == VMI_OFF_AP_STATE_GDT_LIMIT, "vmi_ap_state.gdt_limit");
_Static_assert(offsetof(struct vmi_ap_state, idt_limit) == VMI_OFF_AP_STATE_IDT_LIMIT, "vmi_ap_state.idt_limit");
_Static_assert(offsetof(struct vmi_ap_state, cs) == VMI_OFF_AP_STATE_CS, "vmi_ap_state.cs");
_Static_assert(offsetof(struct vmi_ap_state, ss) == VMI_OFF_AP_STATE_SS, "vmi_ap_state.ss");
_Static_assert(offsetof(struct vmi_ap_state, tr) == VMI_OFF_AP_STATE_TR, "vmi_ap_state.tr");
_Static_assert(offsetof(struct vmi_ap_state, ldtr) == VMI_OFF_AP_STATE_LDTR, "vmi_ap_state.ldtr");
_Static_assert(offsetof(struct vmi_ap_state, context) == VMI_OFF_AP_STATE_CONTEXT, "vmi_ap_state.context");
_Static_assert(offsetof(struct vmi_ap_state, context_id) == VMI_OFF_AP_STATE_CONTEXT_ID, "vmi_ap_state.context_id");
_Static_assert(offsetof(struct vmi_ap_state, generation) == VMI_OFF_AP_STATE_GENERATION, "vmi_ap_state.generation");
_Static_assert(offsetof(struct vmi_ap_state, reserved) == VMI_OFF_AP_STATE_RESERVED, "vmi_ap_state.reserved");

/* Result of core.costs: what an operation takes more than on a processor. The unit is the time in which a page of 4 KiB is copied from the cache. 0: nothing that matters */
struct vmi_costs {
	__u32 page_fault; /* a page fault of user code that the kernel handles */
	__u32 flush; /* the flush of a translation that is in use */
	__u32 run_pages; /* pages that are neighbours, linear and physical, whose translations take no longer to make than a single page's; 0: no such gain */
	__u32 syscall_trap; /* a system call in user code at an instruction that patch.claim or patch.code could replace */
	__u32 cpuid; /* a cpuid instruction in user code */
	__u32 reserved[3]; /* zero */
};
_Static_assert(sizeof(struct vmi_costs) == VMI_SIZE_COSTS, "vmi_costs");
_Static_assert(offsetof(struct vmi_costs, page_fault) == VMI_OFF_COSTS_PAGE_FAULT, "vmi_costs.page_fault");
_Static_assert(offsetof(struct vmi_costs, flush) == VMI_OFF_COSTS_FLUSH, "vmi_costs.flush");
_Static_assert(offsetof(struct vmi_costs, run_pages) == VMI_OFF_COSTS_RUN_PAGES, "vmi_costs.run_pages");
_Static_assert(offsetof(struct vmi_costs, syscall_trap) == VMI_OFF_COSTS_SYSCALL_TRAP, "vmi_costs.syscall_trap");
_Static_assert(offsetof(struct vmi_costs, cpuid) == VMI_OFF_COSTS_CPUID, "vmi_costs.cpuid");
_Static_assert(offsetof(struct vmi_costs, reserved) == VMI_OFF_COSTS_RESERVED, "vmi_costs.reserved");

/* Result of time.read: one consistent sample; real = available + stolen */
struct vmi_times {
	__u64 real; /* ns since core.init */
	__u64 available; /* ns */
	__u64 stolen; /* ns */
};
_Static_assert(sizeof(struct vmi_times) == VMI_SIZE_TIMES, "vmi_times");
_Static_assert(offsetof(struct vmi_times, real) == VMI_OFF_TIMES_REAL, "vmi_times.real");
_Static_assert(offsetof(struct vmi_times, available) == VMI_OFF_TIMES_AVAILABLE, "vmi_times.available");
_Static_assert(offsetof(struct vmi_times, stolen) == VMI_OFF_TIMES_STOLEN, "vmi_times.stolen");

/* Page that converts the time-stamp counter to real time without a call; also for the guest's user programs */
struct vmi_clock {
	__u32 sequence; /* odd while the page is being written; read before and after */
	__u32 flags; /* bit 0: valid on all vCPUs */
	__u64 tsc; /* counter value at which real time was real_ns */
	__u64 real_ns; /* ns */
	__u64 wall_ns; /* wall-clock time at which real time was 0, ns since 1970-01-01T00:00:00Z */
	__u32 mult; /* real_ns + (((counter - tsc) * mult) >> shift), 128-bit product */
	__u32 shift; /* 0 to 63 */
	__u8 reserved[24]; /* zero */
};
_Static_assert(sizeof(struct vmi_clock) == VMI_SIZE_CLOCK, "vmi_clock");
_Static_assert(offsetof(struct vmi_clock, sequence) == VMI_OFF_CLOCK_SEQUENCE, "vmi_clock.sequence");
_Static_assert(offsetof(struct vmi_clock, flags) == VMI_OFF_CLOCK_FLAGS, "vmi_clock.flags");
_Static_assert(offsetof(struct vmi_clock, tsc) == VMI_OFF_CLOCK_TSC, "vmi_clock.tsc");
_Static_assert(offsetof(struct vmi_clock, real_ns) == VMI_OFF_CLOCK_REAL_NS, "vmi_clock.real_ns");
_Static_assert(offsetof(struct vmi_clock, wall_ns) == VMI_OFF_CLOCK_WALL_NS, "vmi_clock.wall_ns");
_Static_assert(offsetof(struct vmi_clock, mult) == VMI_OFF_CLOCK_MULT, "vmi_clock.mult");
_Static_assert(offsetof(struct vmi_clock, shift) == VMI_OFF_CLOCK_SHIFT, "vmi_clock.shift");
_Static_assert(offsetof(struct vmi_clock, reserved) == VMI_OFF_CLOCK_RESERVED, "vmi_clock.reserved");

/* What a vCPU does, written by the layer, for every vCPU to read without a call (lock.run_state) */
struct vmi_run_state {
	__u32 state; /* VMI_RUN_* */
	__u32 preempted; /* the last answer of lock.preempted about it, 0 or 1 */
	__u64 stolen; /* its stolen time at its last sample, ns; it only grows */
	__u64 reserved[6]; /* zero */
};
_Static_assert(sizeof(struct vmi_run_state) == VMI_SIZE_RUN_STATE, "vmi_run_state");
_Static_assert(offsetof(struct vmi_run_state, state) == VMI_OFF_RUN_STATE_STATE, "vmi_run_state.state");
_Static_assert(offsetof(struct vmi_run_state, preempted) == VMI_OFF_RUN_STATE_PREEMPTED, "vmi_run_state.preempted");
_Static_assert(offsetof(struct vmi_run_state, stolen) == VMI_OFF_RUN_STATE_STOLEN, "vmi_run_state.stolen");
_Static_assert(offsetof(struct vmi_run_state, reserved) == VMI_OFF_RUN_STATE_RESERVED, "vmi_run_state.reserved");

/* What must be carried of a vCPU besides its registers (smp.vcpu_state). Alarms have their counter as index, VMI_TIME_REAL or VMI_TIME_AVAILABLE */
struct vmi_vcpu_state {
	__u32 kick; /* its pending bit, 0 or 1; lock.kick restores it */
	__u32 armed; /* bit n: the alarm on counter n is set, and time.ack_alarm has not reported it for the last time; time.set_alarm restores it */
	__u32 alarm_vector; /* vector of the alarms that are set */
	__u32 zero; /* zero */
	__u64 expiry[2]; /* when an alarm that is set expires or expired, ns */
	__u64 period[2]; /* its period, ns; 0: it does not repeat */
	__u64 requested[4]; /* bit n of word n / 64: interrupt vector n is requested and not delivered yet; apic.send_ipi to itself restores it */
	__u64 reserved[6]; /* zero */
};
_Static_assert(sizeof(struct vmi_vcpu_state) == VMI_SIZE_VCPU_STATE, "vmi_vcpu_state");
_Static_assert(offsetof(struct vmi_vcpu_state, kick) == VMI_OFF_VCPU_STATE_KICK, "vmi_vcpu_state.kick");
_Static_assert(offsetof(struct vmi_vcpu_state, armed) == VMI_OFF_VCPU_STATE_ARMED, "vmi_vcpu_state.armed");
_Static_assert(offsetof(struct vmi_vcpu_state, alarm_vector) == VMI_OFF_VCPU_STATE_ALARM_VECTOR, "vmi_vcpu_state.alarm_vector");
_Static_assert(offsetof(struct vmi_vcpu_state, zero) == VMI_OFF_VCPU_STATE_ZERO, "vmi_vcpu_state.zero");
_Static_assert(offsetof(struct vmi_vcpu_state, expiry) == VMI_OFF_VCPU_STATE_EXPIRY, "vmi_vcpu_state.expiry");
_Static_assert(offsetof(struct vmi_vcpu_state, period) == VMI_OFF_VCPU_STATE_PERIOD, "vmi_vcpu_state.period");
_Static_assert(offsetof(struct vmi_vcpu_state, requested) == VMI_OFF_VCPU_STATE_REQUESTED, "vmi_vcpu_state.requested");
_Static_assert(offsetof(struct vmi_vcpu_state, reserved) == VMI_OFF_VCPU_STATE_RESERVED, "vmi_vcpu_state.reserved");

/* Argument and result of patch.claim, argument of patch.code: a system-call or cpuid instruction in user text */
struct vmi_syscall_site {
	__u64 addr; /* in: user address of the first byte of code */
	__u8 code[16]; /* in: the bytes there */
	__u32 length; /* in: number of valid bytes in code */
	__u32 syscall_offset; /* in: offset of the syscall or cpuid instruction in code */
	__u64 slot; /* out: user address of the stub; with VMI_SITE_ENTRY, the address to jump to. patch.code: in */
	__u8 patch[16]; /* out: the bytes to write at addr; none with VMI_SITE_ENTRY */
	__u32 patch_length; /* out: number of bytes in patch */
	__u32 flags; /* in: VMI_SITE_*; other bits are zero, and a layer ignores those that it does not know */
};
_Static_assert(sizeof(struct vmi_syscall_site) == VMI_SIZE_SYSCALL_SITE, "vmi_syscall_site");
_Static_assert(offsetof(struct vmi_syscall_site, addr) == VMI_OFF_SYSCALL_SITE_ADDR, "vmi_syscall_site.addr");
_Static_assert(offsetof(struct vmi_syscall_site, code) == VMI_OFF_SYSCALL_SITE_CODE, "vmi_syscall_site.code");
_Static_assert(offsetof(struct vmi_syscall_site, length) == VMI_OFF_SYSCALL_SITE_LENGTH, "vmi_syscall_site.length");
_Static_assert(offsetof(struct vmi_syscall_site, syscall_offset) == VMI_OFF_SYSCALL_SITE_SYSCALL_OFFSET, "vmi_syscall_site.syscall_offset");
_Static_assert(offsetof(struct vmi_syscall_site, slot) == VMI_OFF_SYSCALL_SITE_SLOT, "vmi_syscall_site.slot");
_Static_assert(offsetof(struct vmi_syscall_site, patch) == VMI_OFF_SYSCALL_SITE_PATCH, "vmi_syscall_site.patch");
_Static_assert(offsetof(struct vmi_syscall_site, patch_length) == VMI_OFF_SYSCALL_SITE_PATCH_LENGTH, "vmi_syscall_site.patch_length");
_Static_assert(offsetof(struct vmi_syscall_site, flags) == VMI_OFF_SYSCALL_SITE_FLAGS, "vmi_syscall_site.flags");

/* Pages of an address space in which the layer keeps its stubs */
struct vmi_patch_area {
	__u64 user; /* user address of the area, executable for user code, below 2 GiB, bits 16 to 23 VMI_PATCH_BYTE; anywhere if all its sites have VMI_SITE_ENTRY */
	__u64 kernel; /* linear address at which the layer can write the same pages */
	__u64 size; /* bytes, a multiple of 4096, at most 65536; the area must not cross a 64 KiB boundary */
	__u64 used; /* for the layer; zero at first */
};
_Static_assert(sizeof(struct vmi_patch_area) == VMI_SIZE_PATCH_AREA, "vmi_patch_area");
_Static_assert(offsetof(struct vmi_patch_area, user) == VMI_OFF_PATCH_AREA_USER, "vmi_patch_area.user");
_Static_assert(offsetof(struct vmi_patch_area, kernel) == VMI_OFF_PATCH_AREA_KERNEL, "vmi_patch_area.kernel");
_Static_assert(offsetof(struct vmi_patch_area, size) == VMI_OFF_PATCH_AREA_SIZE, "vmi_patch_area.size");
_Static_assert(offsetof(struct vmi_patch_area, used) == VMI_OFF_PATCH_AREA_USED, "vmi_patch_area.used");

/* Result of stats.read, summed over all vCPUs */
struct vmi_call_stats {
	__u64 calls; /* number of calls */
	__u64 cycles; /* time-stamp counter cycles, summed over all calls */
	__u64 buckets[32]; /* histogram, see VMI_STATS_BUCKETS */
};
_Static_assert(sizeof(struct vmi_call_stats) == VMI_SIZE_CALL_STATS, "vmi_call_stats");
_Static_assert(offsetof(struct vmi_call_stats, calls) == VMI_OFF_CALL_STATS_CALLS, "vmi_call_stats.calls");
_Static_assert(offsetof(struct vmi_call_stats, cycles) == VMI_OFF_CALL_STATS_CYCLES, "vmi_call_stats.cycles");
_Static_assert(offsetof(struct vmi_call_stats, buckets) == VMI_OFF_CALL_STATS_BUCKETS, "vmi_call_stats.buckets");

/* An entry of the memory map */
struct vmi_mem {
	__u64 gpa; /* guest-physical address */
	__u64 size; /* bytes */
	__u32 kind; /* VMI_MEM_* */
	__u32 reserved; /* zero */
};
_Static_assert(sizeof(struct vmi_mem) == VMI_SIZE_MEM, "vmi_mem");
_Static_assert(offsetof(struct vmi_mem, gpa) == VMI_OFF_MEM_GPA, "vmi_mem.gpa");
_Static_assert(offsetof(struct vmi_mem, size) == VMI_OFF_MEM_SIZE, "vmi_mem.size");
_Static_assert(offsetof(struct vmi_mem, kind) == VMI_OFF_MEM_KIND, "vmi_mem.kind");
_Static_assert(offsetof(struct vmi_mem, reserved) == VMI_OFF_MEM_RESERVED, "vmi_mem.reserved");

/* Linear addresses that programs must not use, nor the kernel, except for its own file and what it maps below that. A hole that begins at 0 ends where the addresses of programs begin */
struct vmi_hole {
	__u64 start;
	__u64 end; /* last address + 1 */
};
_Static_assert(sizeof(struct vmi_hole) == VMI_SIZE_HOLE, "vmi_hole");
_Static_assert(offsetof(struct vmi_hole, start) == VMI_OFF_HOLE_START, "vmi_hole.start");
_Static_assert(offsetof(struct vmi_hole, end) == VMI_OFF_HOLE_END, "vmi_hole.end");

/* A device of the machine */
struct vmi_device {
	__u32 kind; /* VMI_DEVICE_*; a kernel ignores kinds that it does not know */
	__u32 line; /* its interrupt line, for line.route */
	__u64 gpa; /* guest-physical address of its registers, page-aligned, not inside RAM */
	__u64 size; /* bytes of registers */
	__u64 reserved; /* zero */
};
_Static_assert(sizeof(struct vmi_device) == VMI_SIZE_DEVICE, "vmi_device");
_Static_assert(offsetof(struct vmi_device, kind) == VMI_OFF_DEVICE_KIND, "vmi_device.kind");
_Static_assert(offsetof(struct vmi_device, line) == VMI_OFF_DEVICE_LINE, "vmi_device.line");
_Static_assert(offsetof(struct vmi_device, gpa) == VMI_OFF_DEVICE_GPA, "vmi_device.gpa");
_Static_assert(offsetof(struct vmi_device, size) == VMI_OFF_DEVICE_SIZE, "vmi_device.size");
_Static_assert(offsetof(struct vmi_device, reserved) == VMI_OFF_DEVICE_RESERVED, "vmi_device.reserved");

/* Descriptor of the ELF note VMI_NOTE_ENTRY */
struct vmi_note_entry {
	__u64 entry; /* link-time linear address of the 64-bit entry */
	__u32 api_version; /* major << 16 | minor that the kernel was written for */
	__u32 flags; /* VMI_NOTE_*; a hypervisor ignores bits that it does not know */
};
_Static_assert(sizeof(struct vmi_note_entry) == VMI_SIZE_NOTE_ENTRY, "vmi_note_entry");
_Static_assert(offsetof(struct vmi_note_entry, entry) == VMI_OFF_NOTE_ENTRY_ENTRY, "vmi_note_entry.entry");
_Static_assert(offsetof(struct vmi_note_entry, api_version) == VMI_OFF_NOTE_ENTRY_API_VERSION, "vmi_note_entry.api_version");
_Static_assert(offsetof(struct vmi_note_entry, flags) == VMI_OFF_NOTE_ENTRY_FLAGS, "vmi_note_entry.flags");

/* What a hypervisor passes to the kernel's VMI entry; rdi has its linear address */
struct vmi_boot_info {
	__u64 magic; /* VMI_BOOT_MAGIC */
	__u32 size; /* bytes of this structure as the hypervisor knows it */
	__u32 api_version; /* major << 16 | minor */
	__u64 rom; /* linear address of the layer's ROM; 0 for none */
	__u64 rom_size; /* bytes mapped there */
	__u64 image; /* linear address at which the kernel was loaded */
	__u64 image_gpa; /* guest-physical address of it */
	__u64 image_size; /* bytes */
	__u64 image_delta; /* load address less link address, modulo 2^64 */
	__u64 direct_map; /* linear address at which guest-physical 0 is mapped */
	__u64 direct_map_size; /* bytes of it that are mapped */
	__u64 user_end; /* last linear address + 1 that user programs may use */
	__u64 command_line; /* linear address of a string that ends with a zero byte */
	__u64 initrd_gpa; /* guest-physical address of the initial RAM disk, 0 for none */
	__u64 initrd_size; /* bytes */
	__u32 vcpu_count; /* vCPUs; their APIC ids are 0 to vcpu_count - 1 */
	__u32 mem_count; /* valid entries of mem */
	__u32 hole_count; /* valid entries of holes */
	__u32 flags; /* zero */
	__u64 tsc_hz; /* frequency of the time-stamp counter, Hz */
	struct vmi_mem mem[16]; /* memory map, ascending */
	struct vmi_hole holes[4]; /* reserved linear addresses */
	__u64 devices; /* linear address of an array of struct vmi_device (since 1.2; 0 before) */
	__u32 device_count; /* entries in it */
	__u32 device_size; /* bytes of one entry, at least 32 where there are any */
	__u8 reserved[40]; /* zero */
};
_Static_assert(sizeof(struct vmi_boot_info) == VMI_SIZE_BOOT_INFO, "vmi_boot_info");
_Static_assert(offsetof(struct vmi_boot_info, magic) == VMI_OFF_BOOT_INFO_MAGIC, "vmi_boot_info.magic");
_Static_assert(offsetof(struct vmi_boot_info, size) == VMI_OFF_BOOT_INFO_SIZE, "vmi_boot_info.size");
_Static_assert(offsetof(struct vmi_boot_info, api_version) == VMI_OFF_BOOT_INFO_API_VERSION, "vmi_boot_info.api_version");
_Static_assert(offsetof(struct vmi_boot_info, rom) == VMI_OFF_BOOT_INFO_ROM, "vmi_boot_info.rom");
_Static_assert(offsetof(struct vmi_boot_info, rom_size) == VMI_OFF_BOOT_INFO_ROM_SIZE, "vmi_boot_info.rom_size");
_Static_assert(offsetof(struct vmi_boot_info, image) == VMI_OFF_BOOT_INFO_IMAGE, "vmi_boot_info.image");
_Static_assert(offsetof(struct vmi_boot_info, image_gpa) == VMI_OFF_BOOT_INFO_IMAGE_GPA, "vmi_boot_info.image_gpa");
_Static_assert(offsetof(struct vmi_boot_info, image_size) == VMI_OFF_BOOT_INFO_IMAGE_SIZE, "vmi_boot_info.image_size");
_Static_assert(offsetof(struct vmi_boot_info, image_delta) == VMI_OFF_BOOT_INFO_IMAGE_DELTA, "vmi_boot_info.image_delta");
_Static_assert(offsetof(struct vmi_boot_info, direct_map) == VMI_OFF_BOOT_INFO_DIRECT_MAP, "vmi_boot_info.direct_map");
_Static_assert(offsetof(struct vmi_boot_info, direct_map_size) == VMI_OFF_BOOT_INFO_DIRECT_MAP_SIZE, "vmi_boot_info.direct_map_size");
_Static_assert(offsetof(struct vmi_boot_info, user_end) == VMI_OFF_BOOT_INFO_USER_END, "vmi_boot_info.user_end");
_Static_assert(offsetof(struct vmi_boot_info, command_line) == VMI_OFF_BOOT_INFO_COMMAND_LINE, "vmi_boot_info.command_line");
_Static_assert(offsetof(struct vmi_boot_info, initrd_gpa) == VMI_OFF_BOOT_INFO_INITRD_GPA, "vmi_boot_info.initrd_gpa");
_Static_assert(offsetof(struct vmi_boot_info, initrd_size) == VMI_OFF_BOOT_INFO_INITRD_SIZE, "vmi_boot_info.initrd_size");
_Static_assert(offsetof(struct vmi_boot_info, vcpu_count) == VMI_OFF_BOOT_INFO_VCPU_COUNT, "vmi_boot_info.vcpu_count");
_Static_assert(offsetof(struct vmi_boot_info, mem_count) == VMI_OFF_BOOT_INFO_MEM_COUNT, "vmi_boot_info.mem_count");
_Static_assert(offsetof(struct vmi_boot_info, hole_count) == VMI_OFF_BOOT_INFO_HOLE_COUNT, "vmi_boot_info.hole_count");
_Static_assert(offsetof(struct vmi_boot_info, flags) == VMI_OFF_BOOT_INFO_FLAGS, "vmi_boot_info.flags");
_Static_assert(offsetof(struct vmi_boot_info, tsc_hz) == VMI_OFF_BOOT_INFO_TSC_HZ, "vmi_boot_info.tsc_hz");
_Static_assert(offsetof(struct vmi_boot_info, mem) == VMI_OFF_BOOT_INFO_MEM, "vmi_boot_info.mem");
_Static_assert(offsetof(struct vmi_boot_info, holes) == VMI_OFF_BOOT_INFO_HOLES, "vmi_boot_info.holes");
_Static_assert(offsetof(struct vmi_boot_info, devices) == VMI_OFF_BOOT_INFO_DEVICES, "vmi_boot_info.devices");
_Static_assert(offsetof(struct vmi_boot_info, device_count) == VMI_OFF_BOOT_INFO_DEVICE_COUNT, "vmi_boot_info.device_count");
_Static_assert(offsetof(struct vmi_boot_info, device_size) == VMI_OFF_BOOT_INFO_DEVICE_SIZE, "vmi_boot_info.device_size");
_Static_assert(offsetof(struct vmi_boot_info, reserved) == VMI_OFF_BOOT_INFO_RESERVED, "vmi_boot_info.reserved");

/* One function type for each call */
typedef int vmi_core_probe_fn(void);
typedef int vmi_core_init_fn(struct vmi_init *init);
typedef __s64 vmi_core_version_fn(__u32 section);
typedef int vmi_core_reboot_fn(__u32 mode);
typedef void vmi_core_shutdown_fn(__u32 status);
typedef __s64 vmi_core_console_write_fn(const void *buffer, __u64 length);
typedef int vmi_core_costs_fn(struct vmi_costs *costs, __u32 size);
typedef void vmi_cpu_irq_disable_fn(void);
typedef void vmi_cpu_irq_enable_fn(void);
typedef __u64 vmi_cpu_irq_flag_fn(void);
typedef void vmi_cpu_irq_restore_fn(__u64 flags);
typedef __u64 vmi_cpu_irq_save_fn(void);
typedef void vmi_cpu_halt_fn(void);
typedef void vmi_cpu_stop_fn(void);
typedef void vmi_cpu_pause_fn(void);
typedef __u64 vmi_cpu_get_cr0_fn(void);
typedef void vmi_cpu_set_cr0_fn(__u64 value);
typedef void vmi_cpu_clts_fn(void);
typedef __u64 vmi_cpu_get_cr2_fn(void);
typedef void vmi_cpu_set_cr2_fn(__u64 value);
typedef __u64 vmi_cpu_get_cr4_fn(void);
typedef void vmi_cpu_set_cr4_fn(__u64 value);
typedef __u64 vmi_cpu_get_cr8_fn(void);
typedef void vmi_cpu_set_cr8_fn(__u64 value);
typedef int vmi_cpu_get_dr_fn(__u32 number, __u64 *value);
typedef int vmi_cpu_set_dr_fn(__u32 number, __u64 value);
typedef int vmi_cpu_read_msr_fn(__u32 msr, __u64 *value);
typedef int vmi_cpu_write_msr_fn(__u32 msr, __u64 value);
typedef int vmi_cpu_read_pmc_fn(__u32 counter, __u64 *value);
typedef void vmi_cpu_cpuid_fn(struct vmi_cpuid *regs);
typedef __u64 vmi_cpu_read_tsc_fn(void);
typedef void vmi_cpu_set_gdt_fn(const struct vmi_table_register *table);
typedef void vmi_cpu_get_gdt_fn(struct vmi_table_register *table);
typedef void vmi_cpu_set_idt_fn(const struct vmi_table_register *table);
typedef void vmi_cpu_get_idt_fn(struct vmi_table_register *table);
typedef int vmi_cpu_set_ldt_fn(__u32 selector);
typedef __u64 vmi_cpu_get_ldt_fn(void);
typedef int vmi_cpu_set_tr_fn(__u32 selector);
typedef __u64 vmi_cpu_get_tr_fn(void);
typedef int vmi_cpu_write_gdt_fn(__u64 *table, __u32 index, const __u64 *descriptor, __u32 words);
typedef int vmi_cpu_write_ldt_fn(__u64 *table, __u32 index, __u64 descriptor);
typedef int vmi_cpu_write_idt_fn(__u64 *table, __u32 vector, __u64 low, __u64 high);
typedef int vmi_cpu_set_tls_fn(__u64 *table, __u32 index, const __u64 *descriptors, __u32 count);
typedef int vmi_cpu_load_gs_fn(__u32 selector);
typedef __u64 vmi_cpu_get_fs_base_fn(void);
typedef int vmi_cpu_set_fs_base_fn(__u64 base);
typedef __u64 vmi_cpu_get_gs_base_fn(void);
typedef int vmi_cpu_set_gs_base_fn(__u64 base);
typedef __u64 vmi_cpu_get_user_gs_base_fn(void);
typedef int vmi_cpu_set_user_gs_base_fn(__u64 base);
typedef void vmi_cpu_swapgs_fn(void);
typedef void vmi_cpu_set_kernel_stack_fn(void *tss, __u64 rsp0);
typedef void vmi_cpu_iret_fn(void);
typedef void vmi_cpu_sysret_fn(void);
typedef __s64 vmi_cpu_port_in_fn(__u32 port, __u32 width);
typedef int vmi_cpu_port_out_fn(__u32 port, __u32 width, __u32 value);
typedef int vmi_cpu_port_in_string_fn(__u32 port, __u32 width, void *buffer, __u64 count);
typedef int vmi_cpu_port_out_string_fn(__u32 port, __u32 width, const void *buffer, __u64 count);
typedef void vmi_cpu_io_delay_fn(void);
typedef int vmi_cpu_set_xcr_fn(__u32 number, __u64 value);
typedef void vmi_cpu_wbinvd_fn(void);
typedef int vmi_cpu_set_io_bitmap_fn(void *tss, const void *bitmap, __u32 bytes);
typedef int vmi_mmu_register_page_table_fn(__u64 gpa, __u32 level);
typedef int vmi_mmu_release_page_table_fn(__u64 gpa, __u32 level);
typedef void vmi_mmu_set_pte_fn(__u64 *entry, __u64 value, __u32 flags, __u64 va);
typedef int vmi_mmu_set_ptes_fn(__u64 *entry, __u64 value, __u32 count, __u32 flags, __u64 va);
typedef void vmi_mmu_set_cr3_fn(__u64 cr3, __u64 context, __u64 generation);
typedef __u64 vmi_mmu_get_cr3_fn(void);
typedef void vmi_mmu_invalidate_page_fn(__u64 va);
typedef int vmi_mmu_invalidate_range_fn(__u64 start, __u64 end);
typedef int vmi_mmu_flush_tlb_fn(__u32 flags);
typedef int vmi_mmu_flush_kernel_range_fn(__u64 start, __u64 end);
typedef int vmi_mmu_flush_space_fn(__u64 cr3, __u64 context, __u64 generation, __u64 start, __u64 end);
typedef int vmi_mmu_set_lazy_mode_fn(__u32 mode);
typedef void vmi_mmu_flush_queue_fn(void);
typedef void vmi_mmu_fill_fn(__u64 va, const __u64 *entry, __u32 count);
typedef int vmi_mmu_expect_space_fn(__u64 cr3, __u64 hint);
typedef int vmi_mmu_flush_preempted_fn(__u32 vcpu);
typedef int vmi_mmu_flush_kernel_everywhere_fn(__u64 start, __u64 end);
typedef __s64 vmi_apic_read_fn(__u32 offset);
typedef int vmi_apic_write_fn(__u32 offset, __u32 value);
typedef void vmi_apic_eoi_fn(void);
typedef int vmi_apic_send_ipi_fn(__u64 icr);
typedef int vmi_smp_set_ap_state_fn(__u32 vcpu, const struct vmi_ap_state *state);
typedef __s64 vmi_smp_startup_vector_fn(void);
typedef int vmi_smp_vcpu_state_fn(__u32 vcpu, struct vmi_vcpu_state *state);
typedef __u64 vmi_time_frequency_fn(void);
typedef void vmi_time_read_fn(struct vmi_times *times);
typedef __u64 vmi_time_wallclock_fn(void);
typedef int vmi_time_wallclock_updated_fn(void);
typedef int vmi_time_set_clock_fn(struct vmi_clock *clock, __u64 gpa);
typedef int vmi_time_set_alarm_fn(__u32 flags, __u64 expiry, __u64 period, __u32 vector);
typedef int vmi_time_cancel_alarm_fn(__u32 counter);
typedef __u64 vmi_time_ack_alarm_fn(void);
typedef void vmi_lock_wait_fn(const __u8 *location, __u8 value);
typedef int vmi_lock_kick_fn(__u32 vcpu);
typedef int vmi_lock_pending_fn(__u32 vcpu);
typedef int vmi_lock_preempted_fn(__u32 vcpu);
typedef int vmi_lock_yield_fn(__u32 vcpu);
typedef __u64 vmi_lock_run_state_fn(__u32 vcpu);
typedef int vmi_patch_claim_fn(struct vmi_patch_area *area, struct vmi_syscall_site *site);
typedef int vmi_patch_release_fn(struct vmi_patch_area *area, __u64 slot);
typedef int vmi_patch_fixup_fn(const struct vmi_patch_area *area, __u64 *rip, __u64 *rax);
typedef int vmi_patch_set_entry_fn(__u64 entry);
typedef int vmi_patch_code_fn(const struct vmi_syscall_site *site, __u64 body, __u8 *code, __u32 size);
typedef int vmi_stats_read_fn(__u32 call, struct vmi_call_stats *stats);
typedef void vmi_stats_reset_fn(void);
typedef int vmi_line_route_fn(__u32 line, __u32 apic_id, __u32 vector);
typedef int vmi_line_notify_fn(__u32 line, __u32 queue);
typedef int vmi_line_status_fn(__u32 line);
typedef __u64 vmi_line_pending_fn(void);
typedef __s64 vmi_bus_find_fn(__u32 number);
typedef int vmi_bus_command_fn(__u64 bridge, __u64 command);
typedef int vmi_bus_notify_fn(__u64 bridge, __u32 connection);

#endif /* __ASSEMBLER__ */
#endif /* PARAVANE_VMI_H */
