// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Signal stacks, and the load of a whole signal frame. */
#include "host/signals.h"
#include "host/call.h"
#include "state/cpu.h"
#include "state/state.h"

noreturn void ph_load_context(const struct host_ucontext *context);

s64 signals_stack(struct thread *t)
{
	u64 stack[3] = { (u64)t + SIGNAL_STACK, 0, SIGNAL_STACK_SIZE };

	return host2(sigaltstack, stack, 0);
}

noreturn void signals_open(struct thread *t, void (*function)(void *))
{
	/*
	 * The stack pointer is 8 below a multiple of 16, as after a call. The signal return also
	 * sets the signal stack, which stays the same.
	 */
	struct host_ucontext context = {
		.flags = UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS,
		.stack = { (u64)t + SIGNAL_STACK, 0, SIGNAL_STACK_SIZE },
		.regs = {
			.rip = (u64)function, .rdi = (u64)t, .rsp = host_stack_top(t) - 8,
			.rflags = 0x202, .cs = HOST_USER_CS, .ss = HOST_USER_SS,
		},
	};

	ph_load_context(&context);
}
