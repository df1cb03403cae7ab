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

/* Others, u64 each, before that one. */
#define OUTSIDER_EOI (OUTSIDER_SET_CR3 - 8)
#define OUTSIDER_FLUSH_SPACE (OUTSIDER_SET_CR3 - 16)
#define OUTSIDER_WALLCLOCK (OUTSIDER_SET_CR3 - 24)
#define OUTSIDER_SET_ALARM (OUTSIDER_SET_CR3 - 32)
/* Where they are in physical memory, and what the layer writes there to see it. */
#define OUTSIDER_GPA (OUTSIDER_SET_CR3 - 40)
#define OUTSIDER_MARK (OUTSIDER_SET_CR3 - 48)

/* Of the layer: more than Linux has room for in its image. */
#define OUTSIDER_SPARE (640 * 1024)

/*
 * cpu.read_msr of this number and of those after it returns what the vCPU has counted: the three in
 * struct vmi_percpu, then mmu.set_cr3, apic.eoi, mmu.flush_space, time.wallclock and
 * time.set_alarm.
 */
#define OUTSIDER_MSR 0x4f757400
#define OUTSIDER_FAST 3
#define OUTSIDER_COUNTS 8
/* The next number returns the vCPU's local APIC id as the kernel has told it. */
#define OUTSIDER_APIC_ID OUTSIDER_COUNTS
/*
 * And the next whether the layer and its data are still where it has found them in physical memory,
 * in core.init or at the vCPU's first interrupt: the levels of the page tables, or 0.
 */
#define OUTSIDER_STAYS (OUTSIDER_APIC_ID + 1)
/* cpu.write_msr: moves the wall clock by this number of seconds. */
#define OUTSIDER_MOVE_CLOCK (OUTSIDER_MSR + 0x10)
/* cpu.write_msr: from now on a quarter of the time is stolen. */
#define OUTSIDER_STEAL (OUTSIDER_MSR + 0x11)

#endif
