// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Entering the guest kernel: the frame that a processor pushes, with the guest's selectors and its virtual
 * interrupt flag, on the stack that its task state names.
 *
 * The frame is written through the guest's own linear addresses. If a page of the stack has no host mapping yet, that
 * faults inside here and is filled by a nested signal; if the guest has none, the machine is at its end (triple fault).
 */
#include "../common/faults.h"
#include "debug.h"
#include "event.h"
#include "host.h"
#include "irq.h"
#include "mmu.h"
#include "signal.h"
#include "space.h"

u64 ph_any_pending;

struct gate {
	u64 low, high;
};

#define GATE_PRESENT (1ULL << 47)
#define GATE_TYPE(low) ((low) >> 40 & 0xf)
#define GATE_DPL(low) ((low) >> 45 & 3)
#define GATE_INTERRUPT 0xe

static bool gate_read(const struct vcpu *v, u32 vector, struct gate *gate)
{
	const u64 *entry = to_pointer(v->idt_base + vector * 16);

	if (vector * 16 + 15 > v->idt_limit)
		return false;
	gate->low = READ_ONCE(entry[0]);
	gate->high = READ_ONCE(entry[1]);
	return (gate->low & GATE_PRESENT) != 0;
}

static u64 gate_target(const struct gate *gate)
{
	return (gate->low & 0xffff) | (gate->low >> 32 & 0xffff0000) | gate->high << 32;
}

bool from_user(const struct vcpu *v, u64 rip)
{
	if (!kernel_address(rip))
		return true;
	return !FAULT(USER_BY_ADDRESS) && v->percpu && FAST(v, F_IRQ) && rdgsbase() != v->kernel_gs;
}

/*
 * The kernel's stack. While its entry has not left the user's yet, or its exit is back there, only an NMI comes in: the stack for
 * entries is free then.
 */
static u64 *stack_for(const struct vcpu *v, const struct host_registers *regs, bool user)
{
	u64 rsp = user || (!kernel_address(regs->rsp) && !FAULT(NMI_ON_USER_STACK)) ? v->rsp0 : regs->rsp;

	return to_pointer(rsp & ~15ULL);
}

/* A program may go from one of the host's code segments to the other by itself. */
static u32 user_selector(const struct vcpu *v, const struct host_registers *regs)
{
	if (FAULT(COMPAT_CS))
		return v->user_cs;
	if (regs->cs == HOST_USER_CS32)
		return HOST_USER_CS32;
	return v->user_cs == HOST_USER_CS32 ? shared->user_cs : v->user_cs;
}

/* From user mode the GS base is the user's: keep it, take the kernel's. */
static void enter_gs(struct vcpu *v)
{
	v->user_gs = rdgsbase();
	wrgsbase(v->kernel_gs);
}

void inject(struct vcpu *v, struct host_registers *regs, u32 vector, bool has_error, u64 error)
{
	bool user = from_user(v, regs->rip);
	u64 flags = regs->rflags & ~FLAG_IF & 0xffffffff;
	struct gate gate;
	u64 *sp;

	if (!gate_read(v, vector, &gate))
		fatal_at("guest: triple fault: no gate for vector", vector, regs->rip);
	event(v, vector < 32 ? VMI_PH_EVENT_EXCEPTION : VMI_PH_EVENT_INTERRUPT, vector, regs->rip);
	if (user) {
		enter_gs(v);
		flags |= FLAG_IF;
	} else {
		flags |= FAST(v, F_IRQ) ? FLAG_IF : 0;
	}
	sp = stack_for(v, regs, user);
	*--sp = user ? v->user_ss : shared->kernel_ss;
	*--sp = regs->rsp;
	*--sp = flags;
	*--sp = user ? user_selector(v, regs) : shared->kernel_cs;
	*--sp = regs->rip;
	if (has_error)
		*--sp = error;
	if (GATE_TYPE(gate.low) == GATE_INTERRUPT)
		FAST(v, F_IRQ) = 0;
	regs->rip = gate_target(&gate);
	regs->rsp = (u64)sp;
	/*
	 * A processor checks alignment at privilege level 3 alone: the kernel must not find AC set here, where it runs
	 * at level 3 too. Its own stac and clac do not exist for it.
	 */
	regs->rflags &= ~(FLAG_TF | FLAG_NT | FLAG_RF | FLAG_AC);
	regs->cs = HOST_USER_CS;
	v->s.faults_injected += has_error;
}

