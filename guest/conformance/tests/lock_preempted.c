// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Whether another vCPU has a processor, and giving way to one that has none. */
#include "space.h"
#include "test.h"

#define VECTOR_MASKED	0x5d

#define RUNNERS 2

/* A vCPU that counts as long as it has a processor. */
struct runner {
	u64 count;
	bool over;
	struct space space, *load;
};

static struct runner runners[RUNNERS];

static void count_on(void *argument)
{
	struct runner *runner = argument;
	u64 count = 0;

	if (runner->load)
		space_load(runner->load);
	while (!atomic_load(&runner->over))
		WRITE_ONCE(runner->count, ++count);
	if (runner->load)
		space_load(NULL);
}

static void runner_start(struct runner *runner, u32 vcpu, bool own_space)
{
	memset(runner, 0, sizeof(*runner));
	if (own_space) {
		space_create(&runner->space);
		runner->load = &runner->space;
	}
	run_on(vcpu, count_on, runner);
	WAIT_UNTIL(READ_ONCE(runner->count));
}

static void runner_end(struct runner *runner, u32 vcpu)
{
	atomic_store(&runner->over, true);
	wait_for(vcpu);
	if (runner->load)
		space_destroy(&runner->space);
}

/* An answer that takes longer says nothing about one time. */
#define LONG_NS		(NS_PER_MS / 2)
/* The rate at which a vCPU counts is measured over this time. */
#define RATE_NS		(20 * NS_PER_US)
#define STRANGER_NS	(2 * NS_PER_S)
/* Of a caller that asks for some time, and then does something else. */
#define ASKING_NS	(4 * VMI_PREEMPTED_LATE_NS)
#define PAUSE_NS	(200 * NS_PER_US)
/* How long an answer 1 stays, for each vCPU that is asked about in turn. */
#define STAYS_NS	(VMI_PREEMPTED_LATE_NS / 10)

/* How the caller asks. */
struct asking {
	u32 in_turn;	/* the number of vCPUs asked about */
	u64 sample;	/* ns from one round to the next */
	bool pauses;
};

/* What the layer answers about a vCPU at short intervals. */
struct seen {
	u32 vcpu;
	const struct runner *runner;
	u64 asked, count;	/* the last question's end, and the count then */
	u64 elsewhere;		/* time of the questions about others since then */
	u64 stands_since, runs_since;
	u64 settled;		/* the documented time since a pause is over then */
	u64 rate_at, rate_count; /* begin of a measurement of its rate, and the count then */
	u64 most;		/* its highest rate */
	u64 lost, missed;	/* it did not run for the documented time; and was not known to */
	u64 ran, wrong;		/* it ran before and during the question; and was said not to */
	u64 looked;		/* end of the last question that took long and had the answer 1 */
	u64 looks, gaps, early;	/* of those; times between two of them; that were too short */
};

static void seen_start(struct seen *seen, const struct runner *runner, u32 vcpu)
{
	u64 start = now();

	*seen = (struct seen){
		.vcpu = vcpu, .runner = runner, .count = READ_ONCE(runner->count), .most = 1,
		.asked = start, .stands_since = start, .runs_since = start,
		.settled = start + NS_PER_MS, .rate_at = start,
	};
	seen->rate_count = seen->count;
}

/* Counts in 1024 ns. */
static u64 rate(u64 counts, u64 ns)
{
	return counts * 1024 / (ns + 1);
}

/* One question: when it began and ended, and the counts then. */
struct question {
	u64 before, after, at_before, at_after;
	bool paused;
};

/* Over longer times than those between two questions, in which an interrupt would matter. */
static void measure_rate(struct seen *seen, const struct question *q)
{
	u64 ns = q->before - seen->rate_at;

	if (!q->paused && ns < RATE_NS)
		return;
	if (!q->paused)
		seen->most = MAX(seen->most, rate(q->at_before - seen->rate_count, ns));
	seen->rate_at = q->after;
	seen->rate_count = q->at_after;
}

/*
 * A look costs the caller time, which it may spend once in STAYS_NS, however many vCPUs it asks
 * about: with N vCPUs, on each of them once in N * STAYS_NS.
 */
