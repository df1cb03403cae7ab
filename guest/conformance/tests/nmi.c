// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Between the delivery of an NMI and the next iret no other is delivered. One of those that were
 * sent in between is delivered after the iret.
 */
#include "harness.h"
#include "test.h"
#include "user_mode.h"

#define VECTOR_A	0x5b
#define QUIET		(NS_PER_MS / 2)
#define STORM		400

void k_ud2(void *argument);

static u32 taken, depth, deepest;

/* What the handler of the first NMI does. The others' does nothing. */
static void (*first)(void);

static void handler(struct regs *regs)
{
	(void)regs;
	depth++;
	if (depth > deepest)
		deepest = depth;
	if (++taken == 1)
		first();
	depth--;
}

static void send_self(void)
{
	CHECK_RESULT(send_icr(this_vcpu(), ICR_NMI), 0);
}

static void begin(void (*function)(void))
{
	taken = depth = deepest = 0;
	first = function;
	set_irq_handler(VECTOR_NMI, handler);
	send_self();
}

static void check(u32 total, u32 deep)
{
	WAIT_UNTIL(READ_ONCE(taken) >= total);
	delay_ns(QUIET);
	CHECK_EQ(taken, total);
	CHECK_EQ(deepest, deep);
	/* This is not for the next one only: no state is left. */
	send_self();
	WAIT_UNTIL(READ_ONCE(taken) == total + 1);
}

/* Calls of all kinds are where a pending event is delivered, if it may be. */
static void send_three(void)
{
	u32 i;

	for (i = 0; i < 3; i++) {
		send_self();
		vmi.cpu_get_tr();
		irq_disable();
		delay_ns(QUIET / 10);
	}
}

TEST(nmi_waits, "apic.send_ipi.nmi_waits_for_iret", 1, 0, APIC_SEND_IPI, CPU_IRET)
{
	begin(send_three);
	check(2, 1);
}

static u32 before_iret, behind_iret;

static void go_on(struct regs *regs)
{
	(void)regs;
	before_iret = taken;
}

/* Any iret ends it, as on a processor: that of an exception in the handler, too. */
static void send_and_except(void)
{
	send_self();
	delay_ns(QUIET / 10);
	asm volatile("int3" ::: "memory");
	delay_ns(QUIET / 10);
	behind_iret = taken;
}

TEST(nmi_exception, "apic.send_ipi.nmi_comes_by_any_iret", 1, 0, APIC_SEND_IPI, CPU_IRET)
{
	before_iret = behind_iret = 0;
	set_irq_handler(VECTOR_BP, go_on);
	begin(send_and_except);
	check(2, 2);
	CHECK_EQ(before_iret, 1);
	CHECK_EQ(behind_iret, 2);
}

/*
 * A pending NMI does not prevent the end of a halt: an interrupt ends it, and its iret delivers the
 * NMI.
 */
static void send_and_halt(void)
{
	before_iret = 0;
	send_self();
	CHECK_RESULT(vmi.time_set_alarm(VMI_TIME_REAL, now() + NS_PER_MS, 0, VECTOR_A), 0);
	while (!READ_ONCE(before_iret)) {
		halt();
		irq_disable();
	}
	delay_ns(QUIET / 10);
	behind_iret = taken;
}

TEST(nmi_halt, "apic.send_ipi.nmi_waits_in_halt", 1, 0, APIC_SEND_IPI, CPU_IRET, CPU_HALT)
{
	set_irq_handler(VECTOR_A, go_on);
	begin(send_and_halt);
	check(2, 2);
	CHECK_EQ(before_iret, 1);
	CHECK_EQ(behind_iret, 2);
}

/* --- a storm --- */

static struct space space;
static u32 ready, over;
static u64 errors;

static void victim(void *argument)
{
	struct user_context context;
	struct catch catch;

	(void)argument;
	space_create(&space);
	space_load(&space);
	count_nmis_begin();
	k_nmi_spins = 3000;
	user_init(&context, u_keep_below);
	context.in.rdi = 0x5107;
	atomic_store(&ready, 1);
	while (!atomic_load(&over)) {
		user_run(&context);
		if (context.out.vector != VECTOR_SYSCALL || context.out.rax ||
		    context.out.rsp != USER_STACK_TOP)
			errors++;
		context.in = context.out;
		if (!catch_trap(&catch, k_ud2, NULL) || catch.vector != VECTOR_UD)
			errors++;
		vmi.cpu_get_tr();
		irq_enable();
		irq_disable();
		watch("NMIs");
	}
	count_nmis_end();
	space_load(NULL);
	space_destroy(&space);
}

/*
 * Sent without a check of the vCPU, so that many arrive during the handler of another. None is
 * nested, and the last one is not lost.
 */
TEST(nmi_storm, "apic.send_ipi.nmi_storm", 2, 0, APIC_SEND_IPI, CPU_IRET)
{
	u64 seed = 99, before, sent;

	k_nmis = errors = 0;
	ready = over = 0;
	run_on(1, victim, NULL);
	WAIT_UNTIL(atomic_load(&ready));
	for (sent = 0; READ_ONCE(k_nmis) < STORM; sent++) {
		before = READ_ONCE(k_nmis);
		CHECK_RESULT(send_icr(1, ICR_NMI), 0);
		/* This one, or one that merged with it. */
		if (sent % 16 == 0)
			WAIT_UNTIL(READ_ONCE(k_nmis) > before);
		delay_ns(random64(&seed) % 5000);
		watch("NMIs");
	}
	before = READ_ONCE(k_nmis);
	CHECK_RESULT(send_icr(1, ICR_NMI), 0);
	WAIT_UNTIL(READ_ONCE(k_nmis) > before);
	atomic_store(&over, 1);
	wait_for(1);
	CHECK_EQ(k_nmis_nested, 0);
	CHECK_EQ(errors, 0);
	CHECK_OP(k_nmis, <=, sent + 1);
}

static u32 stopping;

static void stop(void)
{
	atomic_store(&stopping, 1);
	vmi.cpu_stop();
}

static void spin(void *argument)
{
	(void)argument;
	for (;;)
		pause();
}

/* As in a crash. The vCPU's next start ends the NMI, which has no iret. */
TEST(nmi_stop, "cpu.stop.in_nmi", 2, 0, CPU_STOP, APIC_SEND_IPI)
{
	u32 i;

	for (i = 0; i < 5; i++) {
		taken = depth = stopping = 0;
		first = stop;
		set_irq_handler(VECTOR_NMI, handler);
		run_on(1, spin, NULL);
		CHECK_RESULT(send_icr(1, ICR_NMI), 0);
		WAIT_UNTIL(atomic_load(&stopping));
		delay_ns(NS_PER_MS);
		CHECK(smp_start(1));
		CHECK_RESULT(send_icr(1, ICR_NMI), 0);
		WAIT_UNTIL(READ_ONCE(taken) == 2);
	}
}
