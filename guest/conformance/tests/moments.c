// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Interrupts and NMIs at awkward moments: during a call or a fault that the kernel does not see,
 * and at the edges of user mode. They must be taken then, not at the next call.
 */
#include "harness.h"
#include "space.h"
#include "test.h"
#include "user_mode.h"

#define VECTOR_A	0x59
#define ROUNDS		100		/* option "events": more, for a fault that needs luck */
#define ROUNDS_LEAST	10		/* where each costs time slices */
#define SPINS		200000		/* some ms */
#define PAGES		256

void k_nmi_entry(void);

static struct space space;
static u64 memory;

/* What vCPU 1 does while the event is on its way. */
struct moment {
	bool (*step)(u64 n);		/* false: no more steps */
	void (*begin)(void), (*end)(void), (*reset)(void);
	bool nmi;			/* by NMI, with interrupts disabled */
};

static const struct moment *moment;
static u32 round_begun, round_over, round_done, rounds_over;
static u64 late;

static u64 events(void)
{
	return irq_count(1, moment->nmi ? VECTOR_NMI : VECTOR_A);
}

static void ignore(struct regs *regs)
{
	(void)regs;
}

static void victim(void *argument)
{
	u64 before, n;
	u32 i;

	(void)argument;
	if (moment->begin)
		moment->begin();
	for (i = 1; !atomic_load(&rounds_over); i++) {
		irq_disable();
		if (moment->reset)
			moment->reset();
		before = events();
		if (!moment->nmi)
			irq_enable();
		atomic_store(&round_begun, i);
		for (n = 0; !READ_ONCE(round_over) && moment->step(n); n++)
			;
		/* From here on no call and no fault: only the event itself can arrive. */
		while (!READ_ONCE(round_over))
			asm volatile("pause");
		for (n = 0; n < SPINS && events() == before; n++)
			asm volatile("pause");
		if (events() == before)
			late++;
		irq_disable();
		atomic_store(&round_over, 0);
		atomic_store(&round_done, i);
		while (atomic_load(&round_done) == i)
			watch("the next round");
	}
	if (moment->end)
		moment->end();
}

static void event_at(u64 which)
{
	u64 start = now(), rounds = option_number("events") ?: ROUNDS, seed = 59;
	u64 most = rounds > ROUNDS ? 3 * NS_PER_S : NS_PER_S;
	u32 i;

	moment = (const struct moment *)which;
	set_irq_handler(VECTOR_A, ignore);
	set_irq_handler(VECTOR_NMI, ignore);
	round_begun = round_over = round_done = rounds_over = 0;
	late = 0;
	run_on(1, victim, NULL);
	for (i = 1; !rounds_over; i++) {
		WAIT_UNTIL(atomic_load(&round_begun) == i);
		CHECK_RESULT(moment->nmi ? send_icr(1, ICR_NMI) : send_ipi(1, VECTOR_A), 0);
		/* Any moment of a step may be the last one before the event. */
		delay_ns(random64(&seed) % (40 * NS_PER_US));
		atomic_store(&round_over, 1);
		WAIT_UNTIL(atomic_load(&round_done) == i);
		atomic_store(&rounds_over, i == rounds ||
			     (i >= ROUNDS_LEAST && now() > start + most));
		atomic_store(&round_done, 0);
	}
	wait_for(1);
	CHECK_EQ(late, 0);
}

/* Faults that the kernel does not see, with a layer that fills translations on demand. */
static void map_pages(void)
{
	if (!memory)
		memory = to_gpa(alloc_contiguous(PAGES * PAGE_SIZE));
	space_create(&space);
	space_load(&space);
}

static void unmap_pages(void)
{
	space_load(NULL);
	space_destroy(&space);
}

/* Not accessed, so that none is filled together with another. */
static void reset_pages(void)
{
	u64 i;

	for (i = 0; i < PAGES; i++)
		space_set(&space, USER_DATA + i * PAGE_SIZE,
			  (memory + i * PAGE_SIZE) | PTE_P | PTE_U, VMI_LEVEL_PT);
	vmi.mmu_invalidate_range(USER_DATA, USER_DATA + PAGES * PAGE_SIZE);
}

static bool touch_page(u64 n)
{
	if (n >= PAGES)
		return false;
	(void)READ_ONCE(*(u64 *)(USER_DATA + n * PAGE_SIZE));
	return true;
}

static bool short_calls(u64 n)
{
	(void)n;
	vmi.cpu_irq_flag();
	vmi.cpu_pause();
	vmi.cpu_read_tsc();
	vmi.cpu_io_delay();
	return true;
}

static bool masked_calls(u64 n)
{
	(void)n;
	vmi.cpu_irq_disable();
	vmi.cpu_irq_save();
	vmi.cpu_irq_flag();
	return true;
}

static bool any_gs_calls(u64 n)
{
	(void)n;
	vmi.core_version(VMI_SECTION_CPU);
	return true;
}

static bool sysv_calls(u64 n)
{
	(void)n;
	vmi.cpu_get_tr();
	return true;
}

