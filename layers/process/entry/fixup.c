// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Fixups of critical sections: the guest's registers at each instruction of crossing/. */
#include "entry/fixup.h"
#include "common/faults.h"
#include "crossing/crossing.h"
#include "entry/inject.h"
#include "host/signals.h"
#include "state/cpu.h"
#include "state/state.h"

extern const u8 ph_layer_code[], ph_text_end[];
extern const u8 ph_tail[], ph_tail_end[], ph_any_tail[], ph_any_tail_end[];
extern const u8 thunk_cpu_iret[], ph_iret_critical[], ph_iretq[], ph_iret_kernel_changed[],
	ph_iretq_kernel[], ph_iret_deliver[], ph_iret_end[];
extern const u8 ph_sysret_critical[], ph_sysret_end[];
extern const u8 ph_injected_syscall[];
extern const u8 ph_which_vcpu_0[], ph_injected_rsp_0[], ph_injected_flags_0[], ph_injected_rcx_0[],
	ph_injected_gs_0[], ph_injected_end_0[];
extern const u8 ph_which_vcpu_1[], ph_injected_rsp_1[], ph_injected_flags_1[], ph_injected_rcx_1[],
	ph_injected_gs_1[], ph_injected_end_1[];
extern const u8 ph_sigreturn[], ph_sigreturn_end[], ph_syscall[];
extern const u8 ph_enter_kernel[], ph_enter_pops[], ph_enter_kernel_end[];

static bool inside(u64 rip, const u8 *start, const u8 *end)
{
	return rip >= (u64)start && rip < (u64)end;
}

/* Completes an iret from the frame at the stack pointer that the guest gave to cpu.iret. */
static void complete_iret(struct vcpu *v, struct host_registers *regs, const u64 *frame, bool user)
{
	u64 rip = frame[0], cs = frame[1] & 0xffff, flags = frame[2], rsp = frame[3];

	regs->rip = rip;
	regs->rsp = rsp;
	regs->rflags = (flags & FLAGS_IRET) | 0x202;
	v->nmi_on = 0;
	if (user) {
		v->user_cs = (u32)cs;
		v->user_ss = (u32)(frame[4] & 0xffff);
		wrgsbase(v->user_gs);
		FAST(v, F_IRQ) = 1;
		/* Only the 32-bit one of the host's code segments must be recognised. */
		regs->cs = cs == HOST_USER_CS32 ? HOST_USER_CS32 : HOST_USER_CS;
	} else {
		FAST(v, F_IRQ) = (flags & FLAG_IF) != 0;
		regs->rflags &= ~FLAG_AC;
	}
}

static bool selectors_good(u64 cs, u64 ss)
{
	if (!(cs & 3))
		return cs == shared->kernel_cs;
	return (cs == shared->user_cs || cs == HOST_USER_CS32) &&
	       (ss == shared->user_ss || ss == 0x2b);
}

bool fixup_bad_frame(const struct host_registers *regs, u64 *error)
{
	const u64 *frame = to_pointer(regs->rsp);
	u64 cs = frame[1] & 0xffff, ss = frame[4] & 0xffff;

	if (!inside(regs->rip, ph_iret_deliver, ph_iret_end) || selectors_good(cs, ss))
		return false;
	*error = (cs & 3 && (cs == shared->user_cs || cs == HOST_USER_CS32) ? ss : cs) & ~3ULL;
	return true;
}

/*
 * Completes the pops of ph_enter_kernel from the kernel's stack: fifteen registers in the order of
 * the frame, the flags and the address. The instructions are eight pops of two bytes, seven of one,
 * popfq and ret.
 */
static void complete_pops(struct host_registers *regs, u64 *stack)
{
	u64 offset = regs->rip - (u64)ph_enter_pops, i;
	u64 done = offset < 16 ? offset / 2 : offset - 8;
	u64 *words = (u64 *)regs;

	for (i = done; i < 15; i++)
		words[i] = *stack++;
	if (done <= 15)
		regs->rflags = *stack++;
	regs->rip = *stack++;
	regs->rsp = (u64)stack;
}

/* The labels of one of the two paths through ph_injected_syscall. */
struct injected {
	const u8 *start, *rsp, *flags, *rcx, *gs, *end;
	u64 zero;		/* FLAG_ZF if it was set */
};

static const struct injected injected_ways[] = {
	{ ph_which_vcpu_0, ph_injected_rsp_0, ph_injected_flags_0, ph_injected_rcx_0,
	  ph_injected_gs_0, ph_injected_end_0, 0 },
	{ ph_which_vcpu_1, ph_injected_rsp_1, ph_injected_flags_1, ph_injected_rcx_1,
	  ph_injected_gs_1, ph_injected_end_1, FLAG_ZF },
};

