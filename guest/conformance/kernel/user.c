// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "user.h"
#include "calls.h"
#include "site.h"

/* user.S */
void user_enter(const struct regs *regs, u64 *save, void *tss, u64 *kernel_rsp,
		vmi_cpu_set_kernel_stack_fn *set_kernel_stack);
noreturn void user_leave(u64 saved);

void user_run(struct user_context *context)
{
	struct percpu *cpu = this_cpu();

	irq_disable();
	cpu->user = context;
	user_enter(&context->in, &cpu->user_return, &cpu->tss, &cpu->kernel_rsp,
		   vmi.cpu_set_kernel_stack);
	cpu->user = NULL;
}

noreturn void user_trap(struct regs *regs)
{
	struct percpu *cpu = this_cpu();

	cpu->user->out = *regs;
	cpu->user->cr2 = get_cr2();
	cpu->user->irqs_on = irqs_enabled();
	irq_disable();
	user_leave(cpu->user_return);
}
