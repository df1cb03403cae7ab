// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* What a vCPU knows of the others: their run state, and what is carried of it. */
#include "test.h"

#define VECTOR_TICK	0x5d

static const struct vmi_run_state *run_state(u32 vcpu)
{
	if (!vmi.lock_run_state)
		test_skip("the layer is older");
	return (const struct vmi_run_state *)vmi.lock_run_state(vcpu);
}

static bool follows(void)
{
	return layer_features(VMI_SECTION_LOCK) & VMI_LOCK_RUN_STATES;
}

TEST(run_state_record, "lock.run_state.record", 1, 0, LOCK_RUN_STATE)
{
	u32 bad[] = { 0x10000, 0xffffffff, VCPU_WITHOUT_DATA }, i, n;

	for (i = 0; i < machine.vcpus_online; i++) {
		const struct vmi_run_state *state = run_state(i);

		CHECK(state != NULL);
		CHECK_EQ((u64)state % 64, 0);
		CHECK(run_state(i) == state);
		CHECK_OP(READ_ONCE(state->state), <=, VMI_RUN_READY);
		CHECK_OP(READ_ONCE(state->state), !=, VMI_RUN_OFF);
		CHECK_OP(READ_ONCE(state->preempted), <=, 1);
		for (n = 0; n < ARRAY_SIZE(state->reserved); n++)
			CHECK_EQ(state->reserved[n], 0);
		for (n = 0; n < i && follows(); n++)
			CHECK(run_state(n) != state);
	}
	for (i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK_EQ((u64)run_state(bad[i]), 0);
	CHECK_EQ(run_state(this_vcpu())->state, VMI_RUN_RUNNING);
}

static u32 awake, leave;

static void stay_awake(void *argument)
{
	(void)argument;
	atomic_store(&awake, 1);
	while (!atomic_load(&leave))
		pause();
}

/* A vCPU without work is halted. */
TEST(run_state_halted, "lock.run_state.halted", 2, 0, LOCK_RUN_STATE)
{
	const struct vmi_run_state *other = run_state(1);
	u32 i;

	if (!follows())
		test_skip("needs VMI_LOCK_RUN_STATES");
	for (i = 0; i < 20; i++) {
		WAIT_UNTIL(READ_ONCE(other->state) == VMI_RUN_HALTED);
		CHECK_RESULT(vmi.lock_preempted(1), 0);
		awake = leave = 0;
		run_on(1, stay_awake, NULL);
		WAIT_UNTIL(atomic_load(&awake));
		CHECK_EQ(READ_ONCE(other->state), VMI_RUN_RUNNING);
		atomic_store(&leave, 1);
		wait_for(1);
	}
}

static u32 consumed;

/* The pending kick makes this return. Without it, the deadline of the test ends it. */
static void consume(void *argument)
{
	u8 byte = 0;

	(void)argument;
	while (vmi.lock_pending(1))
		vmi.lock_wait(&byte, 0);
	atomic_store(&consumed, 1);
}

/*
 * What a hypervisor does that saves a vCPU and continues it: it stops the vCPU, reads the bit, and
 * restores it in the new one. INIT itself leaves the bit alone.
 */
TEST(pending_saved, "lock.pending.saved_and_restored", 2, 0, LOCK_PENDING, LOCK_KICK)
{
	const struct vmi_run_state *state = vmi.lock_run_state ? run_state(1) : NULL;
	int saved, stopped, i;

	for (i = 0; i < 5; i++) {
		CHECK_RESULT(vmi.lock_kick(1), 0);
		CHECK_RESULT(send_icr(1, ICR_INIT), 0);
		if (state && follows())
			WAIT_UNTIL(READ_ONCE(state->state) == VMI_RUN_OFF);
		else
			delay_ns(10 * NS_PER_MS);
		saved = vmi.lock_pending(1);
		stopped = vmi.lock_preempted(1);
		CHECK(smp_start(1));
		CHECK_EQ(saved, 1);
		CHECK_RESULT(stopped, 0);
		CHECK_RESULT(vmi.lock_pending(1), 1);
		/* A new vCPU in its place has no kick pending. */
		run_on(1, consume, NULL);
		wait_for(1);
		CHECK_RESULT(vmi.lock_pending(1), 0);
		if (saved)
			CHECK_RESULT(vmi.lock_kick(1), 0);
		consumed = 0;
		CHECK_RESULT(vmi.lock_pending(1), saved);
		run_on(1, consume, NULL);
		WAIT_UNTIL(atomic_load(&consumed));
		wait_for(1);
	}
}

/*
 * The stolen time is that of time.read. The test is worth more where there is some (steal on the
 * command line).
 */
TEST(run_state_stolen, "lock.run_state.stolen", 1, 0, LOCK_RUN_STATE, TIME_READ)
{
	const struct vmi_run_state *me = run_state(this_vcpu());
	u64 start = now(), last = 0;
	struct vmi_times t;
	char word[8];

	if (!follows())
		test_skip("needs VMI_LOCK_RUN_STATES");
	do {
		vmi.time_read(&t);
		CHECK_EQ(READ_ONCE(me->stolen), t.stolen);
		CHECK_OP(t.stolen, >=, last);
		last = t.stolen;
	} while (t.real - start < 300 * NS_PER_MS);
	if (option("steal", word, sizeof(word)))
		CHECK_OP(last, >, 0);
}

#define TICK_NS		(4 * NS_PER_MS)
/*
 * How old the record of a vCPU may be that takes alarms: a period, and how late an alarm is. The
 * host's part of that is longer here, where all processors are busy.
 */
#define AGE_NS		(TICK_NS + 10 * NS_PER_MS)
#define QUESTIONS	30

/* A vCPU that does nothing but take its alarms, and read its times when asked to. */
static struct {
	u64 ran_at;		/* by the counter: it had its processor then */
	u64 read_at;
	u32 asked, read;
	bool over;
	struct vmi_times times;
} ticking;

static void tick(struct regs *regs)
{
	(void)regs;
	vmi.time_ack_alarm();
}

static void tick_on(void *argument)
{
	u32 asked;

	(void)argument;
	CHECK_RESULT(vmi.time_set_alarm(VMI_TIME_REAL | VMI_ALARM_PERIODIC, now() + TICK_NS,
					TICK_NS, VECTOR_TICK), 0);
	irq_enable();
	while (!atomic_load(&ticking.over)) {
		WRITE_ONCE(ticking.ran_at, read_tsc());
		asked = atomic_load(&ticking.asked);
		if (asked == ticking.read)
			continue;
		vmi.time_read(&ticking.times);
		ticking.read_at = read_tsc();
		atomic_store(&ticking.read, asked);
	}
	irq_disable();
	vmi.time_cancel_alarm(VMI_TIME_REAL);
}

/*
 * On a host where other programs use all processors (steal on the command line): the record of a
 * vCPU that makes no call grows, never falls, and is that vCPU's own reading, or a little older.
 */
TEST(run_state_of_another, "lock.run_state.stolen_of_another", 2, 0, LOCK_RUN_STATE)
{
	const struct vmi_run_state *state = run_state(1);
	u64 hz = vmi.time_frequency(), last = 0, grew = 0, old = 0, oldest = 0, first, end;
	char word[8];
	u32 i;

	if (!follows() || !option("steal", word, sizeof(word)))
		test_skip("needs run states, and steal on the command line, on a busy host");
	memset(&ticking, 0, sizeof(ticking));
	set_irq_handler(VECTOR_TICK, tick);
	run_on(1, tick_on, NULL);
	WAIT_UNTIL(READ_ONCE(ticking.ran_at));
	first = READ_ONCE(state->stolen);
	for (i = 1; i <= QUESTIONS; i++) {
		u64 ran_at, stolen, since, behind;

		for (end = now() + 100 * NS_PER_MS; now() < end; last = stolen) {
			stolen = READ_ONCE(state->stolen);
			CHECK_OP(stolen, >=, last);
			grew += stolen > last;
		}
		ran_at = atomic_load(&ticking.ran_at);
		stolen = atomic_load(&state->stolen);
		atomic_store(&ticking.asked, i);
		WAIT_UNTIL(atomic_load(&ticking.read) == i);
		CHECK_OP(stolen, >=, last);
		CHECK_OP(stolen, <=, ticking.times.stolen);
		last = stolen;
		/* Time that was stolen since the vCPU last ran cannot be in its record. */
		since = (ticking.read_at - ran_at) * 1000 / (hz / 1000000);
		behind = ticking.times.stolen - stolen;
		behind -= MIN(behind, since);
		oldest = MAX(oldest, behind);
		old += behind > AGE_NS;
	}
	atomic_store(&ticking.over, true);
	wait_for(1);
	print("# stolen %llu ms in %llu steps; at most %llu us old, %llu times over %llu\n",
	      (last - first) / NS_PER_MS, grew, oldest / NS_PER_US, old, AGE_NS / NS_PER_US);
	/* The questions themselves make it grow once each. */
	CHECK_OP(grew, >, QUESTIONS);
	CHECK_OP(old * 10, <=, QUESTIONS);
}
