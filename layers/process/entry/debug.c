// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Stops a vCPU for the debugger in the monitor.
 *
 * A stopped vCPU waits in the signal handler that was about to return to the guest, because its
 * registers are complete there. To other vCPUs and the monitor it is halted: it is woken in the
 * same way, and it serves flushes that others wait for.
 *
 * A step uses the host's trap flag. Interrupts and NMIs wait until it is done. If the instruction
 * enters the layer, the flag is removed and the vCPU stops on its way back to the guest. If it
 * enters the kernel by an exception or a system call, the vCPU stops at the kernel's first
 * instruction.
 */
#include "entry/debug.h"
#include "entry/fixup.h"
#include "entry/where.h"
#include "host/doorbell.h"
#include "host/futex.h"
#include "host/signals.h"
#include "state/cpu.h"
#include "state/event.h"
#include "state/state.h"
#include "vcpu/irq.h"
#include "vcpu/slice.h"

extern const u8 ph_layer_code[], ph_text_end[];

static struct phv_debug *debug_of(const struct vcpu *v)
{
	return (struct phv_debug *)to_pointer(PHV_SHARED + PHV_SHARED_DEBUG) + v->number;
}

/* Offsets of the registers of phv_debug.gpr in the host's frame. */
static const u8 places[16] = {
	offsetof(struct host_registers, rax), offsetof(struct host_registers, rcx),
	offsetof(struct host_registers, rdx), offsetof(struct host_registers, rbx),
	offsetof(struct host_registers, rsp), offsetof(struct host_registers, rbp),
	offsetof(struct host_registers, rsi), offsetof(struct host_registers, rdi),
	offsetof(struct host_registers, r8), offsetof(struct host_registers, r9),
	offsetof(struct host_registers, r10), offsetof(struct host_registers, r11),
	offsetof(struct host_registers, r12), offsetof(struct host_registers, r13),
	offsetof(struct host_registers, r14), offsetof(struct host_registers, r15),
};

static void describe(const struct vcpu *v, struct phv_debug *d, bool user)
{
	d->cs = user ? v->user_cs : shared->kernel_cs;
	d->ss = user ? v->user_ss : shared->kernel_ss;
	d->fs_base = rdfsbase();
	d->gs_base = rdgsbase();
	d->cr2 = v->cr2;
	d->cr3 = v->cr3;
	d->kernel_root = READ_ONCE(shared->kernel_root);
}

/* A kernel that starts has no per-CPU data yet, and its interrupts are off. */
static u64 interrupt_flag(const struct vcpu *v, bool user)
{
	return user || (v->percpu && FAST(v, F_IRQ)) ? FLAG_IF : 0;
}

static void save(const struct vcpu *v, struct phv_debug *d, const struct host_registers *regs)
{
	bool user = from_user(v, regs->rip);
	u32 i;

	for (i = 0; i < ARRAY_SIZE(places); i++)
		d->gpr[i] = *(const u64 *)((const u8 *)regs + places[i]);
	d->rip = regs->rip;
	d->rflags = (regs->rflags & ~FLAG_IF & 0xffffffff) | interrupt_flag(v, user);
	if (regs->fpstate)
		__builtin_memcpy(d->fxsave, to_pointer(regs->fpstate), sizeof(d->fxsave));
	describe(v, d, user);
}

static void load(const struct phv_debug *d, struct host_registers *regs)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(places); i++)
		*(u64 *)((u8 *)regs + places[i]) = d->gpr[i];
	regs->rip = d->rip;
	/* The virtual interrupt flag stays as it is. */
	regs->rflags = (d->rflags & FLAGS_IRET) | 0x202;
}

/* Waits for a command. Until it comes, does all other requests to a waiting vCPU. */
static u32 command_wait(struct vcpu *v, struct phv_debug *d)
{
	u32 word, command;

	v->s.state = PHV_VCPU_HALTED;
	for (;;) {
		word = READ_ONCE(v->s.wait_word);
		/* S2 of host/doorbell.h. */
		fence();
		irq_serve_flush(v);
		command = __atomic_exchange_n(&d->command, PHV_COMMAND_NONE, __ATOMIC_ACQUIRE);
		if (command != PHV_COMMAND_NONE)
			break;
		futex_wait(&v->s.wait_word, word, U64_MAX);
	}
	v->s.state = PHV_VCPU_RUNNING;
	fence();
	return command;
}

