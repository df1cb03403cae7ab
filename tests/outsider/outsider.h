/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* What assembler and C of this layer share. */
#ifndef OUTSIDER_H
#define OUTSIDER_H

#include <paravane/vmi.h>

/* Of a vCPU: far more than a kernel has before it has an allocator. */
#define OUTSIDER_PERCPU_SIZE (96 * 1024)
/* In it: calls of mmu.set_cr3, a u64 in its last bytes. */
#define OUTSIDER_SET_CR3 (OUTSIDER_PERCPU_SIZE - 8)

/* Calls that this vCPU has made, u32 each, in struct vmi_percpu. */
#define OUTSIDER_IRQ_DISABLE (VMI_OFF_PERCPU_FAST + 0)
#define OUTSIDER_IRQ_FLAG (VMI_OFF_PERCPU_FAST + 4)
#define OUTSIDER_GET_CR3 (VMI_OFF_PERCPU_FAST + 8)

/* cpu.read_msr of this number and of those after it returns what the vCPU has counted. */
#define OUTSIDER_MSR 0x4f757400
#define OUTSIDER_COUNTS 3	/* those in struct vmi_percpu, then mmu.set_cr3 */
/* The next number returns the vCPU's local APIC id as the kernel has told it. */
#define OUTSIDER_APIC_ID (OUTSIDER_COUNTS + 1)

#endif
