/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Runs user mode and reports the entry that ended it. */
#ifndef KERNEL_USER_H
#define KERNEL_USER_H

#include "trap.h"
#include "types.h"

struct user_context {
	struct regs in;		/* in.vector VECTOR_SYSCALL: by sysret, else iret */
	struct regs out;	/* the entry that ended it */
	u64 cr2;
	bool irqs_on;		/* the flag in that entry */
};

/*
 * Runs user mode from context->in until an exception, a system call or
 * int $VECTOR_USER_GATE. Serves interrupts that arrive in user mode. Returns
 * with interrupts off.
 */
void user_run(struct user_context *context);

/* Called by trap(). */
noreturn void user_trap(struct regs *regs);

#endif