/* Restores what the user had, then does the whole system call. */
static bool complete_injected(struct vcpu *v, struct host_registers *regs)
{
	const u64 *top = (const u64 *)((const u8 *)v + V_SCRATCH);
	const struct injected *way;
	u64 rip = regs->rip;

	if (!inside(rip, ph_injected_syscall, ph_injected_end_1))
		return false;
	if (!inside(rip, ph_injected_syscall, ph_which_vcpu_0)) {
		way = &injected_ways[rip >= (u64)ph_which_vcpu_1];
		if (rip >= (u64)way->gs)
			wrgsbase(v->user_gs);
		if (rip >= (u64)way->rcx && !FAULT(STUB_FIXUP_RCX))
			regs->rcx = top[-2];
		if (rip >= (u64)way->flags)
			regs->rflags = top[-1];
		if (rip >= (u64)way->rsp)
			regs->rsp = v->user_rsp;
		regs->rflags = (regs->rflags & ~FLAG_ZF) | way->zero;
	}
	regs->rip = regs->rcx;
	inject_stub_call(v, regs);
	return true;
}

void fixup_rollback(struct host_registers *regs)
{
	if (FAULT(HANDLER_END_BLIND))
		return;
	if (inside(regs->rip, ph_sigreturn, ph_sigreturn_end) ||
	    (regs->rip == (u64)ph_syscall && regs->rax == 15))
		regs->rip = (u64)ph_sigreturn;
	if (inside(regs->rip, ph_enter_kernel, ph_enter_pops)) {
		/*
		 * Its argument is in the frame that was about to be left without a signal return.
		 */
		regs->rsp = regs->rdi - offsetof(struct host_ucontext, regs);
		regs->rip = (u64)ph_sigreturn;
	}
}

bool fixup_complete(struct vcpu *v, struct host_registers *regs)
{
	u64 rip = regs->rip;
	u64 *stack = to_pointer(regs->rsp);

	if (inside(rip, ph_tail, ph_tail_end) || inside(rip, ph_any_tail, ph_any_tail_end)) {
		regs->rip = stack[0];
		regs->rsp += 8;
		return true;
	}
	if (rip == (u64)ph_iretq || rip == (u64)ph_iretq_kernel ||
	    inside(rip, ph_iret_deliver, ph_iret_end)) {
		complete_iret(v, regs, stack, rip != (u64)ph_iretq_kernel && (stack[1] & 3));
		return true;
	}
	if (inside(rip, ph_iret_critical, ph_iret_deliver)) {
		regs->rax = stack[0];
		complete_iret(v, regs, stack + 1,
			      !inside(rip, ph_iret_kernel_changed, ph_iretq_kernel) &&
			      (stack[2] & 3));
		return true;
	}
	if (inside(rip, ph_sysret_critical, ph_sysret_end)) {
		regs->rip = v->user_rip;
		regs->rcx = v->user_rip;
		regs->rax = v->user_rax;
		regs->rsp = v->user_rsp;
		regs->rflags = (v->user_flags & FLAGS_SYSRET) | 0x202;
		v->user_cs = shared->user_cs;
		v->user_ss = shared->user_ss;
		wrgsbase(v->user_gs);
		FAST(v, F_IRQ) = 1;
		return true;
	}
	if (complete_injected(v, regs))
		return true;
	if (inside(rip, ph_enter_pops, ph_enter_kernel_end)) {
		complete_pops(regs, stack);
		return true;
	}
	if (rip == (u64)ph_resume_full) {
		const struct vmi_ap_state *s = &v->ap;

		regs->rip = s->rip;
		regs->rflags = (s->rflags & FLAGS_IRET) | 0x202;
		regs->rax = s->gpr[0];
		regs->rcx = s->gpr[1];
		regs->rdx = s->gpr[2];
		regs->rbx = s->gpr[3];
		regs->rsp = s->gpr[4];
		regs->rbp = s->gpr[5];
		regs->rsi = s->gpr[6];
		regs->rdi = s->gpr[7];
		regs->r8 = s->gpr[8];
		regs->r9 = s->gpr[9];
		regs->r10 = s->gpr[10];
		regs->r11 = s->gpr[11];
		regs->r12 = s->gpr[12];
		regs->r13 = s->gpr[13];
		regs->r14 = s->gpr[14];
		regs->r15 = s->gpr[15];
		return true;
	}
	return false;
}
