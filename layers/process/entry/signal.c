// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Host signals: the exceptions and system calls of guest code, and notifications.
 *
 * All handlers run on the thread's signal stack; a nested one continues below. They return by rt_sigreturn
 * with the registers that they leave in the frame, so the FPU state is the host's business. Cost: a signal and its
 * return, about 1 us, plus what the handler does.
 *
 * How deep they nest is bounded, whatever is sent: a notification does not interrupt the handler of one, since SIGURG is
 * blocked there, and that of an exception is interrupted by at most one notification and by the layer's own faults, of
 * which each handler has one at a time. So no more than MAX_FRAMES frames lie on the stack. The price is that a notification
 * always ends in a signal return, which alone can open the mask again.
 */
#include "common/faults.h"
#include "entry/debug.h"
#include "device/device.h"
#include "state/event.h"
#include "host/host.h"
#include "vcpu/irq.h"
#include "mm/mmu.h"
#include "entry/signal.h"
#include "vcpu/space.h"

extern const u8 ph_iretq[], ph_iretq_kernel[], ph_injected_syscall[], thunk_cpu_stop[];
void ph_sigreturn(void);
noreturn void ph_enter_kernel(const struct host_registers *regs, const struct vmi_percpu *percpu);
noreturn void ph_load_context(const struct host_ucontext *context);

#define HOST_TRAP_TRACE 2	/* si_code */

/* An exception, a notification in its handler, and a fault of the layer's in each; with room for all of AVX-512. */
#define MAX_FRAMES 4
#define FRAME_MAX 8192
_Static_assert(MAX_FRAMES * FRAME_MAX <= SIGNAL_STACK_SIZE, "SIGNAL_STACK_SIZE");

#define SA_SIGINFO 4ULL
#define SA_ONSTACK 0x08000000ULL
#define SA_RESTORER 0x04000000ULL
#define SA_NODEFER 0x40000000ULL

/*
 * User code that has jumped into the layer. Only the layer's own stacks and the ways out to user mode have the user's GS base there
 * while interrupts are enabled.
 */
static bool strayed(const struct vcpu *v, const struct host_registers *regs)
{
	return in_layer(regs->rip) && from_user(v, regs->rip) &&
	       regs->rsp - (u64)thread_of(v) >= PHV_STACK_SIZE && !window_out(regs->rip);
}

static u32 access_of(const struct vcpu *v, const struct host_registers *regs)
{
	bool user = in_layer(regs->rip) ? strayed(v, regs) : from_user(v, regs->rip);

	return (u32)(regs->error & (PF_WRITE | PF_FETCH)) | (user ? PF_USER : 0);
}

/* A page fault: of guest code, or of the layer while it touches the guest's memory. */
static void page_fault(struct vcpu *v, struct host_registers *regs)
{
	u64 error, va = regs->cr2;

	if (tlb_fault(v, va, access_of(v, regs), &error)) {
		v->s.faults_hidden++;
		event(v, PHV_EVENT_FILL, va, regs->rip);
		return;
	}
	/* What the layer itself reads or writes for a guest is no device's business. */
	if ((error & PF_RESERVED) && !in_layer(regs->rip) && device_access(v, regs, va, access_of(v, regs)))
		return;
	if (in_layer(regs->rip) && !strayed(v, regs))
		fatal_at("guest: triple fault, or a bad pointer in a call; address", va, regs->rip);
	v->cr2 = va;
	event(v, PHV_EVENT_FAULT, va, error);
	inject(v, regs, VECTOR_PF, true, error);
}

