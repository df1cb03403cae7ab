// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Alarms. The interrupt of an alarm only shows that time.ack_alarm has something to report. */
#include "harness.h"
#include "test.h"

#define VECTOR_A	0x5a
#define VECTOR_B	0x5b
#define REAL		VMI_TIME_REAL
#define AVAILABLE	VMI_TIME_AVAILABLE
#define FAR		(3600 * NS_PER_S)

/* What the handler has seen, per vCPU and counter. */
static struct {
	u64 fired[2], first[2], last[2], vector[2], interrupts, bits;
} log[MAX_VCPUS];

static u64 counter_now(u32 counter)
{
	struct vmi_times t;

	vmi.time_read(&t);
	return counter == AVAILABLE ? t.available : t.real;
}

static void alarm(struct regs *regs)
{
	u64 bits = vmi.time_ack_alarm();
	u32 me = this_vcpu(), i;

	for (i = 0; i < 2; i++) {
		if (!(bits >> i & 1))
			continue;
		log[me].last[i] = counter_now(i);
		log[me].vector[i] = regs->vector;
		if (!log[me].fired[i]++)
			log[me].first[i] = log[me].last[i];
	}
	log[me].bits |= bits;
	log[me].interrupts++;
}

static void prepare(void)
{
	memset(log, 0, sizeof(log));
	set_irq_handler(VECTOR_A, alarm);
	set_irq_handler(VECTOR_B, alarm);
}

static void arm(u32 counter, u64 expiry)
{
	CHECK_RESULT(vmi.time_set_alarm(counter, expiry, 0, VECTOR_A), 0);
}

static void wait_fired(u32 counter, u64 times)
{
	irq_enable();
	while (READ_ONCE(log[this_vcpu()].fired[counter]) < times) {
		pause();
		watch("an alarm");
	}
	irq_disable();
}

/* The alarm comes once, and never early. */
static void one_shot(u64 counter)
{
	static const u64 delays[] = { 0, 1, 1000, 50000, 300000, 2000000, 5000000 };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(delays); i++) {
		u64 expiry = counter_now(counter) + delays[i];

		prepare();
		arm(counter, expiry);
		wait_fired(counter, 1);
		CHECK_OP(log[0].first[counter], >=, expiry);
		irq_enable();
		delay_ns(NS_PER_MS);
		irq_disable();
		CHECK_EQ(log[0].fired[counter], 1);
		CHECK_EQ(log[0].fired[!counter], 0);
		CHECK_RESULT(vmi.time_cancel_alarm(counter), 0);
	}
}
TEST_OF(one_shot_real, "time.set_alarm.one_shot_real", one_shot, REAL, 1, 0,
	TIME_SET_ALARM, TIME_ACK_ALARM);
TEST_OF(one_shot_available, "time.set_alarm.one_shot_available", one_shot, AVAILABLE,
	1, 0, TIME_SET_ALARM, TIME_ACK_ALARM);

static void past(u64 counter)
{
	static const u64 ago[] = { 1, 1000000 };
	u32 i;

	for (i = 0; i < 3; i++) {
		u64 expiry = i < 2 ? counter_now(counter) - ago[i] : 0;

		prepare();
		arm(counter, expiry);
		wait_fired(counter, 1);
		CHECK_EQ(log[0].bits, 1u << counter);
	}
}
TEST_OF(past_real, "time.set_alarm.past_real", past, REAL, 1, 0, TIME_SET_ALARM);
TEST_OF(past_available, "time.set_alarm.past_available", past, AVAILABLE, 1, 0,
	TIME_SET_ALARM);

TEST(alarm_far, "time.set_alarm.far", 1, 0, TIME_SET_ALARM, TIME_CANCEL_ALARM)
{
	static const u64 far[] = { FAR, 1ull << 62, ~0ull };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(far); i++) {
		prepare();
		arm(REAL, far[i] == FAR ? now() + FAR : far[i]);
		irq_enable();
		delay_ns(3 * NS_PER_MS);
		irq_disable();
		CHECK_EQ(log[0].bits, 0);
		CHECK_RESULT(vmi.time_cancel_alarm(REAL), 1);
	}
}

