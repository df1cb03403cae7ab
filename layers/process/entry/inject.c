// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Entering the guest kernel: the frame that a processor pushes, with the guest's selectors and its virtual
 * interrupt flag, on the stack that its task state names.
 *
 * The frame is written through the guest's own linear addresses. If a page of the stack has no host mapping yet, that
 * faults inside here and is filled by a nested signal; if the guest has none, the machine is at its end (triple fault).
 */
#include "entry/inject.h"
#include "common/faults.h"
#include "entry/where.h"
#include "host/fatal.h"
#include "host/signals.h"
#include "mm/walk.h"
#include "state/cpu.h"
#include "state/event.h"
#include "state/state.h"

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

/* At least so much is free below a stack pointer of the kernel's, and is not on top of its stack for entries. */
#define STACK_LEAST 256
#define STACK_SIZE 0x4000

static bool kernel_writes(const struct vcpu *v, u64 va)
{
	struct walk w;

	if (va >= PHV_DIRECT_MAP && va < shared->direct_map_end)
		return true;
	return kernel_address(va) && va < PHV_KERNEL_END && walk_guest(v, va, &w, false) && w.writable &&
	       w.gpa < shared->ram_size;
}

/*
 * Whether an NMI finds the program's stack pointer in kernel code: behind the entry of a system call, and before cpu.sysret. It can
 * be any number. (On a processor the NMI's gate names a stack of its own. Not so here: the next NMI would begin at the top of it again
 * after an iret inside the first one's handler, against which kernels have long code on bare metal, and Linux none on a layer.)
 *
 * A pointer to no memory that the kernel may write is the program's. One to such memory is if the last system call came with it, or
 * returned with it; but not in the kernel's own stack, which it may be in use as: there, what lies below is free in both cases.
 *
 * Not found out is a pointer to memory of the kernel's that the program did not have at its entry, in the last instructions of the way back.
 * There is no isolation against a program that has one: it could write there by itself.
 */
static bool users_stack(const struct vcpu *v, const struct host_registers *regs)
{
	u64 rsp = regs->rsp;

	if (!kernel_address(rsp))
		return !FAULT(NMI_ON_USER_STACK);
	if (FAST(v, F_IRQ) || !v->rsp0 || FAULT(NMI_ON_ANY_STACK))
		return false;
	if (!kernel_writes(v, rsp - 8) || !kernel_writes(v, rsp - STACK_LEAST))
		return true;
	return rsp == v->user_rsp && (v->rsp0 - rsp >= STACK_SIZE || FAULT(NMI_LEAVES_OWN_STACK));
}

/* The kernel's stack. Where it is not loaded only an NMI comes in: the stack for entries is free then. */
static u64 *stack_for(const struct vcpu *v, const struct host_registers *regs, u32 vector, bool user)
{
	bool entries = user || (vector == VECTOR_NMI ? users_stack(v, regs) : !kernel_address(regs->rsp));

	return to_pointer((entries ? v->rsp0 : regs->rsp) & ~15ULL);
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
	event(v, vector < 32 ? PHV_EVENT_EXCEPTION : PHV_EVENT_INTERRUPT, vector, regs->rip);
	if (user) {
		enter_gs(v);
		flags |= FLAG_IF;
	} else {
		flags |= FAST(v, F_IRQ) ? FLAG_IF : 0;
	}
	sp = stack_for(v, regs, vector, user);
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
	event(v, PHV_EVENT_SYSCALL, regs->rax, regs->rip);
	if (from_user(v, regs->rip))
		enter_gs(v);
	v->user_cs = shared->user_cs;
	v->user_ss = shared->user_ss;
	v->user_rsp = regs->rsp;
	regs->rcx = regs->rip;
	regs->r11 = regs->rflags | FLAG_IF;
	regs->rip = v->lstar;
	if (v->sfmask & FLAG_IF)
		FAST(v, F_IRQ) = 0;
	regs->rflags &= ~(v->sfmask | FLAG_RF | FLAG_AC);
	regs->cs = HOST_USER_CS;
	v->s.syscalls_trapped++;
}

