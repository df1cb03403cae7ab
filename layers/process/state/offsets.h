/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Offsets that assembler uses. state.h asserts that the structures agree. */
#ifndef PROCESS_OFFSETS_H
#define PROCESS_OFFSETS_H

#include <paravane/process.h>

/* struct thread */
#define T_VCPU		0

/* struct phv_vcpu */
#define V_HOST_CALLS	160

/* struct vcpu, after struct phv_vcpu */
#define V_RSP		256	/* guest stack pointer while the layer runs for it */
#define V_RBX		264
#define V_RBP		272
#define V_R12		280
#define V_R13		288
#define V_R14		296
#define V_R15		304
/* top of this vCPU's host stack, the same address in every process */
#define V_HOST_STACK	312
#define V_USER_GS	320
#define V_KERNEL_GS	328
/* saved by the last system call or cpu.sysret; the next three by cpu.sysret */
#define V_USER_RSP	336
#define V_USER_RAX	344
#define V_USER_RIP	352
#define V_USER_FLAGS	360
#define V_USER_CS	368	/* and SS after it, u32 each: pushed by interrupts of user code */
#define V_PERCPU	376	/* struct vmi_percpu, NULL until core.init */
#define V_SCRATCH	512	/* top of a stack of a few words, for popfq */

/*
 * struct vmi_percpu: the first 16 bytes belong to the kernel. The fields below belong to the vCPU,
 * and only its owner touches them.
 */
#define F_VCPU		16	/* struct vcpu * */
#define F_IRQ		24	/* virtual interrupt flag, 0 or 1 */
#define F_PENDING	26	/* an interrupt may be deliverable once F_IRQ is set */
#define F_FORCE		27	/* FORCE_*, which act whatever F_IRQ is */
/* at every return to the guest: an NMI is pending, or the vCPU stops */
#define FORCE_EVENT	1
/* at the next iret: an NMI's handler runs, and the iret admits another NMI */
#define FORCE_IRET	4
/* at a return to user mode: pages are mapped that only the kernel may see */
#define FORCE_PAGES	2
#define F_SCRATCH	32
/* kernel entry of system calls from stubs: vcpu.stub_entry or lstar */
#define F_LSTAR		40

/*
 * Displacement of struct vmi_percpu from the GS base. It is unknown until core.init: the thunks are
 * assembled with this pattern in its place, and core.init adds the difference everywhere.
 */
#define GS_PATTERN	0x5aa5c000
#define GS(field)	%gs:GS_PATTERN + field

/* struct cpuid_entry, and its special values */
#define CPUID_SUBLEAF	4
#define CPUID_EAX	8
#define CPUID_EBX	12
#define CPUID_ECX	16
#define CPUID_EDX	20
#define CPUID_ENTRY	24
#define CPUID_ANY	0xffffffff	/* subleaf: any */
#define CPUID_NONE	0xffffffff	/* leaf: the entry after the last one */

/* A descriptor that each thread has for itself. Its limit is the vCPU's number. */
#define THREAD_ENTRY	12
#define THREAD_SELECTOR	(THREAD_ENTRY * 8 + 3)

#endif
