/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Offsets that assembler uses; state.h asserts that the structures agree.
 */
#ifndef PROCESS_OFFSETS_H
#define PROCESS_OFFSETS_H

#include <paravane/process.h>

/* struct thread */
#define T_VCPU		0

/* struct phv_vcpu */
#define V_HOST_CALLS	160

/* struct vcpu, behind struct phv_vcpu */
#define V_RSP		256	/* guest stack pointer while the layer runs for it */
#define V_RBX		264
#define V_RBP		272
#define V_R12		280
#define V_R13		288
#define V_R14		296
#define V_R15		304
#define V_HOST_STACK	312	/* top of this vCPU's host stack, at the same address in every process */
#define V_USER_GS	320
#define V_KERNEL_GS	328
#define V_USER_RSP	336	/* at the last system call or cpu.sysret; the others are on their way out through the latter */
#define V_USER_RAX	344
#define V_USER_RIP	352
#define V_USER_FLAGS	360
#define V_USER_CS	368	/* and SS behind it, u32 each: what interrupts of user code push */
#define V_PERCPU	376	/* struct vmi_percpu, once there is one */
#define V_SCRATCH	512	/* top of a stack of a few words, for popfq */

/*
 * struct vmi_percpu: the first 16 bytes are the kernel's. Everything here belongs to the vCPU
 * and is only touched by the thread that is the vCPU.
 */
#define F_VCPU		16	/* struct vcpu * */
#define F_IRQ		24	/* virtual interrupt flag, 0 or 1 */
#define F_PENDING	26	/* an interrupt may be deliverable once F_IRQ is set */
#define F_FORCE		27	/* FORCE_*, whatever F_IRQ says */
#define FORCE_EVENT	1	/* an NMI, or the vCPU goes off: at every return to the guest */
#define FORCE_IRET	4	/* an NMI's handler is on: at the next iret, which lets another one in */
#define FORCE_PAGES	2	/* pages that only the kernel may see are mapped: at a return to user mode */
#define F_SCRATCH	32
#define F_LSTAR		40	/* where system calls from slots enter the kernel: struct vcpu.stub_entry, or its lstar */

/*
 * Displacement of the vmi_percpu from the GS base, unknown until core.init: the thunks are
 * assembled with this pattern in its place, and init adds the difference everywhere.
 */
#define GS_PATTERN	0x5aa5c000
#define GS(field)	%gs:GS_PATTERN + field

/* struct cpuid_entry, and what is special in it */
#define CPUID_SUBLEAF	4
#define CPUID_EAX	8
#define CPUID_EBX	12
#define CPUID_ECX	16
#define CPUID_EDX	20
#define CPUID_ENTRY	24
#define CPUID_ANY	0xffffffff	/* subleaf: whatever was asked for */
#define CPUID_NONE	0xffffffff	/* leaf: behind the last entry */

/* A descriptor that every thread has for itself: its limit is the number of the vCPU. */
#define THREAD_ENTRY	12
#define THREAD_SELECTOR	(THREAD_ENTRY * 8 + 3)

#endif