/* Exceptions by the processor's vector, in guest code. */
static void exception(struct vcpu *v, struct host_registers *regs, s32 code)
{
	u32 vector = (u32)regs->trap;

	switch (vector) {
	case VECTOR_PF:
		page_fault(v, regs);
		return;
	case VECTOR_DB:
		/* A step may have been one that cleared TF; and int1 sets no bit. */
		v->dr[6] = 0xffff0ff0 | (code == HOST_TRAP_TRACE ? 0x4000 : 0);
		inject(v, regs, vector, false, 0);
		return;
	case VECTOR_BP:
		if (!debug_on() || !debug_stop(v, regs, PHV_STOP_BREAKPOINT))
			inject(v, regs, vector, false, 0);
		return;
	case VECTOR_GP:
		/* int n: the error code is that of the gate which the host's own table does not open. */
		if ((regs->error & 7) == 2) {
			inject_software(v, regs, (u32)regs->error >> 3 & 0xff, 2);
			return;
		}
		inject(v, regs, vector, true, regs->error);
		return;
	case 8: case 10: case 11: case 12:
		inject(v, regs, vector, true, regs->error);
		return;
	case VECTOR_AC:
		inject(v, regs, vector, true, 0);
		return;
	default:
		inject(v, regs, vector, false, 0);
	}
}

/*
 * A synchronous signal while the instruction pointer is in the layer. False: the stack pointer may be the program's, since what was
 * completed may have been the way of a system call.
 */
static bool layer_fault(struct vcpu *v, int signal, struct host_registers *regs, s32 code)
{
	bool asked = signal == SIGSEGV && regs->trap == VECTOR_GP;	/* the hlt at the end of a window */
	u64 error;

	if (signal == SIGSEGV && regs->trap == VECTOR_PF) {
		page_fault(v, regs);
		return true;
	}
	/* iretq refused the guest's frame: a #GP of the kernel, with the frame still on its stack. */
	if ((regs->rip == (u64)ph_iretq || regs->rip == (u64)ph_iretq_kernel) && (signal == SIGSEGV || signal == SIGBUS)) {
		wrgsbase(v->kernel_gs);
		FAST(v, F_IRQ) = 0;
		inject(v, regs, (u32)regs->trap, true, regs->error);
		return true;
	}
	/*
	 * User code that is stepped comes here behind the last instruction of a slot, with nothing done yet. A processor steps over a
	 * syscall instruction as a whole.
	 */
	if (signal == SIGTRAP && regs->rip == (u64)ph_injected_syscall && !FAULT(INJECTED_STEP_FATAL)) {
		window_complete(v, regs);
		return false;
	}
	if (asked && regs->rip == (u64)thunk_cpu_stop)
		space_stop_vcpu(v);
	if (asked && window_bad_frame(regs, &error)) {
		FAST(v, F_IRQ) = 0;
		/* As a processor has it: an iret that is refused lets NMIs in all the same. */
		v->nmi_on = 0;
		irq_refresh(v);
		inject(v, regs, VECTOR_GP, true, error);
		return true;
	}
	if (asked && window_complete(v, regs)) {
		/* The boot vCPU starts before there is a core.init. */
		if (v->percpu)
			return deliver_pending(v, regs);
		if (READ_ONCE(v->s.pending) & PHV_PENDING_DEBUG)
			debug_stop(v, regs, PHV_STOP_ASKED);
		return false;
	}
	if (!strayed(v, regs))
		fatal("process: unexpected signal in the layer at", regs->rip);
	exception(v, regs, code);
	return true;
}

/*
 * A signal return loads all flags but NT and ID, which stay as the handler has them. Without a change that is what they were when the
 * signal came, which is what is wanted when nothing else is.
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

/* The host leaves AC as it was. Compilers read small fields that lie side by side as one, which need not be aligned. */
static void without_alignment_check(u64 flags)
{
	if (flags & FLAG_AC)
		__asm__ volatile("pushfq\n\tandl $~0x40000, (%%rsp)\n\tpopfq" : : : "cc", "memory");
}

