// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Waiting, locking and giving up. */
#include "host/host.h"
#include "vcpu/irq.h"

s64 futex_wait(u32 *word, u32 value, u64 deadline)
{
	struct host_timespec until;

	if (deadline == U64_MAX)
		return host4(futex, word, FUTEX_WAIT, value, 0);
	until.sec = (s64)(deadline / 1000000000);
	until.nsec = (s64)(deadline % 1000000000);
	return host6(futex, word, FUTEX_WAIT_BITSET, value, &until, 0, 0xffffffff);
}

bool lock_try(struct lock *lock)
{
	u32 old = 0;

	return __atomic_compare_exchange_n(&lock->word, &old, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/*
 * Uncontended: one locked instruction each way. A holder may be preempted or stopped by the
 * host at any point, so waiting sleeps after a short spin.
 */
void lock_take(struct lock *lock)
{
	u32 spins;

	for (spins = 0; spins < 200; spins++) {
		if (lock_try(lock))
			return;
		cpu_relax();
	}
	while (__atomic_exchange_n(&lock->word, 2, __ATOMIC_ACQUIRE))
		futex_wait(&lock->word, 2, U64_MAX);
}

void lock_release(struct lock *lock)
{
	if (__atomic_exchange_n(&lock->word, 0, __ATOMIC_RELEASE) == 2)
		futex_wake(&lock->word, 1);
}

#ifdef PROCESS_STEPS
void step(void)
{
	static u64 state = 88172645463325252ULL;
	u64 random, i;
	u32 never = 0;

	/* Threads may tear it: any value will do. */
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	random = state ^ rdtsc();
	switch (random & 63) {
	case 0:
		futex_wait(&never, 0, now_ns() + (random >> 8 & 0x3ffff));
		break;
	case 1 ... 3:
		host0(sched_yield);
		break;
	case 4 ... 11:
		for (i = random >> 8 & 0xfff; i; i--)
			cpu_relax();
		break;
	}
}
#endif

/* Appends text, and value in hexadecimal, to the message for the monitor. */
static u32 message_add(u32 n, const char *text, u64 value)
{
	static const char digits[] = "0123456789abcdef";
	u8 *out = shared->s.message;
	int shift;

	while (n < 200 && *text)
		out[n++] = (u8)*text++;
	out[n++] = ' ';
	out[n++] = '0';
	out[n++] = 'x';
	for (shift = 60; shift >= 0; shift -= 4)
		if (value >> shift || !shift)
			out[n++] = (u8)digits[value >> shift & 15];
	out[n] = 0;
	return n;
}

static noreturn void give_up(void)
{
	static u32 never;
	u32 old = PHV_VM_RUNNING;

	__atomic_compare_exchange_n(&shared->s.vm_state, &old, PHV_VM_FATAL, false,
				    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
	__atomic_fetch_add(&shared->s.doorbell, 1, __ATOMIC_SEQ_CST);
	futex_wake(&shared->s.doorbell, 1);
	/* The monitor kills all processes; until then nothing of the guest runs here. */
	for (;;)
		futex_wait(&never, 0, U64_MAX);
}

noreturn void fatal(const char *message, u64 value)
{
	message_add(0, message, value);
	give_up();
}

noreturn void fatal_at(const char *message, u64 value, u64 rip)
{
	message_add(message_add(0, message, value), ", at", rip);
	give_up();
}
