// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Rows about two vCPUs: interrupts to a running one, to a halted one, and kicks. */
#include "vmi_bench.h"
#include "test.h"

#define VECTOR_BENCH	0x61
#define PARTNER		1

static u64 taken[2];			/* by vCPU */
static u64 partner_seen;		/* its value before anything was sent */
static bool stop;
static u8 turn;

static void take(struct regs *regs)
{
	(void)regs;
	atomic_add(&taken[this_vcpu()], 1);
}

static void begin_with(void (*partner)(void *))
{
	stop = false;
	turn = 0;
	partner_seen = taken[PARTNER];
	set_irq_handler(VECTOR_BENCH, take);
	run_on(PARTNER, partner, NULL);
}

static void partner_spins(void *argument)
{
	(void)argument;
	irq_enable();
	while (!READ_ONCE(stop))
		pause();
	irq_disable();
}

static bool begin_ipi(void)
{
	begin_with(partner_spins);
	return true;
}

static void run_ipi(u64 ops)
{
	u64 before;

	for (; ops; ops--) {
		before = atomic_load(&taken[PARTNER]);
		send_ipi(PARTNER, VECTOR_BENCH);
		while (atomic_load(&taken[PARTNER]) == before)
			pause();
	}
}

static void end_ipi(void)
{
	WRITE_ONCE(stop, true);
	wait_for(PARTNER);
}

/* Halts until this vCPU has taken an interrupt after the `seen` ones. */
static u64 halt_for_next(u64 seen)
{
	u64 *mine = &taken[this_vcpu()], now;

	for (;;) {
		irq_disable();
		now = atomic_load(mine);
		if (now != seen || READ_ONCE(stop))
			return now;
		halt();
	}
}

static void partner_halts(void *argument)
{
	u64 seen = partner_seen;

	(void)argument;
	for (;;) {
		seen = halt_for_next(seen);
		if (READ_ONCE(stop))
			return;
		send_ipi(0, VECTOR_BENCH);
	}
}

static bool begin_halt_wake(void)
{
	begin_with(partner_halts);
	return true;
}

static void run_halt_wake(u64 ops)
{
	u64 seen;

	for (; ops; ops--) {
		seen = atomic_load(&taken[0]);
		send_ipi(PARTNER, VECTOR_BENCH);
		halt_for_next(seen);
	}
}

static void end_halt_wake(void)
{
	WRITE_ONCE(stop, true);
	send_ipi(PARTNER, VECTOR_BENCH);
	wait_for(PARTNER);
}

static void partner_waits(void *argument)
{
	(void)argument;
	for (;;) {
		while (READ_ONCE(turn) == 0 && !READ_ONCE(stop))
			vmi.lock_wait(&turn, 0);
		if (READ_ONCE(stop))
			return;
		WRITE_ONCE(turn, 0);
		vmi.lock_kick(0);
	}
}

static bool begin_kick(void)
{
	begin_with(partner_waits);
	return true;
}

static void run_kick(u64 ops)
{
	for (; ops; ops--) {
		WRITE_ONCE(turn, 1);
		vmi.lock_kick(PARTNER);
		while (READ_ONCE(turn) == 1)
			vmi.lock_wait(&turn, 1);
	}
}

static void end_kick(void)
{
	WRITE_ONCE(stop, true);
	vmi.lock_kick(PARTNER);
	wait_for(PARTNER);
}

const struct vmi_row vmi_rows_vcpus[] = {
	{ "ipi", 2, 10, 201, begin_ipi, NULL, run_ipi, end_ipi },
	{ "halt_wake", 2, 10, 201, begin_halt_wake, NULL, run_halt_wake, end_halt_wake },
	{ "kick", 2, 10, 201, begin_kick, NULL, run_kick, end_kick },
};
const u32 vmi_rows_vcpus_count = ARRAY_SIZE(vmi_rows_vcpus);
