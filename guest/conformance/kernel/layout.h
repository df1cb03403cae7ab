/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Numbers shared by the linker script, assembler and C. */
#ifndef KERNEL_LAYOUT_H
#define KERNEL_LAYOUT_H

/* The link address of the image. A loader may move the image. */
#define IMAGE_LINK	0xffffffff81000000
#define IMAGE_PHYSICAL	0x200000

/* Bare metal: the address at which the boot code maps guest-physical 0. */
#define DIRECT_MAP	0xffff888000000000
#define PML4_INDEX(va)	(((va) >> 39) & 511)

/* Guest-physical address of every vCPU's local APIC. */
#define APIC_GPA	0xfee00000

/* Selectors, in the order that syscall and sysret need. */
#define KERNEL_CS	0x10
#define KERNEL_SS	0x18
#define USER_CS32	0x23
#define USER_SS		0x2b
#define USER_CS		0x33
#define TSS_SELECTOR	0x40
#define LDT_SELECTOR	0x50
#define TLS_INDEX	12
#define TLS_SELECTOR	0x63		/* TLS_INDEX << 3 | 3 */
#define SPARE_INDEX	15		/* for tests; two entries */
#define SPARE_SELECTOR	0x78
#define GDT_ENTRIES	20

/* Offsets in struct percpu, asserted in percpu.h. */
#define PERCPU_SELF	0
#define PERCPU_USER_RSP	8
#define PERCPU_KERNEL_RSP 16
#define PERCPU_VMI	64

/* Offsets in struct regs, asserted in trap.h; the order of pushes in push_regs.h. */
#define REGS_R15	0
#define REGS_R14	8
#define REGS_R13	16
#define REGS_R12	24
#define REGS_RBP	32
#define REGS_RBX	40
#define REGS_R11	48
#define REGS_R10	56
#define REGS_R9		64
#define REGS_R8		72
#define REGS_RAX	80
#define REGS_RCX	88
#define REGS_RDX	96
#define REGS_RSI	104
#define REGS_RDI	112
#define REGS_VECTOR	120
#define REGS_ERROR	128
#define REGS_RIP	136
#define REGS_CS		144
#define REGS_RFLAGS	152
#define REGS_RSP	160
#define REGS_SS		168
#define REGS_SIZE	176

/* The vector that vectors.S pushes for the syscall instruction. */
#define VECTOR_SYSCALL	256

#define BOOT_STACK_SIZE	0x8000

#endif
