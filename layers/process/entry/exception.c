// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Exceptions of guest code, and faults in the layer. */
#include "entry/exception.h"
#include "common/faults.h"
#include "device/device.h"
#include "entry/debug.h"
#include "entry/deliver.h"
#include "entry/fixup.h"
#include "entry/inject.h"
#include "entry/where.h"
#include "host/call.h"
#include "host/fatal.h"
#include "host/signals.h"
#include "mm/fill.h"
#include "mm/walk.h"
#include "state/cpu.h"
#include "state/event.h"
#include "state/state.h"
#include "vcpu/irq.h"
#include "vcpu/start.h"

extern const u8 ph_iretq[], ph_iretq_kernel[], ph_injected_syscall[], thunk_cpu_stop[];

#define HOST_TRAP_TRACE 2	/* si_code */

static u32 access_of(const struct vcpu *v, const struct host_registers *regs)
{
	bool user = in_layer(regs->rip) ? strayed(v, regs) : from_user(v, regs->rip);

	return (u32)(regs->error & (PF_WRITE | PF_FETCH)) | (user ? PF_USER : 0);
}

/* A page fault of guest code, or of the layer when it touches guest memory. */
static void page_fault(struct vcpu *v, struct host_registers *regs)
{
	u64 error, va = regs->cr2;

	if (tlb_fault(v, va, access_of(v, regs), &error)) {
		v->s.faults_hidden++;
		event(v, PHV_EVENT_FILL, va, regs->rip);
		return;
	}
	/* The layer's own accesses on behalf of a guest never go to devices. */
	if ((error & PF_RESERVED) && !in_layer(regs->rip)) {
		switch (device_access(v, regs, va, access_of(v, regs))) {
		case DEVICE_NONE:
			break;
		case DEVICE_DONE:
			return;
		case DEVICE_STEPPED:
			v->dr[6] = 0xffff4ff0;
			inject(v, regs, VECTOR_DB, false, 0);
			return;
		case DEVICE_REFUSED:
			inject(v, regs, VECTOR_GP, true, 0);
			return;
		}
	}
	if (in_layer(regs->rip) && !strayed(v, regs))
		fatal_at("guest: triple fault, or a bad pointer in a call; address", va, regs->rip);
	v->cr2 = va;
	event(v, PHV_EVENT_FAULT, va, error);
	inject(v, regs, VECTOR_PF, true, error);
}

#define T(vector) (1U << (vector))
/* The exceptions for which a host sends each signal. */
static const u32 traps_of[] = {
	[SIGILL] = T(VECTOR_UD),
	[SIGTRAP] = T(VECTOR_DB) | T(VECTOR_BP),
	[SIGBUS] = T(11) | T(12) | T(VECTOR_GP) | T(VECTOR_PF) | T(VECTOR_AC),
	[SIGFPE] = T(0) | T(9) | T(16) | T(19),
	[SIGSEGV] = T(4) | T(5) | T(8) | T(10) | T(11) | T(12) | T(VECTOR_GP) | T(VECTOR_PF) |
		T(21),
};
#undef T

void trap_of_signal(int signal, struct host_registers *regs)
{
	static const u8 otherwise[] = {
		[SIGILL] = VECTOR_UD, [SIGTRAP] = VECTOR_DB, [SIGBUS] = VECTOR_GP,
		[SIGFPE] = 16, [SIGSEGV] = VECTOR_GP,
	};

	if (regs->trap < 32 && traps_of[signal] >> regs->trap & 1)
		return;
	regs->trap = otherwise[signal];
	regs->error = 0;
}

/* Exceptions by the processor's vector, in guest code. */
void guest_exception(struct vcpu *v, struct host_registers *regs, s32 code)
{
	u32 vector = (u32)regs->trap;

	switch (vector) {
	case VECTOR_PF:
		page_fault(v, regs);
		return;
	case VECTOR_DB:
		/* The step may have executed an instruction that clears TF. int1 sets no bit. */
		v->dr[6] = 0xffff0ff0 | (code == HOST_TRAP_TRACE ? 0x4000 : 0);
		inject(v, regs, vector, false, 0);
		return;
	case VECTOR_BP:
		if (!debug_on() || !debug_stop(v, regs, PHV_STOP_BREAKPOINT))
			inject(v, regs, vector, false, 0);
		return;
	case VECTOR_GP:
		/*
		 * int n: the error code names the gate, which the host's own table does not open.
		 */
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

bool layer_fault(struct vcpu *v, int signal, struct host_registers *regs, s32 code)
{
	/* the hlt of a critical section */
	bool asked = signal == SIGSEGV && regs->trap == VECTOR_GP;
	u64 error;

	if (signal == SIGSEGV && regs->trap == VECTOR_PF) {
		page_fault(v, regs);
		return true;
	}
	/*
	 * iretq has refused the guest's frame: a #GP of the kernel, with the frame still on its
	 * stack.
	 */
	if ((regs->rip == (u64)ph_iretq || regs->rip == (u64)ph_iretq_kernel) &&
	    (signal == SIGSEGV || signal == SIGBUS)) {
		wrgsbase(v->kernel_gs);
		FAST(v, F_IRQ) = 0;
		inject(v, regs, (u32)regs->trap, true, regs->error);
		return true;
	}
	/*
	 * User code that is stepped arrives here after the last instruction of a stub, with nothing
	 * done yet. A processor steps over a syscall instruction as a whole.
	 */
	if (signal == SIGTRAP && regs->rip == (u64)ph_injected_syscall &&
	    !FAULT(INJECTED_STEP_FATAL)) {
		fixup_complete(v, regs);
		return false;
	}
	if (asked && regs->rip == (u64)thunk_cpu_stop)
		vcpu_stop(v);
	if (asked && fixup_bad_frame(regs, &error)) {
		FAST(v, F_IRQ) = 0;
		/* As on a processor, a refused iret admits NMIs nevertheless. */
		v->nmi_on = 0;
		irq_refresh(v);
		inject(v, regs, VECTOR_GP, true, error);
		return true;
	}
	if (asked && fixup_complete(v, regs)) {
		/* The boot vCPU starts before core.init. */
		if (v->percpu)
			return deliver_pending(v, regs);
		if (READ_ONCE(v->s.pending) & PHV_PENDING_DEBUG)
			debug_stop(v, regs, PHV_STOP_ASKED);
		return false;
	}
	if (!strayed(v, regs))
		fatal("process: unexpected signal in the layer at", regs->rip);
	guest_exception(v, regs, code);
	return true;
}