TEST(alarm_replace, "time.set_alarm.replaces", 1, 0, TIME_SET_ALARM)
{
	u64 expiry;

	prepare();
	arm(REAL, now() + NS_PER_MS);
	arm(REAL, now() + FAR);
	irq_enable();
	delay_ns(4 * NS_PER_MS);
	irq_disable();
	CHECK_EQ(log[0].fired[REAL], 0);
	expiry = now() + NS_PER_MS / 2;
	arm(REAL, expiry);
	wait_fired(REAL, 1);
	CHECK_OP(log[0].first[REAL], >=, expiry);
	CHECK_RESULT(vmi.time_cancel_alarm(REAL), 0);
}

/* The vector of the last call counts for both counters. */
TEST(alarm_vector, "time.set_alarm.vector", 1, 0, TIME_SET_ALARM)
{
	u64 expiry, tries = 0;

	/* Repeat when this vCPU lost its processor between the two calls. */
	do {
		test_reset_vcpu();
		prepare();
		CHECK(++tries < 50);
		expiry = now() + 5 * NS_PER_MS;
		CHECK_RESULT(vmi.time_set_alarm(REAL, expiry, 0, VECTOR_A), 0);
		CHECK_RESULT(vmi.time_set_alarm(AVAILABLE,
						counter_now(AVAILABLE) + FAR, 0,
						VECTOR_B), 0);
	} while (now() >= expiry);
	wait_fired(REAL, 1);
	/*
	 * An interrupt that was already pending may still have the first vector; ack reports
	 * nothing for it.
	 */
	CHECK_EQ(log[0].vector[REAL], VECTOR_B);
	CHECK_RESULT(vmi.time_cancel_alarm(AVAILABLE), 1);
}

TEST(alarm_cancel, "time.cancel_alarm.result", 1, 0, TIME_CANCEL_ALARM)
{
	prepare();
	CHECK_RESULT(vmi.time_cancel_alarm(REAL), 0);
	arm(REAL, now() + NS_PER_MS);
	CHECK_RESULT(vmi.time_cancel_alarm(REAL), 1);
	CHECK_RESULT(vmi.time_cancel_alarm(REAL), 0);
	irq_enable();
	delay_ns(4 * NS_PER_MS);
	irq_disable();
	CHECK_EQ(log[0].bits, 0);
	arm(AVAILABLE, 0);
	wait_fired(AVAILABLE, 1);
	CHECK_RESULT(vmi.time_cancel_alarm(AVAILABLE), 0);
	CHECK_RESULT(vmi.time_cancel_alarm(3), -VMI_EINVAL);
	CHECK_RESULT(vmi.time_cancel_alarm(0x100), -VMI_EINVAL);
	CHECK_RESULT(vmi.time_cancel_alarm(0xffffffff), -VMI_EINVAL);
}

/* Expired but not delivered, then cancelled: ack has nothing to report. */
TEST(alarm_cancel_late, "time.cancel_alarm.late", 1, 0, TIME_CANCEL_ALARM,
     TIME_ACK_ALARM)
{
	prepare();
	irq_disable();
	arm(REAL, now());
	delay_ns(NS_PER_MS);
	CHECK_RESULT(vmi.time_cancel_alarm(REAL), 1);
	irq_enable();
	delay_ns(NS_PER_MS);
	irq_disable();
	CHECK_EQ(log[0].bits, 0);
	CHECK_EQ(vmi.time_ack_alarm(), 0);
}

TEST(alarm_ack_nothing, "time.ack_alarm.nothing", 1, 0, TIME_ACK_ALARM)
{
	u64 expiry, bits, tries = 0;

	/* Armed for later: still nothing, and it stays armed. */
	do {
		test_reset_vcpu();
		prepare();
		CHECK(++tries < 50);
		CHECK_EQ(vmi.time_ack_alarm(), 0);
		expiry = now() + 5 * NS_PER_MS;
		arm(REAL, expiry);
		bits = vmi.time_ack_alarm();
		/* Unless that time has come since. */
	} while (bits && now() >= expiry);
	CHECK_EQ(bits, 0);
	wait_fired(REAL, 1);
	CHECK_EQ(vmi.time_ack_alarm(), 0);
}