void inject_software(struct vcpu *v, struct host_registers *regs, u32 vector, u32 length)
{
	struct gate gate;

	/* The host's fault set RF; a software interrupt is a trap. */
	regs->rflags &= ~FLAG_RF;
	if (gate_read(v, vector, &gate) && GATE_DPL(gate.low) == 3) {
		regs->rip += length;
		inject(v, regs, vector, false, 0);
	} else {
		inject(v, regs, VECTOR_GP, true, vector << 3 | 2);
	}
}

/* The syscall instruction, as a processor does it: no stack switch, the kernel's entry does that. */
void inject_syscall(struct vcpu *v, struct host_registers *regs)
{
	event(v, VMI_PH_EVENT_SYSCALL, regs->rax, regs->rip);
	if (from_user(v, regs->rip))
		enter_gs(v);
	v->user_cs = shared->user_cs;
	v->user_ss = shared->user_ss;
	regs->rcx = regs->rip;
	regs->r11 = regs->rflags | FLAG_IF;
	regs->rip = v->lstar;
	if (v->sfmask & FLAG_IF)
		FAST(v, F_IRQ) = 0;
	regs->rflags &= ~(v->sfmask | FLAG_RF | FLAG_AC);
	regs->cs = HOST_USER_CS;
	v->s.syscalls_trapped++;
}

/* While a vCPU is stepped, nothing comes in between; what is noted is looked at again when it goes on. */
static void deliver_nothing(struct vcpu *v, const struct host_registers *regs)
{
	if (READ_ONCE(v->s.pending) & VMI_PH_PENDING_FLUSH) {
		__atomic_fetch_and(&v->s.pending, ~(u32)VMI_PH_PENDING_FLUSH, __ATOMIC_SEQ_CST);
		space_flush_serve(v);
	}
	if (from_user(v, regs->rip))
		tlb_drop_supervisor(v);
	FAST(v, F_PENDING) = 0;
	FAST(v, F_FORCE) = 0;
	/* A signal that came just before has noted it there. */
	if (READ_ONCE(v->s.pending) & VMI_PH_PENDING_DEBUG)
		force(v, FORCE_EVENT);
}

void deliver_pending(struct vcpu *v, struct host_registers *regs)
{
	u32 pending;
	u64 bit = 1ULL << thread_of(v)->number;
	int vector;

	if (__atomic_load_n(&ph_any_pending, __ATOMIC_RELAXED) & bit)
		__atomic_fetch_and(&ph_any_pending, ~bit, __ATOMIC_SEQ_CST);
	irq_refresh(v);
	if (READ_ONCE(v->s.pending) & VMI_PH_PENDING_DEBUG)
		debug_stop(v, regs, VMI_PH_STOP_ASKED);
	if (v->debug_step) {
		deliver_nothing(v, regs);
		return;
	}
	pending = READ_ONCE(v->s.pending);
	if (pending & VMI_PH_PENDING_STOP)
		space_stop_vcpu(v);
	if (pending & VMI_PH_PENDING_FLUSH) {
		__atomic_fetch_and(&v->s.pending, ~(u32)VMI_PH_PENDING_FLUSH, __ATOMIC_SEQ_CST);
		space_flush_serve(v);
	}
	if (pending & VMI_PH_PENDING_NMI) {
		__atomic_fetch_and(&v->s.pending, ~(u32)VMI_PH_PENDING_NMI, __ATOMIC_SEQ_CST);
		inject(v, regs, VECTOR_NMI, false, 0);
	}
	if (FAST(v, F_IRQ)) {
		vector = irq_next(v);
		if (vector >= 0) {
			irq_accept(v, (u32)vector);
			inject(v, regs, (u32)vector, false, 0);
		}
	}
	if (from_user(v, regs->rip))
		tlb_drop_supervisor(v);
	irq_refresh(v);
}
