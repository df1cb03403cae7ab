// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Whether another vCPU has a processor, and giving way to one that has none. */
#include "space.h"
#include "test.h"

#define VECTOR_MASKED	0x5d

/* A vCPU that counts as long as it has a processor. */
static struct {
	u64 count;
	bool over;
	struct space space, *load;
} runner;

static void count_on(void *argument)
{
	u64 count = 0;

	(void)argument;
	if (runner.load)
		space_load(runner.load);
	while (!atomic_load(&runner.over))
		WRITE_ONCE(runner.count, ++count);
	if (runner.load)
		space_load(NULL);
}

/* What was seen of it by questions at short intervals. */
struct seen {
	u64 lost, missed;	/* it did not run for the documented time; and was not known to */
	u64 ran, wrong;		/* it ran before and during the question; and was said not to */
};

#define SAMPLE_NS	(20 * NS_PER_US)
/* An answer that takes longer says nothing about one time. */
#define LONG_NS		(NS_PER_MS / 2)
#define STRANGER_NS	(2 * NS_PER_S)
/* Of a caller that asks for some time, and then does something else. */
#define ASKING_NS	(4 * VMI_PREEMPTED_LATE_NS)
#define PAUSE_NS	(200 * NS_PER_US)

static struct seen look_at_runner(bool pauses)
{
	u64 start = now(), stands_since = start, settled = start + NS_PER_MS, asked = start;
	u64 resumed = start;
	u64 count = READ_ONCE(runner.count), most = 1;
	struct seen seen = { 0 };

	while (asked - start < STRANGER_NS) {
		u64 counted = now(), at_before = READ_ONCE(runner.count), before = now();
		u64 after, at_after, rate;
		int answer = vmi.lock_preempted(1);
		bool ran, paused;

		at_after = READ_ONCE(runner.count);
		after = now();
		/* Counts in 1024 ns since the end of the last question: whether it ran then. */
		rate = (at_before - count) * 1024 / (before - asked + 1);
		paused = before - asked > VMI_PREEMPTED_ASK_NS || after - before > LONG_NS ||
			 before - counted > LONG_NS / 50;
		if (before - asked >= SAMPLE_NS && !paused)
			most = MAX(most, rate);
		ran = rate > most * 3 / 4 && at_after != at_before;
		if (at_before != count)
			stands_since = before;
		/* After a pause of this vCPU, the documented time begins anew. */
		if (paused) {
			settled = after + VMI_PREEMPTED_LATE_NS;
		} else if (before > settled && at_after == at_before &&
			   before - stands_since > VMI_PREEMPTED_LATE_NS) {
			seen.lost++;
			seen.missed += answer != 1;
		} else if (before > settled && ran) {
			seen.ran++;
			seen.wrong += answer != 0;
		}
		if (at_after != at_before)
			stands_since = after;
		count = at_after;
		asked = after;
		if (pauses && asked - resumed > ASKING_NS) {
			delay_ns(PAUSE_NS);
			resumed = now();
		}
		while (now() - asked < SAMPLE_NS)
			pause();
	}
	return seen;
}

enum where { SAME_SPACE, OTHER_SPACE, OTHER_SPACE_PAUSES };

/*
 * On a host where other programs use all processors (steal on the command line): a vCPU that has
 * lost its processor to them is known to have, and one that runs is known to run.
 */
static void preempted_by_stranger(u64 where)
{
	struct seen seen;
	char word[8];

	if (!option("steal", word, sizeof(word)))
		test_skip("needs steal on the command line, on a busy host");
	memset(&runner, 0, sizeof(runner));
	if (where != SAME_SPACE) {
		space_create(&runner.space);
		runner.load = &runner.space;
	}
	run_on(1, count_on, NULL);
	WAIT_UNTIL(READ_ONCE(runner.count));
	seen = look_at_runner(where == OTHER_SPACE_PAUSES);
	atomic_store(&runner.over, true);
	wait_for(1);
	if (runner.load)
		space_destroy(&runner.space);
	print("# lost its processor: %llu times, not known %llu; ran: %llu times, wrong %llu\n",
	      seen.lost, seen.missed, seen.ran, seen.wrong);
	CHECK_OP(seen.lost, >, 100);
	CHECK_OP(seen.ran, >, 100);
	CHECK_OP(seen.missed * 20, <=, seen.lost);
	CHECK_OP(seen.wrong * 100, <=, seen.ran);
}

TEST_OF(preempted_stranger, "lock.preempted.stranger", preempted_by_stranger, SAME_SPACE, 2, 0,
	LOCK_PREEMPTED);
TEST_OF(preempted_elsewhere, "lock.preempted.other_space", preempted_by_stranger,
	OTHER_SPACE, 2, 0, LOCK_PREEMPTED);
TEST_OF(preempted_pauses, "lock.preempted.after_pauses", preempted_by_stranger,
	OTHER_SPACE_PAUSES, 2, 0, LOCK_PREEMPTED);

