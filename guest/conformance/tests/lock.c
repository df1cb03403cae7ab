// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Waiting and kicking. lock.wait may return spuriously, so every wait is in a loop. */
#include "harness.h"
#include "test.h"

#define VECTOR_A 0x5c

static u32 me(void)
{
	return this_vcpu();
}

TEST(wait_differs, "lock.wait.differs", 1, 0, LOCK_WAIT, LOCK_KICK, LOCK_PENDING)
{
	u8 byte = 1;
	u32 i;

	/* Returns at once. Otherwise nothing would end it. */
	for (i = 0; i < 1000; i++)
		vmi.lock_wait(&byte, 0);
	CHECK_EQ(byte, 1);
	/* The pending bit stays for a wait that needs it. */
	CHECK_RESULT(vmi.lock_kick(me()), 0);
	for (i = 0; i < 1000; i++) {
		vmi.lock_wait(&byte, 0);
		CHECK_RESULT(vmi.lock_pending(me()), 1);
	}
}

TEST(kick_sticky, "lock.kick.sticky", 1, 0, LOCK_KICK, LOCK_WAIT, LOCK_PENDING)
{
	u8 byte = 0;
	u64 start;
	u32 i;

	for (i = 0; i < 50; i++) {
		CHECK_RESULT(vmi.lock_pending(me()), 0);
		CHECK_RESULT(vmi.lock_kick(me()), 0);
		CHECK_RESULT(vmi.lock_pending(me()), 1);
		/* Still pending after other calls and interrupts. */
		pause();
		CHECK_RESULT(send_ipi(0, VECTOR_A), 0);
		irq_enable();
		pause();
		irq_disable();
		CHECK_RESULT(vmi.lock_pending(me()), 1);
		start = now();
		vmi.lock_wait(&byte, 0);
		CHECK_RESULT(vmi.lock_pending(me()), 0);
		/* No wait at all. It takes longer only if the vCPU loses its processor. */
		CHECK_OP(now() - start, <, NS_PER_S);
	}
}

/* The state is one bit: two kicks end one wait. */
TEST(kick_once, "lock.kick.one_bit", 1, 0, LOCK_KICK, LOCK_PENDING)
{
	u8 byte = 0;

	CHECK_RESULT(vmi.lock_kick(me()), 0);
	CHECK_RESULT(vmi.lock_kick(me()), 0);
	CHECK_RESULT(vmi.lock_pending(me()), 1);
	vmi.lock_wait(&byte, 0);
	CHECK_RESULT(vmi.lock_pending(me()), 0);
}

TEST(wait_flag, "lock.wait.interrupt_flag", 1, 0, LOCK_WAIT)
{
	u8 byte = 0;

	irq_disable();
	vmi.lock_kick(me());
	vmi.lock_wait(&byte, 0);
	CHECK(!irqs_enabled());
	irq_enable();
	vmi.lock_kick(me());
	vmi.lock_wait(&byte, 0);
	CHECK(irqs_enabled());
}

static u8 released;

static void release(struct regs *regs)
{
	(void)regs;
	vmi.time_ack_alarm();
	WRITE_ONCE(released, 1);
}

/*
 * An interrupt that may be delivered ends the wait. The alarm is periodic, because the first one
 * may come before the wait begins.
 */
TEST(wait_interrupted, "lock.wait.interrupt", 1, 0, LOCK_WAIT, TIME_SET_ALARM)
{
	u32 i;

	set_irq_handler(VECTOR_A, release);
	for (i = 0; i < 10; i++) {
		irq_disable();
		released = 0;
		CHECK_RESULT(vmi.time_set_alarm(VMI_TIME_REAL | VMI_ALARM_PERIODIC,
						now() + 300000, NS_PER_MS, VECTOR_A), 0);
		irq_enable();
		while (!READ_ONCE(released)) {
			u8 zero = 0;

			/* The byte never changes: only the interrupt can end the wait. */
			vmi.lock_wait(&zero, 0);
			watch("lock.wait");
		}
	}
	vmi.time_cancel_alarm(VMI_TIME_REAL);
}