static const struct moment faults = { touch_page, map_pages, unmap_pages, reset_pages, false };
static const struct moment faults_nmi = { touch_page, map_pages, unmap_pages, reset_pages, true };
static const struct moment short_irq = { short_calls, NULL, NULL, NULL, false };
static const struct moment masked_nmi = { masked_calls, NULL, NULL, NULL, true };
static const struct moment any_gs = { any_gs_calls, NULL, NULL, NULL, false };
static const struct moment sysv_irq = { sysv_calls, NULL, NULL, NULL, false };
static const struct moment sysv_nmi = { sysv_calls, NULL, NULL, NULL, true };

static void event_in_entries(u64 which)
{
	if (!(vmi.cpu_irq_flag && vmi.cpu_pause && vmi.cpu_read_tsc && vmi.cpu_io_delay &&
	      vmi.cpu_irq_disable &&
	      vmi.cpu_irq_save))
		test_skip("the layer has no entries for these primitives");
	event_at(which);
}

TEST_OF(in_faults, "apic.send_ipi.during_faults", event_at, (u64)&faults, 2, 0, APIC_SEND_IPI);
TEST_OF(in_faults_nmi, "apic.send_ipi.nmi_during_faults", event_at, (u64)&faults_nmi, 2, 0,
	APIC_SEND_IPI);
TEST_OF(in_short, "apic.send_ipi.during_primitives", event_in_entries, (u64)&short_irq, 2, 0,
	APIC_SEND_IPI);
TEST_OF(in_masked, "apic.send_ipi.nmi_during_primitives", event_in_entries, (u64)&masked_nmi, 2, 0,
	APIC_SEND_IPI);
TEST_OF(in_any_gs, "apic.send_ipi.during_any_gs", event_at, (u64)&any_gs, 2, 0, APIC_SEND_IPI,
	CORE_VERSION);
TEST_OF(in_sysv, "apic.send_ipi.during_calls", event_at, (u64)&sysv_irq, 2, 0, APIC_SEND_IPI);
TEST_OF(in_sysv_nmi, "apic.send_ipi.nmi_during_calls", event_at, (u64)&sysv_nmi, 2, 0,
	APIC_SEND_IPI);

/* --- at the edges of user mode --- */

#define NMIS		400		/* the same option */

static u64 nmis;
static u64 nmi_stack[128] __attribute__((aligned(16)));
static u32 caller_ready;
static u64 spoilt;

static u64 nmi_gate[2];

void count_nmis_begin(void)
{
	struct percpu *cpu = this_cpu();
	u64 at = (u64)k_nmi_entry;

	k_nmis_nested = k_nmi_depth = k_nmi_spins = 0;
	nmi_gate[0] = cpu->idt[VECTOR_NMI][0];
	nmi_gate[1] = cpu->idt[VECTOR_NMI][1];
	cpu->tss.ist[0] = (u64)(nmi_stack + ARRAY_SIZE(nmi_stack));
	vmi.cpu_write_idt(cpu->idt[0], VECTOR_NMI,
			  (at & 0xffff) | (u64)KERNEL_CS << 16 | 1ull << 32 | 0x8eull << 40 |
			  (at >> 16 & 0xffff) << 48, at >> 32);
}

void count_nmis_end(void)
{
	vmi.cpu_write_idt(this_cpu()->idt[0], VECTOR_NMI, nmi_gate[0], nmi_gate[1]);
}

void send_nmis(u32 vcpu, u64 count)
{
	u64 seed = 31, i;

	for (i = 0; i < count; i++) {
		CHECK_RESULT(send_icr(vcpu, ICR_NMI), 0);
		WAIT_UNTIL(READ_ONCE(k_nmis) > i);
		/*
		 * Not always during its handler: the next one would arrive at the handler's iret,
		 * where this one did.
		 */
		delay_ns(random64(&seed) % (10 * NS_PER_US));
	}
	CHECK_EQ(k_nmis_nested, 0);
}

/* User code that keeps data below its stack pointer over a system call. */
static void caller(void *argument)
{
	struct user_context context;

	(void)argument;
	space_create(&space);
	space_load(&space);
	count_nmis_begin();
	user_init(&context, u_keep_below);
	context.in.rdi = 0x5107;
	atomic_store(&caller_ready, 1);
	while (READ_ONCE(k_nmis) < nmis) {
		user_run(&context);
		if (context.out.vector != VECTOR_SYSCALL || context.out.rax ||
		    context.out.rsp != USER_STACK_TOP)
			spoilt++;
		context.in = context.out;
		watch("NMIs");
	}
	/* The last one has been taken: each is sent only after the one before was taken. */
	count_nmis_end();
	space_load(NULL);
	space_destroy(&space);
}

TEST(nmi_edges, "cpu.set_kernel_stack.nmi_at_the_edges", 2, 0, CPU_SET_KERNEL_STACK, APIC_SEND_IPI)
{
	nmis = option_number("events") ?: NMIS;
	k_nmis = spoilt = 0;
	caller_ready = 0;
	run_on(1, caller, NULL);
	WAIT_UNTIL(atomic_load(&caller_ready));
	send_nmis(1, nmis);
	wait_for(1);
	CHECK_EQ(spoilt, 0);
}