static void errors(u64 counter)
{
	u64 at = now() + FAR;

	prepare();
	CHECK_RESULT(vmi.time_set_alarm(counter, at, 0, VMI_VECTOR_MIN - 1), -VMI_EINVAL);
	CHECK_RESULT(vmi.time_set_alarm(counter, at, 0, VMI_VECTOR_MAX + 1), -VMI_EINVAL);
	CHECK_RESULT(vmi.time_set_alarm(counter, at, 0, 0xffffffff), -VMI_EINVAL);
	CHECK_RESULT(vmi.time_set_alarm(counter, at, 100000, VECTOR_A), -VMI_EINVAL);
	CHECK_RESULT(vmi.time_set_alarm(counter | VMI_ALARM_PERIODIC, at,
					VMI_ALARM_MIN_PERIOD_NS - 1, VECTOR_A),
		     -VMI_EINVAL);
	CHECK_RESULT(vmi.time_set_alarm(counter | VMI_ALARM_PERIODIC, at, 0, VECTOR_A),
		     -VMI_EINVAL);
	CHECK_RESULT(vmi.time_set_alarm(counter | 0x200, at, 0, VECTOR_A), -VMI_EINVAL);
	CHECK_RESULT(vmi.time_set_alarm(3, at, 0, VECTOR_A), -VMI_EINVAL);
	/* None of these calls has armed an alarm. */
	CHECK_RESULT(vmi.time_cancel_alarm(counter), 0);
	/* The shortest period is valid. */
	CHECK_RESULT(vmi.time_set_alarm(counter | VMI_ALARM_PERIODIC, at,
					VMI_ALARM_MIN_PERIOD_NS, VECTOR_A), 0);
	CHECK_RESULT(vmi.time_cancel_alarm(counter), 1);
}
TEST_OF(errors_real, "time.set_alarm.errors_real", errors, REAL, 1, 0, TIME_SET_ALARM);
TEST_OF(errors_available, "time.set_alarm.errors_available", errors, AVAILABLE, 1, 0,
	TIME_SET_ALARM);

TEST(alarm_stolen, "time.set_alarm.stolen", 1, 0, TIME_SET_ALARM)
{
	prepare();
	CHECK_RESULT(vmi.time_set_alarm(VMI_TIME_STOLEN, 0, 0, VECTOR_A), 0);
	irq_enable();
	delay_ns(3 * NS_PER_MS);
	irq_disable();
	CHECK_EQ(log[0].bits, 0);
	CHECK_OP(vmi.time_cancel_alarm(VMI_TIME_STOLEN), <=, 1);
}

/* A periodic alarm: as many as there is time for, none early, until it is cancelled. */
static void periodic(u64 counter)
{
	u64 period = 500000, start = counter_now(counter) + period, fired;

	prepare();
	CHECK_RESULT(vmi.time_set_alarm(counter | VMI_ALARM_PERIODIC, start, period,
					VECTOR_A), 0);
	wait_fired(counter, 10);
	/* The tenth one, if none was missed, is due at start + 9 periods. */
	CHECK_OP(log[0].last[counter], >=, start + 9 * period);
	CHECK_OP(log[0].first[counter], >=, start);
	CHECK_RESULT(vmi.time_cancel_alarm(counter), 1);
	fired = log[0].fired[counter];
	irq_enable();
	delay_ns(4 * period);
	irq_disable();
	CHECK_EQ(log[0].fired[counter], fired);
}
TEST_OF(periodic_real, "time.set_alarm.periodic_real", periodic, REAL, 1, 0,
	TIME_SET_ALARM, TIME_ACK_ALARM);
TEST_OF(periodic_available, "time.set_alarm.periodic_available", periodic, AVAILABLE,
	1, 0, TIME_SET_ALARM, TIME_ACK_ALARM);