TEST(lock_errors, "lock.kick.errors", 1, 0, LOCK_KICK, LOCK_PENDING, LOCK_PREEMPTED,
     LOCK_YIELD)
{
	u32 bad[] = { 0x10000, 0xffffffff, VCPU_WITHOUT_DATA }, i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		/* Older layers gave hints about vCPUs without data. */
		if (bad[i] == VCPU_WITHOUT_DATA && layer_older_than(3))
			break;
		CHECK_RESULT(vmi.lock_kick(bad[i]), -VMI_ENOENT);
		CHECK_RESULT(vmi.lock_pending(bad[i]), -VMI_ENOENT);
		CHECK_RESULT(vmi.lock_preempted(bad[i]), -VMI_ENOENT);
		CHECK_RESULT(vmi.lock_yield(bad[i]), -VMI_ENOENT);
	}
}

/*
 * On a host where the first two vCPUs share a processor (shared on the command line), a vCPU that
 * runs knows that the other one does not.
 */
static u32 spinning, spin_over;

static void spin(void *argument)
{
	(void)argument;
	atomic_store(&spinning, 1);
	while (!atomic_load(&spin_over))
		pause();
}

TEST(lock_preempted, "lock.preempted.shared_processor", 2, 0, LOCK_PREEMPTED, LOCK_YIELD)
{
	u64 i, yes = 0;
	char word[8];

	if (!option("shared", word, sizeof(word)))
		test_skip("needs shared on the command line, and one processor");
	/* The layer knows of it as well after another start. */
	CHECK(smp_start(1));
	spinning = spin_over = 0;
	run_on(1, spin, NULL);
	WAIT_UNTIL(atomic_load(&spinning));
	for (i = 0; i < 1000; i++) {
		yes += vmi.lock_preempted(1) == 1;
		CHECK_RESULT(vmi.lock_preempted(0), 0);
		if (i % 100 == 0)
			CHECK_RESULT(vmi.lock_yield(1), 0);
	}
	/* Each answer is as old as its last instruction. */
	CHECK_OP(yes, >, 900);
	atomic_store(&spin_over, 1);
	wait_for(1);
	/* Halted: it does not want to run. */
	WAIT_UNTIL(vmi.lock_preempted(1) == 0);
}

TEST(lock_hints, "lock.preempted.self", 1, 0, LOCK_PREEMPTED, LOCK_YIELD)
{
	u32 i;

	/* The vCPU that asks is running. */
	CHECK_RESULT(vmi.lock_preempted(me()), 0);
	for (i = 0; i < machine.vcpus_online; i++) {
		int result = vmi.lock_preempted(i);

		CHECK(result == 0 || result == 1);
		CHECK_OP(vmi.lock_yield(i), <=, 1);
	}
	CHECK(!irqs_enabled());
}

/* Each vCPU has a pending bit of its own. */
TEST(kick_other, "lock.kick.other", 2, 0, LOCK_KICK, LOCK_PENDING)
{
	u32 i;

	for (i = 1; i < machine.vcpus_online; i++)
		CHECK_RESULT(vmi.lock_pending(i), 0);
	CHECK_RESULT(vmi.lock_kick(1), 0);
	CHECK_RESULT(vmi.lock_pending(1), 1);
	CHECK_RESULT(vmi.lock_pending(0), 0);
	for (i = 2; i < machine.vcpus_online; i++)
		CHECK_RESULT(vmi.lock_pending(i), 0);
	/* Halting and work do not clear it. */
	delay_ns(NS_PER_MS);
	CHECK_RESULT(vmi.lock_pending(1), 1);
}

static struct {
	u8 turn;
	bool stop;
	u64 rounds, slow, end;
} ping;