bool debug_stop(struct vcpu *v, struct host_registers *regs, u32 reason)
{
	struct phv_debug *d = debug_of(v);
	u32 command;

	if (v->debug_step && reason != PHV_STOP_BREAKPOINT)
		reason = PHV_STOP_STEP;
	v->debug_step = 0;
	v->debug_resumed = 1;
	event(v, PHV_EVENT_STOP, reason, regs->rip);
	slice_end(v);
	save(v, d, regs);
	d->reason = reason;
	/* The request is done. A request that comes later is another one. */
	__atomic_fetch_and(&v->s.pending, ~(u32)PHV_PENDING_DEBUG, __ATOMIC_SEQ_CST);
	__atomic_store_n(&d->state, PHV_DEBUG_STOPPED, __ATOMIC_SEQ_CST);
	doorbell_ring();
	command = command_wait(v, d);
	__atomic_store_n(&d->state, PHV_DEBUG_RUNS, __ATOMIC_SEQ_CST);
	load(d, regs);
	slice_begin(v);
	/* Deadlines may have passed during the stop. */
	__atomic_fetch_or(&v->s.pending, PHV_PENDING_ALARM, __ATOMIC_SEQ_CST);
	if (command == PHV_COMMAND_STEP) {
		v->debug_step = 1;
		v->debug_flags = (u32)regs->rflags & FLAG_TF;
		v->debug_rip = regs->rip;
		regs->rflags |= FLAG_TF;
	}
	return command != PHV_COMMAND_PASS;
}

void debug_step_begin(struct vcpu *v, struct host_registers *regs)
{
	if (!in_layer(regs->rip))
		regs->rflags = (regs->rflags & ~(u64)FLAG_TF) | v->debug_flags;
}

/*
 * Whether rip is in the short calls at the start of the layer. They count as guest code, so their
 * end is no critical section.
 */
static bool in_short_call(u64 rip)
{
	return rip >= PHV_LAYER_BASE && rip < (u64)ph_layer_code;
}

/*
 * pushf has shown the trap flag to the guest, which would load it some time later. The instruction
 * and its stack have just been used, so both are mapped.
 */
static void hide_flag(const struct vcpu *v, const struct host_registers *regs)
{
	const u8 *code = to_pointer(v->debug_rip);
	u64 *top = to_pointer(regs->rsp);

	if (regs->rip - v->debug_rip > 2)
		return;
	while (*code == 0x66 || (*code & 0xf0) == 0x40)
		code++;
	if (*code == 0x9c)
		*top = (*top & ~(u64)FLAG_TF) | v->debug_flags;
}

void debug_step_trap(struct vcpu *v, struct host_registers *regs)
{
	struct thread *t = thread_of(v);

	regs->rflags = (regs->rflags & ~(u64)FLAG_TF) | v->debug_flags;
	if (in_short_call(regs->rip)) {
		regs->rflags |= FLAG_TF;
		return;
	}
	if (!in_layer(regs->rip) || fixup_complete(v, regs)) {
		hide_flag(v, regs);
		debug_stop(v, regs, PHV_STOP_STEP);
		return;
	}
	/* Stops on the way out of the layer, like everything that is pending. */
	__atomic_fetch_or(&v->s.pending, PHV_PENDING_DEBUG, __ATOMIC_SEQ_CST);
	if (v->percpu)
		irq_mark(v);
	__atomic_fetch_or(&ph_any_pending, 1ULL << t->number, __ATOMIC_SEQ_CST);
}

void debug_step_end(struct vcpu *v, struct host_registers *regs)
{
	if (in_layer(regs->rip))
		return;
	if (regs->rip == v->debug_rip || in_short_call(regs->rip))
		regs->rflags |= FLAG_TF;
	else
		debug_stop(v, regs, PHV_STOP_STEP);
}

void debug_note_call(struct vcpu *v)
{
	struct phv_debug *d = debug_of(v);
	const u64 *stack = to_pointer(v->rsp);

	if (!v->percpu || !kernel_address(v->rsp))
		return;
	d->gpr[3] = v->rbx;
	d->gpr[4] = v->rsp + 8;
	d->gpr[5] = v->rbp;
	d->gpr[12] = v->r12;
	d->gpr[13] = v->r13;
	d->gpr[14] = v->r14;
	d->gpr[15] = v->r15;
	d->rip = *stack;
	d->rflags = interrupt_flag(v, false);
	describe(v, d, false);
	__atomic_store_n(&d->state, PHV_DEBUG_CALL, __ATOMIC_SEQ_CST);
}