static void count_look(struct seen *seen, const struct asking *how, const struct question *q,
		       int answer)
{
	static u64 least = ~0ull;
	u64 took = q->after - q->before, gap = q->before - seen->looked;

	least = MIN(least, took);
	if (took <= MAX(4 * NS_PER_US, 10 * least))
		return;
	seen->looks++;
	if (seen->looked && answer == 1 && gap < VMI_PREEMPTED_LATE_NS) {
		seen->gaps++;
		seen->early += gap < how->in_turn * STAYS_NS * 9 / 10;
	}
	seen->looked = answer == 1 && took < LONG_NS ? q->after : 0;
}

/* Asks once. Returns how long the question took. */
static u64 ask_about(struct seen *seen, const struct asking *how)
{
	u64 counted = now(), since;
	struct question q;
	int answer;
	bool moved;

	q.at_before = READ_ONCE(seen->runner->count);
	q.before = now();
	answer = vmi.lock_preempted(seen->vcpu);
	q.at_after = READ_ONCE(seen->runner->count);
	q.after = now();
	moved = q.at_after != q.at_before;
	since = q.before - seen->asked;
	/* The caller does nothing else in the time of its questions. */
	q.paused = since - MIN(since, seen->elsewhere) > VMI_PREEMPTED_ASK_NS ||
		   q.after - q.before > LONG_NS || q.before - counted > LONG_NS / 50;
	measure_rate(seen, &q);
	if (rate(q.at_before - seen->count, since) <= seen->most * 3 / 4)
		seen->runs_since = q.before;
	if (q.at_before != seen->count)
		seen->stands_since = q.before;
	/* After a pause of this vCPU, the documented time starts again. */
	if (q.paused) {
		seen->settled = q.after + VMI_PREEMPTED_LATE_NS;
		seen->looked = 0;
	} else if (q.before > seen->settled && !moved &&
		   q.before - seen->stands_since > VMI_PREEMPTED_LATE_NS) {
		seen->lost++;
		seen->missed += answer != 1;
	} else if (q.before > seen->settled && moved &&
		   q.before - seen->runs_since > how->in_turn * STAYS_NS) {
		seen->ran++;
		seen->wrong += answer != 0;
	}
	if (moved)
		seen->stands_since = q.after;
	count_look(seen, how, &q, answer);
	seen->count = q.at_after;
	seen->asked = q.after;
	seen->elsewhere = 0;
	return q.after - q.before;
}

/* Asks about each in turn, again and again. */
static void look_at(struct seen *seen, const struct asking *how)
{
	u64 start = now(), resumed = start, at = start;
	u32 i, n;

	while (at - start < STRANGER_NS) {
		for (i = 0; i < how->in_turn; i++) {
			u64 took = ask_about(&seen[i], how);

			for (n = 0; n < how->in_turn; n++)
				if (n != i)
					seen[n].elsewhere += took;
		}
		at = now();
		if (how->pauses && at - resumed > ASKING_NS) {
			delay_ns(PAUSE_NS);
			resumed = now();
		}
		while (now() - at < how->sample)
			pause();
	}
}

static void check_seen(const struct seen *all, u32 count)
{
	const struct seen *seen;
	u64 lost = 0, missed = 0;

	for (seen = all; seen < all + count; seen++) {
		print("# vCPU %u lost its processor: %llu times, not known %llu; ", seen->vcpu,
		      seen->lost, seen->missed);
		print("ran: %llu times, wrong %llu\n", seen->ran, seen->wrong);
		lost += seen->lost;
		missed += seen->missed;
	}
	for (seen = all; seen < all + count; seen++) {
		CHECK_OP(seen->lost, >, 100);
		CHECK_OP(seen->missed * 2, <=, seen->lost);
		/* One in a hundred; of few samples, the ends of the times without a processor. */
		CHECK_OP(seen->wrong * 100, <=, seen->ran < 500 ? 500 : seen->ran);
	}
	/*
	 * Among the samples are times at which the host's kernel has just switched to the vCPU's
	 * thread, and its CPU clock advances, but the vCPU does not count yet (docs/locks.md). One
	 * of the vCPUs may have most of them.
	 */
	CHECK_OP(missed * 20, <=, lost);
}

static void need_strangers(void)
{
	char word[8];

	if (!option("steal", word, sizeof(word)))
		test_skip("needs steal on the command line, on a busy host");
}

enum where { SAME_SPACE, OTHER_SPACE, OTHER_SPACE_PAUSES };

/*
 * On a host where other programs use all processors (steal on the command line): the layer reports
 * a vCPU that has lost its processor to them as preempted, and does not report one that runs.
 */