/*
 * The end of a handler: straight into the kernel where nothing can come in between, else by the host's signal return. A fault of the
 * layer's own goes back by the latter: its stack may be this one. So does who may have a stack that is not the kernel's: wherever
 * nothing has just put a frame there, and no instruction of the kernel's was at fault, it may be the program's (inject.c). And so does
 * a notification, whose handler has SIGURG blocked (open is false).
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
	if (!((stack && open) || FAULT(ENTERS_ON_ANY_STACK)) || !v->percpu || FAST(v, F_IRQ) || !kernel_address(regs->rip) || !kernel_address(regs->rsp) ||
	    (regs->rflags & (FLAG_TF | FLAG_AC)) || regs->cs != HOST_USER_CS)
		return;
	ph_enter_kernel(regs, v->percpu);
}

/* From ph_sigreturn: something was marked while a handler was on, and the guest may be told. */
void signal_again(struct vcpu *v, struct host_registers *regs);

void signal_again(struct vcpu *v, struct host_registers *regs)
{
	deliver_pending(v, regs);
	carry_flags(regs->rflags);
}

/* SIGURG: look at what is pending, now if the guest was running, else on the way back to it. */
static void notified(struct vcpu *v, struct thread *t, struct host_registers *regs)
{
	if (!v->percpu)
		return;
	if (in_layer(regs->rip) && !window_complete(v, regs)) {
		irq_mark(v);
		/* On the guest's stack there may be a call that any GS base is good for. */
		if (regs->rsp - (u64)t >= PHV_STACK_SIZE)
			__atomic_fetch_or(&ph_any_pending, 1ULL << t->number, __ATOMIC_SEQ_CST);
		window_rollback(regs);
		return;
	}
	deliver_pending(v, regs);
	leave(v, regs, false, false);
}

static void handler(int signal, struct host_siginfo *info, struct host_ucontext *context)
{
	struct host_registers *regs = &context->regs;
	struct thread *t = thread_here();
	/* What is stepped or stopped for a debugger may be anything. */
	bool stack = signal != SIGTRAP;
	struct vcpu *v;

	without_alignment_check(regs->rflags);
	fpstate_trim(regs);
	v = t->vcpu;
	if (v->s.owner != ((u64)self.pid << 32 | t->tid)) {
		/* A notification for a vCPU that is elsewhere by now; it looks by itself there. */
		if (signal == SIGURG)
			return;
		fatal("process: a parked thread got a signal at", regs->rip);
	}
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
		/* A system call leaves rsp as the program has it, which can be anything. */
		leave(v, regs, info->sys.arch != ARCH_X86_64, true);
		return;
	}
	if (signal == SIGBUS && regs->trap == VECTOR_PF)
		fatal("host: out of memory for guest RAM; address", info->fault.addr);
	if (signal == SIGTRAP && v->debug_step && regs->trap == VECTOR_DB)
		debug_step_trap(v, regs);
	else if (in_layer(regs->rip))
		stack &= layer_fault(v, signal, regs, info->code);
	else
		exception(v, regs, info->code);
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
		 * A handler of an exception may end without a signal return, and may meet another
		 * exception. The handler of SIGURG does neither, and blocks SIGURG.
		 */
		bool nests = signals[i] != SIGURG || FAULT(NOTIFICATIONS_NEST);
		struct host_sigaction action = {
			(u64)handler, SA_SIGINFO | SA_ONSTACK | SA_RESTORER | (nests ? SA_NODEFER : 0),
			(u64)ph_sigreturn, 0,
		};

		r = host4(rt_sigaction, signals[i], &action, 0, 8);
		if (r)
			return r;
	}
	return 0;
}

s64 signals_stack(struct thread *t)
{
	u64 stack[3] = { (u64)t + SIGNAL_STACK, 0, SIGNAL_STACK_SIZE };

	return host2(sigaltstack, stack, 0);
}

noreturn void signals_open(struct thread *t, void (*function)(void *))
{
	/*
	 * The stack pointer is 8 below a multiple of 16, as after a call. The signal return sets the
	 * signal stack, too: it stays the same.
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
