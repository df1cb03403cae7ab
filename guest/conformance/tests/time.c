// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* The three times, the wall clock, the clock page. */
#include "clock_page.h"
#include "space.h"
#include "test.h"

static struct vmi_times times(void)
{
	struct vmi_times t;

	vmi.time_read(&t);
	return t;
}

TEST(time_sum, "time.read.sum", 1, 0, TIME_READ)
{
	struct vmi_times last = times();
	u32 i;

	for (i = 0; i < 5000; i++) {
		struct vmi_times t = times();

		CHECK_EQ(t.real, t.available + t.stolen);
		CHECK_OP(t.real, >=, last.real);
		CHECK_OP(t.available, >=, last.available);
		CHECK_OP(t.stolen, >=, last.stolen);
		last = t;
	}
}

TEST(time_progress, "time.read.progress", 1, 0, TIME_READ, TIME_FREQUENCY)
{
	u64 hz = vmi.time_frequency(), tsc, real, elapsed, expected;
	u32 tries;

	/* Between a counter of some kHz and 100 GHz. */
	CHECK_OP(hz, >, 1000000);
	CHECK_OP(hz, <, 100000000000);
	CHECK_EQ(vmi.time_frequency(), hz);
	/* The vCPU may lose its processor between two reads: take the best of several. */
	for (tries = 0;; tries++) {
		tsc = read_tsc();
		real = now();
		delay_ns(5 * NS_PER_MS);
		tsc = read_tsc() - tsc;
		elapsed = now() - real;
		expected = tsc * 1000 / (hz / 1000000);
		if (elapsed > expected - expected / 100 &&
		    elapsed < expected + expected / 100)
			break;
		if (tries == 10)
			FAIL("%llu ns passed in %llu cycles at %llu Hz", elapsed,
			     tsc, hz);
	}
}

/*
 * On a host whose processors have other users (steal on the command line), a part of the time is
 * stolen, whatever the vCPU does. This is most likely where the vCPU might have to wait.
 */
TEST(time_stolen, "time.read.stolen_by_others", 1, 0, TIME_READ)
{
	static struct space spaces[2];
	struct vmi_times first, last;
	char word[8];
	u64 i, rounds;

	if (!option("steal", word, sizeof(word)))
		test_skip("needs steal on the command line, on a busy host");
	space_create(&spaces[0]);
	space_create(&spaces[1]);
	first = times();
	for (rounds = 0; now() - first.real < NS_PER_S; rounds++)
		for (i = 0; i < 64; i++)
			space_load(&spaces[i & 1]);
	last = times();
	space_load(NULL);
	space_destroy(&spaces[0]);
	space_destroy(&spaces[1]);
	print("# %llu switches, of %llu ms were stolen %llu\n", rounds * 64,
	      (last.real - first.real) / NS_PER_MS,
	      (last.stolen - first.stolen) / NS_PER_MS);
	CHECK_OP(last.stolen - first.stolen, >, (last.real - first.real) / 5);
}

static struct {
	u64 turn, value, failures, rounds, end;
	bool stop;
} relay;

static void pass_time(void *argument)
{
	u64 me = this_vcpu(), count = (u64)argument, i;

	for (i = 0; i < relay.rounds; i++) {
		struct vmi_times t;

		WAIT_UNTIL(atomic_load(&relay.turn) % count == me ||
			   atomic_load(&relay.stop));
		if (relay.stop)
			return;
		t = times();
		if (t.real < relay.value || t.real != t.available + t.stolen)
			relay.failures++;
		relay.value = t.real;
		if (t.real > relay.end)
			atomic_store(&relay.stop, true);
		atomic_add(&relay.turn, 1);
	}
}

static void relay_time(u32 vcpus, u64 rounds)
{
	u64 i;

	memset(&relay, 0, sizeof(relay));
	relay.rounds = rounds;
	relay.end = now() + ROUNDS_BUDGET;
	for (i = 1; i < vcpus; i++)
		run_on(i, pass_time, (void *)(u64)vcpus);
	pass_time((void *)(u64)vcpus);
	for (i = 1; i < vcpus; i++)
		wait_for(i);
	if (!relay.stop)
		CHECK_EQ(relay.turn, rounds * vcpus);
	CHECK_OP(relay.turn, >=, vcpus);
	CHECK_EQ(relay.failures, 0);
}

/* 10,000 samples passed from one vCPU to the other. */
TEST(time_relay, "time.read.monotonic_across", 2, 0, TIME_READ)
{
	relay_time(2, 5000);
}

TEST(time_relay_all, "time.read.monotonic_all", 3, 0, TIME_READ)
{
	relay_time(MIN(machine.vcpus_online, 4), 30);
}

TEST(wallclock, "time.wallclock.progress", 1, 0, TIME_WALLCLOCK)
{
	u64 wall, real, wall_elapsed, real_elapsed, tries, last = 0;

	for (tries = 0; tries < 1000; tries++) {
		wall = vmi.time_wallclock();
		CHECK_OP(wall, >=, last);
		last = wall;
	}
	for (tries = 0;; tries++) {
		wall = vmi.time_wallclock();
		real = now();
		delay_ns(5 * NS_PER_MS);
		wall_elapsed = vmi.time_wallclock() - wall;
		real_elapsed = now() - real;
		if (wall_elapsed + NS_PER_MS > real_elapsed &&
		    wall_elapsed < real_elapsed + NS_PER_MS)
			break;
		if (tries == 10)
			FAIL("%llu ns of wall clock in %llu ns", wall_elapsed,
			     real_elapsed);
	}
}