#define SHORT_WAITS	500
#define SHORT_WAIT_NS	(10 * NS_PER_US)
#define BETWEEN_WAITS_NS (100 * NS_PER_US)

/* Asks as often as it can for a short time. Returns how long the longest question took, in ns. */
static u64 wait_shortly(u64 *least)
{
	u64 start = now(), at = start, longest = 0;

	while (at - start < SHORT_WAIT_NS) {
		u64 begun = at;

		vmi.lock_preempted(1);
		at = now();
		longest = MAX(longest, at - begun);
		*least = MIN(*least, at - begun);
	}
	return longest;
}

/*
 * A vCPU that often waits for a lock, but shortly, asks what is in memory: the layer does not spend
 * more on an answer than the waits take. The other vCPU is in another space, where a look costs
 * most. The host may take this vCPU's processor during some waits.
 */
TEST(preempted_short, "lock.preempted.short_waits", 2, 0, LOCK_PREEMPTED)
{
	static u64 longest[SHORT_WAITS];
	u64 least = ~0ull, dear = 0;
	u32 i;

	memset(&runner, 0, sizeof(runner));
	space_create(&runner.space);
	runner.load = &runner.space;
	run_on(1, count_on, NULL);
	WAIT_UNTIL(READ_ONCE(runner.count));
	for (i = 0; i < SHORT_WAITS; i++) {
		longest[i] = wait_shortly(&least);
		delay_ns(BETWEEN_WAITS_NS);
	}
	atomic_store(&runner.over, true);
	wait_for(1);
	space_destroy(&runner.space);
	for (i = 0; i < SHORT_WAITS; i++)
		dear += longest[i] > MAX(4 * NS_PER_US, 10 * least);
	print("# the shortest question took %llu ns; %llu of %u waits had a dear one\n", least,
	      dear, SHORT_WAITS);
	CHECK_OP(dear * 2, <, SHORT_WAITS);
}

/*
 * Two vCPUs that share a processor (shared on the command line): yielding passes it on, so the
 * other one gets most of the time of a vCPU that does nothing else.
 */
TEST(yield_passes, "lock.yield.shared_processor", 2, 0, LOCK_YIELD)
{
	u64 start, yields = 0, moves = 0, count;
	char word[8];

	if (!option("shared", word, sizeof(word)))
		test_skip("needs shared on the command line, and one processor");
	memset(&runner, 0, sizeof(runner));
	run_on(1, count_on, NULL);
	WAIT_UNTIL(READ_ONCE(runner.count));
	start = now();
	while (now() - start < NS_PER_S) {
		count = READ_ONCE(runner.count);
		CHECK_RESULT(vmi.lock_yield(1), 0);
		moves += READ_ONCE(runner.count) != count;
		yields++;
	}
	atomic_store(&runner.over, true);
	wait_for(1);
	print("# %llu yields, the other vCPU ran after %llu\n", yields, moves);
	CHECK_OP(moves * 4, >, yields);
}

/* Another vCPU on that processor, for which nobody waits. */
static struct {
	u64 count;
	bool over;
} third;

static void count_beside(void *argument)
{
	u64 count = 0;

	(void)argument;
	while (!atomic_load(&third.over))
		WRITE_ONCE(third.count, ++count);
}

static void masked(struct regs *regs)
{
	(void)regs;
}

/*
 * Three vCPUs that share a processor: a yield is for the one that it names. The host knows nothing
 * of that, and has two to choose from. An interrupt that the caller may not take yet, as for most
 * spinlocks, changes nothing.
 */
TEST(yield_named, "lock.yield.third_runs", 3, 0, LOCK_YIELD)
{
	u64 start, yields = 0, moves = 0, longest = 0;
	char word[8];

	if (!option("shared", word, sizeof(word)))
		test_skip("needs shared on the command line, and one processor");
	memset(&runner, 0, sizeof(runner));
	memset(&third, 0, sizeof(third));
	run_on(1, count_on, NULL);
	run_on(2, count_beside, NULL);
	WAIT_UNTIL(READ_ONCE(runner.count) && READ_ONCE(third.count));
	set_irq_handler(VECTOR_MASKED, masked);
	CHECK_RESULT(send_ipi(0, VECTOR_MASKED), 0);
	start = now();
	while (now() - start < 2 * NS_PER_S) {
		u64 count = READ_ONCE(runner.count), at = now();

		CHECK_RESULT(vmi.lock_yield(1), 0);
		moves += READ_ONCE(runner.count) != count;
		longest = MAX(longest, now() - at);
		yields++;
	}
	atomic_store(&runner.over, true);
	atomic_store(&third.over, true);
	wait_for(1);
	wait_for(2);
	print("# %llu yields, the named vCPU ran after %llu; the longest took %llu us\n", yields,
	      moves, longest / NS_PER_US);
	/* The share that docs/locks.md states. */
	CHECK_OP(moves * 4, >, yields * 3);
}
