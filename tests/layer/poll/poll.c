// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 *	poll TEST
 *
 * vcpu/poll.c of the process layer by itself: this program has its clocks, the host's calls and the
 * shared area, so each halt takes exactly as long as a test says, whatever else the host runs.
 * Prints what is wrong and exits with 1.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "host/call.h"
#include "host/clock.h"
#include "state/cpu.h"
#include "vcpu/poll.h"

/* The names of <sys/mman.h> are in host/call.h. */
#define MAP_FIXED_NOREPLACE 0x100000
void *mmap(void *start, size_t size, int protection, int flags, int file, long offset);

#define US 1000
/* Host CPUs. */
#define HERE 2
#define ELSEWHERE 3
/* Time between two looks, ns. */
#define LOOK 100
/* Halts without a look after a gap, at first and at most: tuning.md. */
#define PAUSE 64
#define PAUSE_MOST 4096

static u64 clock_ns = 1000000000;
/* How long each yield takes, ns, and how many there were. */
static u64 yield_ns = 200;
static u32 yields;
static struct vcpu *v, *other;

u64 now_ns(void)
{
	clock_ns += LOOK;
	return clock_ns;
}

/* A cycle is a ns. */
u64 cycles_ns(u64 cycles)
{
	return cycles;
}

s64 ph_host_call(u64 nr, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f)
{
	(void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
	if (nr != HOST_sched_yield) {
		printf("the host call %llu\n", (unsigned long long)nr);
		exit(1);
	}
	yields++;
	clock_ns += yield_ns;
	return 0;
}

/* The layer's own code reads this program's clock. The inline function has been defined by now. */
#define rdtsc() clock_ns
#include "vcpu/poll.c"

static void area(u64 start, u64 size)
{
	void *at = mmap(to_pointer(start), size, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (at != to_pointer(start)) {
		printf("no memory at %#llx\n", (unsigned long long)start);
		exit(1);
	}
}

/* Two vCPUs, of which the second one is halted, and a device that looks for work of the first. */
static void begin(void)
{
	area(PHV_SHARED, PHV_SHARED_SIZE);
	area(PHV_STACKS, 2 * PHV_STACK_SIZE);
	v = vcpu_at(0);
	other = vcpu_at(1);
	v->s.deadline_ns = U64_MAX;
	other->number = 1;
	other->s.state = PHV_VCPU_HALTED;
	other->run.state = VMI_RUN_HALTED;
	shared->s.vcpu_count = 2;
	shared->s.vcpu_cpu[0] = HERE;
	shared->s.vcpu_cpu[1] = ELSEWHERE;
	shared->s.device_count = 1;
	shared->s.clock.tsc_hz = 1000000000;
	device_at(0)->looks = 1 + ELSEWHERE;
	device_at(0)->route = 0 << 8 | 0x40;
}

enum halt {
	SLEPT,		/* without a look */
	WON,
	LOST,
};

/*
 * A halt that an interrupt ends after a number of ns. The sender notes when it came, as the monitor
 * does.
 */
static enum halt halt(u64 comes)
{
	u64 end = clock_ns + comes;
	bool won = false;

	v->woken = 0;
	if (!poll_begin(v))
		return SLEPT;
	do {
		won = clock_ns >= end;
		if (won)
			v->s.told = end;
	} while (!won && poll_on(v));
	poll_end(v, won);
	return won ? WON : LOST;
}

/* Halts until one looks. Returns how many did not. */
static u32 pause(u64 comes)
{
	u32 slept = 0;

	while (halt(comes) == SLEPT)
		if (++slept > 100000) {
			printf("it never looks again\n");
			exit(1);
		}
	return slept;
}

#define CHECK(condition)							\
	do {									\
		if (!(condition)) {						\
			printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);	\
			exit(1);						\
		}								\
	} while (0)

/* As long as no other thread wants the processor, each halt looks. */
static void device(void)
{
	u32 i;

	for (i = 0; i < 1000; i++)
		CHECK(halt(20 * US) == WON);
	CHECK(yields > 1000);
	CHECK(v->s.polls_won == 1000 && !v->s.polls_lost);
	/* Nothing comes, and the device still looks. */
	i = clock_ns / US;
	CHECK(halt(1000 * US) == LOST);
	CHECK(clock_ns / US - i <= 201);
	CHECK(halt(20 * US) == WON);
}

/* A program that answers the device has this processor for a part of each round trip. */
static void answer(void)
{
	u32 i;

	yield_ns = 40 * US;
	for (i = 0; i < 1000; i++)
		CHECK(halt(yield_ns) == WON);
	/* Its time is not the vCPU's, which would look stolen. */
	yield_ns = 15 * US;
	thread_of(v)->unsampled = 0;
	CHECK(halt(180 * US) == WON);
	CHECK(thread_of(v)->unsampled < 40 * US);
}

/* Others have the processor when the interrupt comes, for a moment. */
static void waits(void)
{
	u32 expected;

	yield_ns = 100 * US;
	CHECK(halt(50 * US) == WON);
	for (expected = PAUSE; expected < PAUSE_MOST; expected *= 2)
		CHECK(pause(50 * US) == expected);
	CHECK(pause(50 * US) == PAUSE_MOST);
	CHECK(pause(50 * US) == PAUSE_MOST);
	/* Another vCPU's interrupt counts as well. */
	v->poll_pause = 0;
	v->poll_backoff = 0;
	yield_ns = 200;
	CHECK(poll_begin(v));
	v->woken = rdtsc() - 100 * US;
	poll_end(v, true);
	CHECK(pause(20 * US) == PAUSE);
}

/* Others keep the processor for a time slice. */
static void slices(void)
{
	u32 expected;

	yield_ns = 3000 * US;
	CHECK(halt(yield_ns + 20 * US) == LOST);
	for (expected = PAUSE; expected < PAUSE_MOST; expected *= 2)
		CHECK(pause(yield_ns) == expected);
	CHECK(pause(yield_ns) == PAUSE_MOST);
	/* They have gone: the looks come back, and the longer, the less the next gap costs. */
	yield_ns = 200;
	CHECK(pause(20 * US) == PAUSE_MOST);
	for (expected = 0; expected < 100; expected++)
		CHECK(halt(20 * US) == WON);
	yield_ns = 3000 * US;
	CHECK(halt(20 * US) == WON);
	CHECK(pause(20 * US) < PAUSE);
}

/* Not where the other side cannot come. */
static void conditions(void)
{
	struct phv_device *d = device_at(0);

	CHECK(halt(20 * US) == WON);
	d->looks = 1 + HERE;
	CHECK(halt(20 * US) == SLEPT);
	d->looks = 0;
	CHECK(halt(20 * US) == SLEPT);
	d->looks = 1 + ELSEWHERE;
	d->sleeping = 1;
	CHECK(halt(20 * US) == SLEPT);
	d->sleeping = 0;
	d->route = 1 << 8 | 0x40;
	CHECK(halt(20 * US) == SLEPT);
	d->route = 0x40;
	CHECK(halt(20 * US) == WON);
	/* Another vCPU runs on this CPU, and then elsewhere. */
	other->s.state = PHV_VCPU_RUNNING;
	shared->s.vcpu_cpu[1] = HERE;
	CHECK(halt(20 * US) == SLEPT);
	shared->s.vcpu_cpu[1] = ELSEWHERE;
	CHECK(halt(20 * US) == WON);
	shared->s.vcpu_cpu[0] = 0xffffffff;
	CHECK(halt(20 * US) == SLEPT);
	shared->s.vcpu_cpu[0] = HERE;
	shared->s.flags = PHV_FLAG_NO_POLLS;
	CHECK(halt(20 * US) == SLEPT);
}

/* Looks for another vCPU do not yield, so in a gap some other thread had to wait. */
static void vcpus(void)
{
	u32 expected = PAUSE, i;

	device_at(0)->looks = 0;
	other->s.state = PHV_VCPU_RUNNING;
	CHECK(halt(20 * US) == SLEPT);
	for (i = 0; i < 6; i++)
		poll_learn(v, rdtsc(), rdtsc() + 20 * US);
	CHECK(halt(20 * US) == WON);
	CHECK(!yields);
	for (i = 0; i < 9; i++) {
		v->poll_pause = 0;
		CHECK(poll_begin(v));
		clock_ns += 30 * US;
		CHECK(!poll_on(v));
		poll_end(v, false);
		CHECK(v->poll_pause == expected);
		CHECK(halt(20 * US) == SLEPT);
		expected = expected < PAUSE_MOST ? 2 * expected : PAUSE_MOST;
	}
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} tests[] = {
		{ "device", device },
		{ "answer", answer },
		{ "late", waits },
		{ "slices", slices },
		{ "conditions", conditions },
		{ "vcpus", vcpus },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(tests); i++)
		if (argc == 2 && !strcmp(argv[1], tests[i].name)) {
			begin();
			tests[i].run();
			return 0;
		}
	printf("there is no such test\n");
	return 2;
}