static void preempted_by_stranger(u64 where)
{
	const struct asking how = {
		.in_turn = 1, .sample = 20 * NS_PER_US, .pauses = where == OTHER_SPACE_PAUSES,
	};
	struct seen seen;

	need_strangers();
	runner_start(&runners[0], 1, where != SAME_SPACE);
	seen_start(&seen, &runners[0], 1);
	look_at(&seen, &how);
	runner_end(&runners[0], 1);
	check_seen(&seen, 1);
	CHECK_OP(seen.ran, >, 100);
}

TEST_OF(preempted_stranger, "lock.preempted.stranger", preempted_by_stranger, SAME_SPACE, 2, 0,
	LOCK_PREEMPTED);
TEST_OF(preempted_elsewhere, "lock.preempted.other_space", preempted_by_stranger,
	OTHER_SPACE, 2, 0, LOCK_PREEMPTED);
TEST_OF(preempted_pauses, "lock.preempted.after_pauses", preempted_by_stranger,
	OTHER_SPACE_PAUSES, 2, 0, LOCK_PREEMPTED);

/*
 * The caller asks in turn about two preempted vCPUs, each in a space of its own. Both together cost
 * it no more looks than one. vCPU 2 does nothing: where the host has two processors, it is on the
 * caller's.
 */
TEST(preempted_in_turn, "lock.preempted.in_turn", 4, 0, LOCK_PREEMPTED)
{
	static const u32 vcpus[RUNNERS] = { 1, 3 };
	const struct asking how = { .in_turn = RUNNERS, .sample = 3 * NS_PER_US };
	struct seen seen[RUNNERS];
	u64 gaps = 0, early = 0, ran = 0;
	u32 i;

	need_strangers();
	for (i = 0; i < RUNNERS; i++)
		runner_start(&runners[i], vcpus[i], true);
	for (i = 0; i < RUNNERS; i++)
		seen_start(&seen[i], &runners[i], vcpus[i]);
	look_at(seen, &how);
	for (i = 0; i < RUNNERS; i++)
		runner_end(&runners[i], vcpus[i]);
	for (i = 0; i < RUNNERS; i++) {
		print("# vCPU %u: %llu looks, %llu of them soon after one, %llu too soon\n",
		      seen[i].vcpu, seen[i].looks, seen[i].gaps, seen[i].early);
		gaps += seen[i].gaps;
		early += seen[i].early;
	}
	check_seen(seen, RUNNERS);
	for (i = 0; i < RUNNERS; i++)
		ran += seen[i].ran;
	/* The host may give one of them its processor for short times only. */
	CHECK_OP(ran, >, 100);
	/* There are none where a look costs nothing. */
	CHECK_OP(early * 10, <=, gaps);
}

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

	runner_start(&runners[0], 1, true);
	for (i = 0; i < SHORT_WAITS; i++) {
		longest[i] = wait_shortly(&least);
		delay_ns(BETWEEN_WAITS_NS);
	}
	runner_end(&runners[0], 1);
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
	runner_start(&runners[0], 1, false);
	start = now();
	while (now() - start < NS_PER_S) {
		count = READ_ONCE(runners[0].count);
		CHECK_RESULT(vmi.lock_yield(1), 0);
		moves += READ_ONCE(runners[0].count) != count;
		yields++;
	}
	runner_end(&runners[0], 1);
	print("# %llu yields, the other vCPU ran after %llu\n", yields, moves);
	CHECK_OP(moves * 4, >, yields);
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
	runner_start(&runners[0], 1, false);
	/* No vCPU waits for the other one. */
	runner_start(&runners[1], 2, false);
	set_irq_handler(VECTOR_MASKED, masked);
	CHECK_RESULT(send_ipi(0, VECTOR_MASKED), 0);
	start = now();
	while (now() - start < 2 * NS_PER_S) {
		u64 count = READ_ONCE(runners[0].count), at = now();

		CHECK_RESULT(vmi.lock_yield(1), 0);
		moves += READ_ONCE(runners[0].count) != count;
		longest = MAX(longest, now() - at);
		yields++;
	}
	runner_end(&runners[0], 1);
	runner_end(&runners[1], 2);
	print("# %llu yields, the named vCPU ran after %llu; the longest took %llu us\n", yields,
	      moves, longest / NS_PER_US);
	/* The share that docs/locks.md states. */
	CHECK_OP(moves * 4, >, yields * 3);
}
