/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Exceptions, interrupts, and catching the expected ones. */
#ifndef KERNEL_TRAP_H
#define KERNEL_TRAP_H

#include "layout.h"
#include "percpu.h"
#include "types.h"

enum {
	VECTOR_DE = 0, VECTOR_DB = 1, VECTOR_NMI = 2, VECTOR_BP = 3,
	VECTOR_OF = 4, VECTOR_UD = 6, VECTOR_NM = 7, VECTOR_DF = 8,
	VECTOR_TS = 10, VECTOR_NP = 11, VECTOR_SS = 12, VECTOR_GP = 13,
	VECTOR_PF = 14, VECTOR_MF = 16, VECTOR_AC = 17, VECTOR_XM = 19,
	/* The kernel's own. Tests use any vector from 0x40 to 0xdf. */
	VECTOR_TRAP_GATE = 0x30,	/* user mode may not raise it; a trap gate */
	VECTOR_USER_GATE = 0x31,	/* user mode may raise it: int $0x31 */
	VECTOR_WORK = 0xf0,
	VECTOR_WATCHDOG = 0xf1,
	VECTOR_SPURIOUS = 0xff,
};

#define FLAGS_CF	0x0001ull
#define FLAGS_FIXED	0x0002ull
#define FLAGS_TF	0x0100ull
#define FLAGS_IF	0x0200ull
#define FLAGS_DF	0x0400ull
#define FLAGS_NT	0x4000ull
#define FLAGS_RF	0x10000ull
#define FLAGS_AC	0x40000ull
#define FLAGS_ID	0x200000ull
#define FLAGS_ARITHMETIC 0x08d5ull

#define PF_P		1ull
#define PF_W		2ull
#define PF_U		4ull
#define PF_I		16ull

/* As vectors.S pushes it. */
struct regs {
	u64 r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8;
	u64 rax, rcx, rdx, rsi, rdi;
	u64 vector, error;
	u64 rip, cs, rflags, rsp, ss;
};

_Static_assert(offsetof(struct regs, rax) == REGS_RAX, "rax");
_Static_assert(offsetof(struct regs, vector) == REGS_VECTOR, "vector");
_Static_assert(offsetof(struct regs, rip) == REGS_RIP, "rip");
_Static_assert(sizeof(struct regs) == REGS_SIZE, "regs");

/* An exception that was caught. vector is -1 where there was none. */
struct catch {
	u64 rsp;		/* the frame of catch_call(), see jump.S */
	struct catch *outer;
	s64 vector;
	u64 cr2;
	struct regs regs;
};

/*
 * Calls function(argument). An exception ends the function and is recorded in
 * catch; the result is then true.
 */
bool catch_trap(struct catch *catch, void (*function)(void *), void *argument);

typedef void irq_handler_fn(struct regs *regs);

/* The handler runs with the interrupt flag as the gate left it; trap() does apic.eoi. */
void set_irq_handler(u32 vector, irq_handler_fn *handler);
/* The handler does apic.eoi itself, or the interrupt needs none. */
void set_raw_handler(u32 vector, irq_handler_fn *handler);
void reset_irq_handlers(void);

/* Interrupts of this vector that a vCPU has taken since it started. */
u64 irq_count(u32 vcpu, u32 vector);

/* Called by vectors.S. */
void trap(struct regs *regs);

/* vectors.S: a stub for each vector, and the target of the syscall instruction. */
extern char vector_stubs[], vector_stubs_end[];
#define VECTOR_STUB_SIZE 16
void syscall_entry(void);

#endif