/* The date is that of the host, which names it on the command line just before the start. */
TEST(wallclock_date, "time.wallclock.date", 1, 0, TIME_WALLCLOCK)
{
	u64 date = option_number("date"), wall = vmi.time_wallclock() / NS_PER_S;

	if (!date)
		test_skip("needs date=SECONDS on the command line");
	/* Real-time clocks count seconds. A slow host takes its time to start the machine. */
	CHECK_OP(wall + 2, >=, date);
	CHECK_OP(wall, <=, date + now() / NS_PER_S + 600);
}

TEST(wallclock_updated, "time.wallclock_updated.once", 1, 0, TIME_WALLCLOCK_UPDATED)
{
	int result = vmi.time_wallclock_updated();

	CHECK(result == 0 || result == 1);
	/* Reported once. A second jump in the same instant is not tested. */
	CHECK_RESULT(vmi.time_wallclock_updated(), 0);
}

/* What the wall clock has gained on real time, ns; the two are not read at the same moment. */
static s64 gained(u64 before)
{
	return (s64)(vmi.time_wallclock() - now() - before);
}

/*
 * A host that steps its clock once, by a number of seconds on the command line: the wall clock and
 * the clock page follow, the call tells it once, and real time knows nothing of it.
 */
TEST(wallclock_step, "time.wallclock_updated.step", 1, 0, TIME_WALLCLOCK_UPDATED, TIME_WALLCLOCK,
     TIME_SET_CLOCK)
{
	u64 step = option_number("step") * NS_PER_S, start = now(), last = start, before, tsc, page;
	u64 gpa = alloc_page();
	struct vmi_clock *clock = to_linear(gpa);

	if (!step)
		test_skip("needs step=SECONDS on the command line, and such a host");
	CHECK_RESULT(vmi.time_set_clock(clock, gpa), 0);
	vmi.time_wallclock_updated();
	before = vmi.time_wallclock() - now();
	while (gained(before) < (s64)(step / 2)) {
		u64 real = now();

		/* This vCPU may lose its processor, but not for half of the step. */
		CHECK_OP(real, >=, last);
		CHECK_OP(real - last, <, step / 2);
		last = real;
		watch("the step of the wall clock");
	}
	CHECK(gained(before) < (s64)(step + step / 2));
	WAIT_UNTIL(vmi.time_wallclock_updated() == 1);
	CHECK_RESULT(vmi.time_wallclock_updated(), 0);
	CHECK_OP(now() - start, <, step / 2);
	page = clock_page_time(clock, &tsc);
	CHECK_OP(page - start, <, step / 2);
	page += clock->wall_ns;
	before = vmi.time_wallclock();
	CHECK_OP(page + NS_PER_S, >, before);
	CHECK_OP(before + NS_PER_S, >, page);
	CHECK_RESULT(vmi.time_set_clock(NULL, 0), 0);
	free_page(gpa);
}

TEST(clock_page, "time.set_clock.agrees", 1, 0, TIME_SET_CLOCK)
{
	u64 gpa = alloc_page(), i, best = ~0ull, off = 0, tsc;
	struct vmi_clock *clock = to_linear(gpa + 128);

	CHECK_RESULT(vmi.time_set_clock(clock, gpa + 128), 0);
	CHECK(clock->flags & 1);
	CHECK_OP(clock->shift, <, 64);
	CHECK_EQ(clock->sequence & 1, 0);
	/* Between two reads of the time; within 1 us if those are close. */
	for (i = 0; i < 2000; i++) {
		u64 before = now(), mine = clock_page_time(clock, &tsc);
		u64 after = now();

		if (mine + NS_PER_US < before || mine > after + NS_PER_US)
			off++;
		if (after - before < best)
			best = after - before;
	}
	CHECK_EQ(off, 0);
	/* Wall clock: within a millisecond of the call. */
	i = clock->wall_ns + clock_page_time(clock, &tsc);
	tsc = vmi.time_wallclock();
	CHECK_OP(tsc + NS_PER_MS, >, i);
	CHECK_OP(i + 50 * NS_PER_MS, >, tsc);
	CHECK_RESULT(vmi.time_set_clock(NULL, 0), 0);
	free_page(gpa);
}

/*
 * The host adjusts its clock about once a second. The page follows: time decreases neither at the
 * adjustment nor between page and call.
 */
TEST(clock_follows, "time.set_clock.follows", 1, 0, TIME_SET_CLOCK)
{
	u64 gpa = alloc_page(), start = now(), last = 0, off = 0, far = 0, tsc;
	struct vmi_clock *clock = to_linear(gpa);

	CHECK_RESULT(vmi.time_set_clock(clock, gpa), 0);
	while (now() - start < 1300 * NS_PER_MS) {
		u64 before = now(), mine = clock_page_time(clock, &tsc), after = now();

		if (mine + NS_PER_US < before || mine > after + NS_PER_US) {
			off++;
			far = MAX(far, mine < before ? before - mine : mine - after);
		}
		CHECK_OP(mine, >=, last);
		last = mine;
		delay_ns(100 * NS_PER_US);
	}
	if (off)
		FAIL("%llu times off by more than 1 us, once by %llu ns", off, far);
	CHECK_RESULT(vmi.time_set_clock(NULL, 0), 0);
	free_page(gpa);
}

TEST(clock_errors, "time.set_clock.errors", 1, 0, TIME_SET_CLOCK)
{
	u64 gpa = alloc_page();
	u8 *page = to_linear(gpa);

	CHECK_RESULT(vmi.time_set_clock((void *)(page + 8), gpa + 8), -VMI_EINVAL);
	CHECK_RESULT(vmi.time_set_clock((void *)(page + 64), gpa), -VMI_EINVAL);
	CHECK_RESULT(vmi.time_set_clock((void *)page, gpa + 64), -VMI_EINVAL);
	CHECK_EQ(*(u64 *)page, 0);
	free_page(gpa);
}
