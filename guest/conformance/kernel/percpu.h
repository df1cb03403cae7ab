/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The data of each vCPU, found through the GS base. */
#ifndef KERNEL_PERCPU_H
#define KERNEL_PERCPU_H

#include "machine.h"
#include "layout.h"
#include "types.h"

#define KERNEL_STACK_SIZE (16 * KIB)

#define IO_BITMAP_SIZE	64	/* ports 0 to 0x1ff */

struct tss {
	u32 reserved0;
	u64 rsp[3];
	u64 reserved1;
	u64 ist[7];
	u64 reserved2;
	u16 reserved3, io_map;
	u8 io_bitmap[IO_BITMAP_SIZE + 1];	/* ports of user code, and a byte of ones */
} __attribute__((packed));

struct space;
struct catch;
struct user_context;

struct percpu {
	struct percpu *self;
	u64 user_rsp;		/* scratch of the syscall entry */
	u64 kernel_rsp;		/* the stack for entries from user mode */
	u32 vcpu;
	u32 nesting;		/* interrupts in progress */
	struct catch *catch;	/* innermost try in progress */
	struct user_context *user; /* user_run() in progress */
	u64 user_return;	/* its stack pointer */
	struct vmi_percpu vmi __attribute__((aligned(VMI_PERCPU_ALIGN)));
	struct space *space;	/* loaded; NULL: the kernel's own */
	struct test_jump *test_jump; /* where a failed check continues */
	u64 gdt[GDT_ENTRIES] __attribute__((aligned(16)));
	struct tss tss __attribute__((aligned(16)));
	u64 (*idt)[2];
	u8 *stack;
	u64 irq_count[256];
	/* Work from another vCPU. */
	void (*work)(void *);
	void *work_argument;
	u32 work_state;
	bool online, broken;
} __attribute__((aligned(64)));

_Static_assert(offsetof(struct percpu, self) == PERCPU_SELF, "self");
_Static_assert(offsetof(struct percpu, user_rsp) == PERCPU_USER_RSP, "user_rsp");
_Static_assert(offsetof(struct percpu, kernel_rsp) == PERCPU_KERNEL_RSP, "kernel_rsp");
_Static_assert(offsetof(struct percpu, vmi) == PERCPU_VMI, "vmi");

extern struct percpu *percpus[MAX_VCPUS];
/* For vmi_init.percpu_table. The last entry in use is 0: a vCPU that never gets any data. */
extern struct vmi_percpu *vmi_percpus[MAX_VCPUS + 1];
/* The number of that vCPU. */
#define VCPU_WITHOUT_DATA (machine.vcpu_count)

static inline struct percpu *this_cpu(void)
{
	struct percpu *self;

	/* In kernel mode the GS base is this vCPU's struct percpu. */
	asm volatile("movq %%gs:%c1, %0" : "=r"(self) : "i"(PERCPU_SELF));
	return self;
}

static inline u32 this_vcpu(void)
{
	return this_cpu()->vcpu;
}

/* Allocates them all. The caller sets the GS base of the boot vCPU. */
void percpu_init(void);

#endif
