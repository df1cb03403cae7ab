// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Enters the guest kernel: pushes the frame that a processor pushes, with the guest's selectors and
 * its virtual interrupt flag, on the stack that its task state names.
 *
 * The frame is written through the guest's own linear addresses. If a page of the stack has no host
 * mapping yet, the write faults and a nested signal fills it. If the guest's tables do not map it,
 * the machine ends (triple fault).
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

/*
 * At least STACK_LEAST bytes are free below a stack pointer of the kernel's. STACK_SIZE is the size
 * of its stack for entries.
 */
#define STACK_LEAST 256
#define STACK_SIZE 0x4000

static bool kernel_writes(const struct vcpu *v, u64 va)
{
	struct walk w;

	if (va >= shared->direct_map && va < shared->direct_map_end)
		return true;
	return kernel_address(va) && va < PHV_KERNEL_END && walk_guest(v, va, &w, false) &&
	       w.writable &&
	       w.gpa < shared->ram_size;
}

/*
 * Whether an NMI finds the program's stack pointer in kernel code, that is, after the entry of a
 * system call or before cpu.sysret. That pointer can be any number. (On a processor the NMI's gate
 * names a stack of its own. It does not here: after an iret inside the first NMI's handler the next
 * NMI would start at the top of it again. Kernels have long code against that on bare metal, and
 * Linux has none on a layer.)
 *
 * A pointer to memory that the kernel may not write is the program's. A pointer to memory that it
 * may write is the program's if the last system call came or returned with it, except in the
 * kernel's own stack, which it may be using: there, the memory below is free in both cases.
 *
 * This misses a pointer to kernel memory that the program did not have at its entry, in the last
 * instructions of the way back. There is no isolation against such a program: it could write there
 * by itself.
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

/*
 * The kernel's stack for a vector. Where the kernel's stack is not loaded only an NMI can arrive,
 * and then the stack for entries is free.
 */
static u64 *stack_for(const struct vcpu *v, const struct host_registers *regs, u32 vector,
		      bool user)
{
	bool entries = user ||
		(vector == VECTOR_NMI ? users_stack(v, regs) : !kernel_address(regs->rsp));

	return to_pointer((entries ? v->rsp0 : regs->rsp) & ~15ULL);
}

/* A program may switch between the host's code segments by itself. */
static u32 user_selector(const struct vcpu *v, const struct host_registers *regs)
{
	if (FAULT(COMPAT_CS))
		return v->user_cs;
	if (regs->cs == HOST_USER_CS32)
		return HOST_USER_CS32;
	return v->user_cs == HOST_USER_CS32 ? shared->user_cs : v->user_cs;
}

/* Entries from user mode save the user's GS base and load the kernel's. */
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
	 * A processor checks alignment only at privilege level 3. The kernel runs at level 3 here,
	 * so it must not find AC set. Its own stac and clac do nothing here.
	 */
	regs->rflags &= ~(FLAG_TF | FLAG_NT | FLAG_RF | FLAG_AC);
	regs->cs = HOST_USER_CS;
	v->s.faults_injected += has_error;
}

void inject_software(struct vcpu *v, struct host_registers *regs, u32 vector, u32 length)
{
	struct gate gate;

	/* The host's fault has set RF, but a software interrupt is a trap. */
	regs->rflags &= ~FLAG_RF;
	if (gate_read(v, vector, &gate) && GATE_DPL(gate.low) == 3) {
		regs->rip += length;
		inject(v, regs, vector, false, 0);
	} else {
		inject(v, regs, VECTOR_GP, true, vector << 3 | 2);
	}
}

/* It switches no stack: the kernel's entry does that. */
static void enter_at(struct vcpu *v, struct host_registers *regs, u64 entry)
{
	event(v, PHV_EVENT_SYSCALL, regs->rax, regs->rip);
	if (from_user(v, regs->rip))
		enter_gs(v);
	v->user_cs = shared->user_cs;
	v->user_ss = shared->user_ss;
	v->user_rsp = regs->rsp;
	regs->rcx = regs->rip;
	regs->r11 = regs->rflags | FLAG_IF;
	regs->rip = entry;
	if (v->sfmask & FLAG_IF)
		FAST(v, F_IRQ) = 0;
	regs->rflags &= ~(v->sfmask | FLAG_RF | FLAG_AC);
	regs->cs = HOST_USER_CS;
}

void inject_syscall(struct vcpu *v, struct host_registers *regs)
{
	enter_at(v, regs, v->lstar);
	v->s.syscalls_trapped++;
}

void inject_stub_call(struct vcpu *v, struct host_registers *regs)
{
	bool other = v->stub_entry && !FAULT(STUB_ENTERS_LSTAR);

	enter_at(v, regs, other ? v->stub_entry : v->lstar);
}

