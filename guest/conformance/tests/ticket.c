// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* A ticket lock whose waiters sleep in the layer, contended by all vCPUs. */
#include "ticket_lock.h"
#include "test.h"

static union ticket_lock the_lock;
static u64 value, inside, slow_takes, rounds_done, end;

static void take_often(void *argument)
{
	u64 rounds = (u64)argument, i, n;

	for (i = 0; i < rounds && now() < end; i++) {
		u64 start = now();

		ticket_take(&the_lock);
		/* A kick that is lost shows as a wait until something else ends it. */
		if (now() - start > 5 * NS_PER_S)
			slow_takes++;
		CHECK_EQ(atomic_add(&inside, 1), 1);
		value++;
		/* Longer than the others spin, now and then. */
		for (n = 0; n < (i % 8 ? 4 : 4 * TICKET_SPINS); n++)
			pause();
		atomic_add(&inside, -1);
		ticket_release(&the_lock);
		atomic_add(&rounds_done, 1);
	}
}

TEST(ticket_slow_path, "lock.kick.ticket_slow_path", 2, 0, LOCK_KICK, LOCK_WAIT)
{
	u64 rounds = machine.vcpus_online > 4 ? 20 : 1000;
	char word[8];
	bool shared = option("shared", word, sizeof(word));
	u32 i;

	/* Where vCPUs share a processor, the first one would be done before another began. */
	if (shared)
		rounds = ~0ull;
	ticket_reset(&the_lock, false);
	value = inside = slow_takes = rounds_done = 0;
	end = now() + ROUNDS_BUDGET;
	for (i = 1; i < machine.vcpus_online; i++)
		run_on(i, take_often, (void *)rounds);
	take_often((void *)rounds);
	for (i = 1; i < machine.vcpus_online; i++)
		wait_for(i);
	print("# slow %llu, of them picked up %llu; kicked %llu\n", ticket_counts.slow,
	      ticket_counts.pickup, ticket_counts.kicked);
	CHECK_EQ(value, rounds_done);
	CHECK_OP(value, >=, machine.vcpus_online);
	CHECK_OP(ticket_counts.kicked, <=, ticket_counts.slow);
	CHECK_EQ(slow_takes, 0);
	CHECK(ticket_free(&the_lock));
	/* A vCPU with the lock loses its processor to one that then has to wait. */
	if (shared)
		CHECK_OP(ticket_counts.kicked, >, 0);
}
