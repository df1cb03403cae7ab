// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "trap.h"
#include "calls.h"
#include "console.h"
#include "machine.h"
#include "panic.h"
#include "site.h"
#include "user.h"

#define OPCODE_HLT 0xf4
#define OPCODE_STI 0xfb

/* jump.S */
void catch_call(u64 *rsp, void (*function)(void *), void *argument);
extern char catch_land[];

static irq_handler_fn *handlers[256];
static bool raw[256];
/* Of the host's emulated processor: shadow=lost on the command line. */
static bool shadow_lost;

void set_irq_handler(u32 vector, irq_handler_fn *handler)
{
	raw[vector] = false;
	WRITE_ONCE(handlers[vector], handler);
}

void set_raw_handler(u32 vector, irq_handler_fn *handler)
{
	raw[vector] = true;
	WRITE_ONCE(handlers[vector], handler);
}

static void ignore(struct regs *regs)
{
	(void)regs;
}

void reset_irq_handlers(void)
{
	char word[8];
	u32 vector;

	shadow_lost = option("shadow", word, sizeof(word)) && !strcmp(word, "lost");
	for (vector = 0; vector < 256; vector++) {
		handlers[vector] = vector < VMI_VECTOR_MIN ? NULL : ignore;
		raw[vector] = false;
	}
	raw[VECTOR_SPURIOUS] = true;
}

u64 irq_count(u32 vcpu, u32 vector)
{
	return READ_ONCE(percpus[vcpu]->irq_count[vector]);
}

bool catch_trap(struct catch *catch, void (*function)(void *), void *argument)
{
	struct percpu *cpu = this_cpu();

	catch->vector = -1;
	catch->outer = cpu->catch;
	cpu->catch = catch;
	barrier();
	catch_call(&catch->rsp, function, argument);
	barrier();
	cpu->catch = catch->outer;
	return catch->vector >= 0;
}

static void dump(const struct regs *r)
{
	const char *base = image_start;

	print("# vector %llu error %llx at image+0x%llx (rip %llx) cs %llx flags %llx cr2 %llx\n",
	      r->vector, r->error, r->rip - (u64)base, r->rip, r->cs, r->rflags,
	      get_cr2());
	print("# rax %016llx rbx %016llx rcx %016llx rdx %016llx\n", r->rax, r->rbx, r->rcx,
	      r->rdx);
	print("# rsi %016llx rdi %016llx rbp %016llx rsp %016llx\n", r->rsi, r->rdi, r->rbp,
	      r->rsp);
	print("# r8 %016llx r9 %016llx r10 %016llx r11 %016llx\n", r->r8, r->r9, r->r10, r->r11);
	print("# r12 %016llx r13 %016llx r14 %016llx r15 %016llx ss %llx\n", r->r12, r->r13, r->r14,
	      r->r15, r->ss);
}

/* A layer has fixups for #GP, #PF, #UD, #NP, #SS and #TS in its own code. */
static bool layer_fixup(struct regs *regs)
{
	u64 fixup;

	switch (regs->vector) {
	case VECTOR_GP:
	case VECTOR_PF:
	case VECTOR_UD:
	case VECTOR_NP:
	case VECTOR_SS:
	case VECTOR_TS:
		fixup = layer_fault_fixup(regs->rip);
		if (fixup)
			regs->rip = fixup;
		return fixup;
	}
	return false;
}

static void land(struct regs *regs, struct catch *catch)
{
	catch->vector = regs->vector;
	catch->cr2 = get_cr2();
	catch->regs = *regs;
	regs->rip = (u64)catch_land;
	regs->rsp = catch->rsp;
	/* The test may have set these on purpose; the kernel does not want them. */
	regs->rflags &= ~(FLAGS_TF | FLAGS_AC | FLAGS_DF);
}

/*
 * sti holds interrupts until the instruction after it has begun: none comes between sti and hlt. A
 * processor that forgets to hold them halts after the interrupt, perhaps for ever.
 */
static void end_halt(struct regs *regs)
{
	const u8 *next = (const u8 *)regs->rip;

	if (next[0] == OPCODE_HLT && next[-1] == OPCODE_STI)
		regs->rip++;
}

static void interrupt(struct regs *regs, struct percpu *cpu)
{
	u32 vector = regs->vector;

	if (shadow_lost && vector >= VMI_VECTOR_MIN && !(regs->cs & 3))
		end_halt(regs);
	cpu->irq_count[vector]++;
	cpu->nesting++;
	handlers[vector](regs);
	cpu->nesting--;
	if (vector >= VMI_VECTOR_MIN && !raw[vector])
		vmi.apic_eoi();
}

void trap(struct regs *regs)
{
	struct percpu *cpu = this_cpu();
	bool user = regs->cs & 3;

	if (regs->vector < VMI_VECTOR_MIN && !user && layer_fixup(regs))
		return;
	if (regs->vector < 256 && handlers[regs->vector] &&
	    !(user && regs->vector == VECTOR_USER_GATE)) {
		interrupt(regs, cpu);
		return;
	}
	if (user && cpu->user)
		user_trap(regs);
	if (!user && cpu->catch) {
		land(regs, cpu->catch);
		return;
	}
	dump(regs);
	panic("unexpected exception on vCPU %u", cpu->vcpu);
}
