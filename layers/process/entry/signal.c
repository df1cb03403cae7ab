// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Host signals: the exceptions and system calls of guest code, and notifications.
 *
 * All handlers run on the thread's signal stack; a nested one continues below. They return by
 * rt_sigreturn with the registers that they leave in the frame, so the host takes care of the FPU
 * state. A signal and its return cost about 1 us, plus what the handler does.
 *
 * Nesting is bounded for any sequence of signals. A notification does not interrupt the handler of
 * another, since SIGURG is blocked there. The handler of an exception is interrupted by at most one
 * notification and by faults of the layer, of which each handler has one at a time. So at most
 * MAX_FRAMES frames lie on the stack. The cost: a notification always ends in a signal return,
 * because only that can open the mask again.
 */
#include "entry/signal.h"
#include "common/faults.h"
#include "entry/debug.h"
#include "entry/deliver.h"
#include "entry/exception.h"
#include "entry/fixup.h"
#include "entry/fpstate.h"
#include "entry/inject.h"
#include "entry/where.h"
#include "host/call.h"
#include "host/fatal.h"
#include "host/signals.h"
#include "state/cpu.h"
#include "state/state.h"
#include "vcpu/irq.h"

void ph_sigreturn(void);
noreturn void ph_enter_kernel(const struct host_registers *regs, const struct vmi_percpu *percpu);

/*
 * An exception, a notification in its handler, and a fault of the layer in each of them. A frame
 * has room for all of AVX-512.
 */
#define MAX_FRAMES 4
#define FRAME_MAX 8192
_Static_assert(MAX_FRAMES * FRAME_MAX <= SIGNAL_STACK_SIZE, "SIGNAL_STACK_SIZE");

#define SA_SIGINFO 4ULL
#define SA_ONSTACK 0x08000000ULL
#define SA_RESTORER 0x04000000ULL
#define SA_NODEFER 0x40000000ULL

/*
 * A signal return loads all flags but NT and ID. Those stay as the handler has them, that is, as
 * they were when the signal came, so they are set here if the guest's value differs.
 */
static void carry_flags(u64 flags)
{
	u64 now;

	__asm__ volatile("pushfq\n\tpopq %0" : "=r"(now));
	if (!((now ^ flags) & (FLAG_NT | FLAG_ID)) || FAULT(NT_AND_ID_STAY))
		return;
	now = (now & ~(FLAG_NT | FLAG_ID)) | (flags & (FLAG_NT | FLAG_ID));
	__asm__ volatile("pushq %0\n\tpopfq" : : "r"(now) : "cc");
}

/*
 * The host leaves AC as it was. Compilers read small adjacent fields as one, which need not be
 * aligned.
 */
static void without_alignment_check(u64 flags)
{
	if (flags & FLAG_AC)
		__asm__ volatile("pushfq\n\tandl $~0x40000, (%%rsp)\n\tpopfq" : : : "cc", "memory");
}

/*
 * Ends a handler: directly into the kernel where nothing can come in between, else by the host's
 * signal return. Three cases need the signal return. A fault of the layer may have this stack as
 * its own. A stack may be the program's unless a frame was just put there or an instruction of the
 * kernel faulted (stack is false; entry/inject.c). And the handler of a notification has SIGURG
 * blocked (open is false).
 */
static void leave(struct vcpu *v, struct host_registers *regs, bool stack, bool open)
{
	if (in_layer(regs->rip))
		return;
	if (v->debug_step)
		debug_step_end(v, regs);
	while (v->debug_resumed && !v->debug_step && v->percpu) {
		v->debug_resumed = 0;
		stack = deliver_pending(v, regs);
	}
	carry_flags(regs->rflags);
	if (!((stack && open) || FAULT(ENTERS_ON_ANY_STACK)) || !v->percpu || FAST(v, F_IRQ) ||
	    !kernel_address(regs->rip) || !kernel_address(regs->rsp) ||
	    (regs->rflags & (FLAG_TF | FLAG_AC)) || regs->cs != HOST_USER_CS)
		return;
	ph_enter_kernel(regs, v->percpu);
}

