// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * A ticket lock with a slow path, as kernels had it for hypervisors: a vCPU that waits too long
 * says for which ticket, sets a flag in the lock, and sleeps; an unlock that sees the flag kicks
 * the vCPU with the next ticket, and no other.
 */
#include "test.h"

#define SLOW	1		/* in the tail: some vCPU may sleep */
#define NEXT	2		/* from one ticket to the next */
#define SPINS	64

union ticket_lock {
	u32 both;
	struct {
		u16 head, tail;
	};
};

/* What a vCPU sleeps for. */
static struct {
	union ticket_lock *lock;
	u16 want;
} waiting[MAX_VCPUS];
static u64 waiters[MAX_VCPUS / 64 + 1];

static struct {
	u64 slow, pickup, kicked;
} counts;

static void wait_for_ticket(union ticket_lock *lock, u16 want)
{
	u32 me = this_vcpu();
	u8 same = 0;

	/* The ticket is valid whenever the lock is there. This processor keeps stores in order. */
	WRITE_ONCE(waiting[me].lock, NULL);
	WRITE_ONCE(waiting[me].want, want);
	WRITE_ONCE(waiting[me].lock, lock);
	__atomic_fetch_or(&waiters[me / 64], 1ull << me % 64, __ATOMIC_SEQ_CST);
	__atomic_fetch_or(&lock->tail, SLOW, __ATOMIC_SEQ_CST);
	atomic_add(&counts.slow, 1);
	/*
	 * An unlock before the flag was there has moved the head. One after it kicks this vCPU, and
	 * the kick is not lost if it comes before the wait.
	 */
	if (atomic_load(&lock->head) == want)
		atomic_add(&counts.pickup, 1);
	else
		vmi.lock_wait(&same, 0);
	__atomic_fetch_and(&waiters[me / 64], ~(1ull << me % 64), __ATOMIC_SEQ_CST);
	WRITE_ONCE(waiting[me].lock, NULL);
}

static void ticket_take(union ticket_lock *lock)
{
	u16 want = __atomic_fetch_add(&lock->tail, NEXT, __ATOMIC_SEQ_CST) & ~SLOW;
	u32 i;

	for (;;) {
		for (i = 0; i < SPINS; i++) {
			if (atomic_load(&lock->head) == want)
				return;
			pause();
		}
		wait_for_ticket(lock, want);
		watch("a ticket");
	}
}

static void ticket_release(union ticket_lock *lock)
{
	u16 next = __atomic_add_fetch(&lock->head, NEXT, __ATOMIC_SEQ_CST);
	union ticket_lock free = { .head = next, .tail = next | SLOW };
	u32 i;

	if (!(atomic_load(&lock->tail) & SLOW))
		return;
	/* Nobody has or wants it: the flag goes, unless somebody comes. */
	if (__atomic_compare_exchange_n(&lock->both, &free.both,
					((u32)next << 16) | next, false, __ATOMIC_SEQ_CST,
					__ATOMIC_SEQ_CST))
		return;
	for (i = 0; i < machine.vcpus_online; i++) {
		if (!(READ_ONCE(waiters[i / 64]) & 1ull << i % 64) ||
		    READ_ONCE(waiting[i].lock) != lock || READ_ONCE(waiting[i].want) != next)
			continue;
		CHECK_RESULT(vmi.lock_kick(i), 0);
		atomic_add(&counts.kicked, 1);
		break;
	}
}

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
		for (n = 0; n < (i % 8 ? 4 : 4 * SPINS); n++)
			pause();
		atomic_add(&inside, -1);
		ticket_release(&the_lock);
		atomic_add(&rounds_done, 1);
	}
}

TEST(ticket_slow_path, "lock.kick.ticket_slow_path", 2, 0, LOCK_KICK, LOCK_WAIT)
{
	u64 rounds = machine.vcpus_online > 4 ? 20 : 1000;
	u32 i;

	the_lock.both = 0;
	value = inside = slow_takes = rounds_done = 0;
	end = now() + ROUNDS_BUDGET;
	memset(&counts, 0, sizeof(counts));
	memset(waiters, 0, sizeof(waiters));
	memset(waiting, 0, sizeof(waiting));
	for (i = 1; i < machine.vcpus_online; i++)
		run_on(i, take_often, (void *)rounds);
	take_often((void *)rounds);
	for (i = 1; i < machine.vcpus_online; i++)
		wait_for(i);
	CHECK_EQ(value, rounds_done);
	CHECK_OP(value, >=, machine.vcpus_online);
	CHECK_OP(counts.kicked, <=, counts.slow);
	CHECK_EQ(slow_takes, 0);
	CHECK_EQ(the_lock.head, the_lock.tail & ~SLOW);
	print("# slow %llu, of them picked up %llu; kicked %llu\n", counts.slow, counts.pickup,
	      counts.kicked);
}
