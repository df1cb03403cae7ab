// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* What a kernel learns of its clocks without a call: an interrupt, and the clock page. */
#include "clock_page.h"
#include "harness.h"
#include "test.h"

#define VECTOR		0x5a
#define STEP_WITHIN	(15 * NS_PER_S)
#define TURNS		3
#define IDLE_TURNS	6
#define TURN		(1200 * NS_PER_MS)
/* How far a late page may be ahead: 1 % of how late a host that is busy may be. */
#define AHEAD		(200 * NS_PER_US)

static struct {
	u64 interrupts, bits;
} told;

static void alarm(struct regs *regs __attribute__((unused)))
{
	told.bits |= vmi.time_ack_alarm();
	told.interrupts++;
}

/*
 * A host that steps its clock once, and a layer that learns of it at once: a vCPU that sleeps gets
 * the interrupt of its alarm, which has not expired.
 */
TEST(wallclock_told, "time.wallclock_updated.told", 1, 0, TIME_WALLCLOCK_UPDATED)
{
	char word[8];

	if (!option_number("step") || !option("told", word, sizeof(word)))
		test_skip("needs step=SECONDS and told on the command line, and such a host");
	memset(&told, 0, sizeof(told));
	set_irq_handler(VECTOR, alarm);
	vmi.time_wallclock_updated();
	CHECK_RESULT(vmi.time_set_alarm(VMI_TIME_REAL, now() + STEP_WITHIN, 0, VECTOR), 0);
	while (!READ_ONCE(told.interrupts)) {
		halt();
		irq_disable();
	}
	CHECK_EQ(told.bits, 0);
	CHECK_RESULT(vmi.time_wallclock_updated(), 1);
	CHECK_RESULT(vmi.time_cancel_alarm(VMI_TIME_REAL), 1);
}

/*
 * A program that reads nothing but the page, with no call for longer than the host needs to adjust
 * its clock, has the time of time.read, where the layer says so. The page may be a moment late, so
 * it may be wrong once.
 */
TEST(clock_without_calls, "time.set_clock.without_calls", 1, 0, TIME_SET_CLOCK)
{
	u64 gpa = alloc_page(), tsc, first, last, off = 0, turn;
	struct vmi_clock *clock = to_linear(gpa), copy;

	if (!(layer_features(VMI_SECTION_TIME) & VMI_TIME_PAGE_KEPT))
		test_skip("needs VMI_TIME_PAGE_KEPT");
	CHECK_RESULT(vmi.time_set_clock(clock, gpa), 0);
	for (turn = 0; turn < TURNS; turn++) {
		u64 before, real, after;

		irq_enable();
		first = last = clock_page_time(clock, &tsc);
		while (last - first < TURN) {
			u64 mine = clock_page_time(clock, &tsc);

			CHECK_OP(mine + AHEAD, >=, last);
			last = mine;
		}
		copy = clock_page_copy(clock, &tsc);
		before = read_tsc();
		real = now();
		after = read_tsc();
		irq_disable();
		off += clock_page_at(&copy, before) > real + NS_PER_US ||
		       clock_page_at(&copy, after) + NS_PER_US < real;
	}
	CHECK_OP(off, <=, 1);
	CHECK_RESULT(vmi.time_set_clock(NULL, 0), 0);
	free_page(gpa);
}

/*
 * For a host that compares, it prints the counter around a reading of the clock, and the clock,
 * each time right after the machine was idle for some seconds.
 */
TEST(read_after_idle, "time.read.after_idle", 1, 0, TIME_READ, TIME_SET_ALARM)
{
	u64 idle = option_number("asleep") * NS_PER_S, turn, before, real, after;

	if (!idle)
		test_skip("needs asleep=SECONDS on the command line, and a host that compares");
	memset(&told, 0, sizeof(told));
	set_irq_handler(VECTOR, alarm);
	for (turn = 1; turn <= IDLE_TURNS; turn++) {
		CHECK_RESULT(vmi.time_set_alarm(VMI_TIME_REAL, now() + idle, 0, VECTOR), 0);
		while (READ_ONCE(told.bits) == 0) {
			halt();
			irq_disable();
		}
		told.bits = 0;
		before = read_tsc();
		real = now();
		after = read_tsc();
		print("# clock %llu %llu %llu\n", before, real, after);
	}
}