/*
 * Called from ph_sigreturn: a signal during the handler has left a mark, and the guest may be
 * interrupted.
 */
void signal_again(struct vcpu *v, struct host_registers *regs);

void signal_again(struct vcpu *v, struct host_registers *regs)
{
	deliver_pending(v, regs);
	carry_flags(regs->rflags);
}

/* SIGURG: delivers what is pending, now if guest code was running, else on the way back to it. */
static void notified(struct vcpu *v, struct thread *t, struct host_registers *regs)
{
	if (!v->percpu)
		return;
	if (in_layer(regs->rip) && !fixup_complete(v, regs)) {
		irq_mark(v);
		/* The stack is the guest's, so this may be a call with any GS base. */
		if (regs->rsp - (u64)t >= PHV_STACK_SIZE)
			__atomic_fetch_or(&ph_any_pending, 1ULL << t->number, __ATOMIC_SEQ_CST);
		fixup_rollback(regs);
		return;
	}
	deliver_pending(v, regs);
	leave(v, regs, false, false);
}

static void handler(int signal, struct host_siginfo *info, struct host_ucontext *context)
{
	struct host_registers *regs = &context->regs;
	struct thread *t = thread_here();
	/* Code that is stepped or stopped for a debugger may have any stack. */
	bool stack = signal != SIGTRAP;
	struct vcpu *v;

	without_alignment_check(regs->rflags);
	fpstate_trim(regs);
	v = t->vcpu;
	if (v->s.owner != ((u64)self.pid << 32 | t->tid)) {
		/*
		 * A notification for a vCPU that has been handed over. Its new owner looks by
		 * itself.
		 */
		if (signal == SIGURG)
			return;
		fatal("process: a parked thread got a signal at", regs->rip);
	}
	v->s.signals++;
	if (v->debug_step)
		debug_step_begin(v, regs);
	if (signal == SIGURG) {
		notified(v, t, regs);
		return;
	}
	if (signal == SIGSYS) {
		if (info->sys.arch == ARCH_X86_64)
			inject_syscall(v, regs);
		else
			regs->rip -= 2, inject_software(v, regs, 0x80, 2);
		/* A system call leaves rsp as the program had it, which can be any number. */
		leave(v, regs, info->sys.arch != ARCH_X86_64, true);
		return;
	}
	trap_of_signal(signal, regs);
	if (signal == SIGBUS && regs->trap == VECTOR_PF)
		fatal("host: out of memory for guest RAM; address", info->fault.addr);
	if (signal == SIGTRAP && v->debug_step && regs->trap == VECTOR_DB)
		debug_step_trap(v, regs);
	else if (in_layer(regs->rip))
		stack &= layer_fault(v, signal, regs, info->code);
	else
		guest_exception(v, regs, info->code);
	leave(v, regs, stack, true);
}

struct host_sigaction {
	u64 handler, flags, restorer, mask;
};

s64 signals_install(void)
{
	static const int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGURG };
	u32 i;
	s64 r;

	for (i = 0; i < ARRAY_SIZE(signals); i++) {
		/*
		 * A handler of an exception may end without a signal return, and may be interrupted
		 * by another exception. The handler of SIGURG does neither, and blocks SIGURG.
		 */
		bool nests = signals[i] != SIGURG || FAULT(NOTIFICATIONS_NEST);
		struct host_sigaction action = {
			(u64)handler, SA_SIGINFO | SA_ONSTACK | SA_RESTORER |
				(nests ? SA_NODEFER : 0),
			(u64)ph_sigreturn, 0,
		};

		r = host4(rt_sigaction, signals[i], &action, 0, 8);
		if (r)
			return r;
	}
	return 0;
}