/* Waits with lock.wait until the turn byte is not the other's. */
static void play(u8 mine)
{
	u64 i;

	for (i = 0; i < ping.rounds; i++) {
		u64 start = now();

		while (atomic_load(&ping.turn) != mine) {
			if (atomic_load(&ping.stop))
				return;
			vmi.lock_wait(&ping.turn, !mine);
			watch("a kick");
		}
		if (now() - start > NS_PER_S)
			ping.slow++;
		if (now() > ping.end) {
			atomic_store(&ping.stop, true);
			vmi.lock_kick(!mine);
			return;
		}
		atomic_store(&ping.turn, !mine);
		vmi.lock_kick(!mine);
	}
}

static void play_other(void *argument)
{
	(void)argument;
	play(1);
}

TEST(ping_pong, "lock.kick.ping_pong", 2, 0, LOCK_KICK, LOCK_WAIT)
{
	memset(&ping, 0, sizeof(ping));
	ping.rounds = 10000;
	ping.end = now() + ROUNDS_BUDGET;
	run_on(1, play_other, NULL);
	play(0);
	wait_for(1);
	/* A lost kick shows as a wait until something else ends it. */
	CHECK_EQ(ping.slow, 0);
}

/*
 * The bit itself, without a byte that changes: a kick must end each wait. A spurious end shows as a
 * clear bit with the count unchanged.
 */
static struct {
	u64 sent, seen, done;
} sticky;

static void wait_for_kicks(void *argument)
{
	u64 rounds = (u64)argument;
	u8 byte = 0;

	while (sticky.seen < rounds) {
		vmi.lock_wait(&byte, 0);
		atomic_store(&sticky.seen, atomic_load(&sticky.sent));
		watch("a kick");
	}
}

TEST(kick_race, "lock.wait.race", 2, 0, LOCK_WAIT, LOCK_KICK)
{
	u64 seed = 6, i, rounds = 1000;

	memset(&sticky, 0, sizeof(sticky));
	run_on(1, wait_for_kicks, (void *)rounds);
	for (i = 1; i <= rounds; i++) {
		atomic_store(&sticky.sent, i);
		CHECK_RESULT(vmi.lock_kick(1), 0);
		WAIT_UNTIL(atomic_load(&sticky.seen) == i);
		if (i % 8 == 0)
			delay_ns(random64(&seed) % 20000);
	}
	wait_for(1);
}

/* A ticket lock with waiting, as kernels have it, contended by all vCPUs. */
static struct {
	u32 next;
	u8 serving;
	u64 value, inside;
} ticket;

static void take_turns(void *argument)
{
	u64 rounds = (u64)argument, i;

	for (i = 0; i < rounds; i++) {
		u8 mine = __atomic_fetch_add(&ticket.next, 1, __ATOMIC_SEQ_CST);
		u32 n;

		for (;;) {
			u8 serving = atomic_load(&ticket.serving);

			if (serving == mine)
				break;
			vmi.lock_wait(&ticket.serving, serving);
			watch("a ticket");
		}
		CHECK_EQ(atomic_add(&ticket.inside, 1), 1);
		ticket.value++;
		atomic_add(&ticket.inside, -1);
		atomic_store(&ticket.serving, (u8)(mine + 1));
		for (n = 0; n < machine.vcpus_online; n++)
			vmi.lock_kick(n);
	}
}

TEST(ticket_lock, "lock.wait.ticket", 2, 0, LOCK_WAIT, LOCK_KICK)
{
	u64 rounds = machine.vcpus_online > 4 ? 10 : 50;
	u32 i;

	memset(&ticket, 0, sizeof(ticket));
	for (i = 1; i < machine.vcpus_online; i++)
		run_on(i, take_turns, (void *)rounds);
	take_turns((void *)rounds);
	for (i = 1; i < machine.vcpus_online; i++)
		wait_for(i);
	CHECK_EQ(ticket.value, rounds * machine.vcpus_online);
}
