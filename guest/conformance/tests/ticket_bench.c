// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * bench=ticket: the time of a fixed number of critical sections over all vCPUs, which contend for
 * one ticket lock. One line, `ticket NS SECTIONS SLOW KICKED`: the time, the number of sections,
 * how often a slow path was taken, and the kicks. sections=N says how many; locks=spin has no slow
 * path, and so neither lock.wait nor lock.kick.
 */
#include "ticket_lock.h"
#include "test.h"

#define SECTIONS	1600
#define BENCH_DEADLINE	(3600 * NS_PER_S)
/*
 * Work in a section, and after it, in stores: some 100 us each. So 100 sections of a vCPU take
 * several of the host's time slices, which are up to 4 ms. A vCPU whose work fits into one slice
 * does all of it there, while no other one contends for the lock.
 */
#define WORK_INSIDE	400000
#define WORK_OUTSIDE	400000

static union ticket_lock the_lock;
static u64 value, scratch[MAX_VCPUS * 8];
static u64 arrived, done, start, end;

/* Work is counted, not timed: a vCPU without a processor does none. */
static void work(u64 *place, u64 count)
{
	for (; count; count--)
		WRITE_ONCE(*place, count);
}

/* The time is that from when the last vCPU has begun to when the last one is done. */
static void take_often(void *argument)
{
	u64 sections = (u64)argument, *place = &scratch[this_vcpu() * 8];

	if (atomic_add(&arrived, 1) == machine.vcpus_online)
		atomic_store(&start, now());
	WAIT_UNTIL(atomic_load(&start));
	for (; sections; sections--) {
		ticket_take(&the_lock);
		value++;
		work(place, WORK_INSIDE);
		ticket_release(&the_lock);
		work(place, WORK_OUTSIDE);
	}
	if (atomic_add(&done, 1) == machine.vcpus_online)
		end = now();
}

bool run_ticket_bench(void)
{
	char word[8];
	bool spins = option("locks", word, sizeof(word)) && !strcmp(word, "spin");
	u64 sections = option_number("sections"), each;
	u32 i;

	each = MAX((sections ? sections : SECTIONS) / machine.vcpus_online, 1);
	ticket_reset(&the_lock, spins);
	set_deadline(BENCH_DEADLINE);
	for (i = 1; i < machine.vcpus_online; i++)
		run_on(i, take_often, (void *)each);
	take_often((void *)each);
	for (i = 1; i < machine.vcpus_online; i++)
		wait_for(i);
	print("ticket %llu %llu %llu %llu\n", end - start, value, ticket_counts.slow,
	      ticket_counts.kicked);
	return value == each * machine.vcpus_online;
}