/* Several periods while masked: one interrupt, and the alarm keeps its phase. */
TEST(periodic_missed, "time.set_alarm.periodic_missed", 1, 0, TIME_SET_ALARM,
     TIME_ACK_ALARM)
{
	u64 period = 50 * NS_PER_MS, start, before, due;

	prepare();
	start = now() + NS_PER_MS;
	before = irq_count(0, VECTOR_A);
	CHECK_RESULT(vmi.time_set_alarm(REAL | VMI_ALARM_PERIODIC, start, period,
					VECTOR_A), 0);
	/* To the middle of the third period. */
	while (now() < start + 2 * period + period / 4)
		pause();
	CHECK_EQ(irq_count(0, VECTOR_A), before);
	irq_enable();
	asm volatile("nop");
	irq_disable();
	CHECK_EQ(irq_count(0, VECTOR_A), before + 1);
	CHECK_EQ(log[0].fired[REAL], 1);
	/* The next one, if this vCPU is still before it. */
	due = start + 3 * period;
	if (now() < due) {
		wait_fired(REAL, 2);
		CHECK_OP(log[0].last[REAL], >=, due);
		CHECK_OP(log[0].last[REAL], <, due + 20 * period);
	}
	CHECK_RESULT(vmi.time_cancel_alarm(REAL), 1);
}

TEST(alarm_both, "time.set_alarm.both", 1, 0, TIME_SET_ALARM, TIME_ACK_ALARM)
{
	u64 real, available;
	u32 i;

	for (i = 0; i < 10; i++) {
		prepare();
		real = counter_now(REAL) + (i & 1 ? 300000 : 900000);
		available = counter_now(AVAILABLE) + (i & 1 ? 900000 : 300000);
		arm(REAL, real);
		arm(AVAILABLE, available);
		wait_fired(REAL, 1);
		wait_fired(AVAILABLE, 1);
		CHECK_OP(log[0].first[REAL], >=, real);
		CHECK_OP(log[0].first[AVAILABLE], >=, available);
		CHECK_EQ(log[0].fired[REAL], 1);
		CHECK_EQ(log[0].fired[AVAILABLE], 1);
	}
}

/* Both expire before the interrupt: one ack reports both. */
TEST(alarm_ack_both, "time.ack_alarm.both", 1, 0, TIME_ACK_ALARM)
{
	prepare();
	arm(REAL, now() + 1000);
	arm(AVAILABLE, counter_now(AVAILABLE) + 1000);
	delay_ns(20 * NS_PER_MS);
	CHECK_OP(counter_now(AVAILABLE), >, 0);
	irq_enable();
	asm volatile("nop");
	irq_disable();
	CHECK(log[0].bits & 1u << REAL);
	wait_fired(AVAILABLE, 1);
	CHECK_EQ(log[0].fired[REAL], 1);
	CHECK_EQ(log[0].fired[AVAILABLE], 1);
}

static u64 remote_ready;

static void arm_here(void *argument)
{
	arm(REAL, (u64)argument);
	atomic_add(&remote_ready, 1);
}

/* An alarm belongs to the vCPU that armed it, and wakes that vCPU. */
TEST(alarm_own, "time.set_alarm.per_vcpu", 2, 0, TIME_SET_ALARM)
{
	u64 expiry = now() + 3 * NS_PER_MS;
	u32 i;

	prepare();
	remote_ready = 0;
	run_on_others(machine.vcpus_online, arm_here, (void *)expiry);
	/* This vCPU's alarm is a different one: to set or cancel it changes no other. */
	arm(REAL, now() + FAR);
	CHECK_RESULT(vmi.time_cancel_alarm(REAL), 1);
	irq_enable();
	for (i = 1; i < machine.vcpus_online; i++)
		WAIT_UNTIL(READ_ONCE(log[i].fired[REAL]));
	irq_disable();
	for (i = 1; i < machine.vcpus_online; i++) {
		CHECK_EQ(log[i].fired[REAL], 1);
		CHECK_OP(log[i].first[REAL], >=, expiry);
	}
	CHECK_EQ(log[0].bits, 0);
}

/* Many short alarms at random times: each one comes, none early. */
TEST(alarm_many, "time.set_alarm.many", 1, 0, TIME_SET_ALARM)
{
	u64 seed = 3, i;

	for (i = 0; i < 300; i++) {
		u64 expiry = now() + random64(&seed) % 40000;

		prepare();
		arm(REAL, expiry);
		wait_fired(REAL, 1);
		CHECK_OP(log[0].first[REAL], >=, expiry);
	}
}
