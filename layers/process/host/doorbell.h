/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * How threads wake each other, in the layer and in the monitor: one protocol for all of them.
 *
 *	waker				sleeper
 *	W1  publish work		S1  announce the sleep
 *	W2  full barrier		S2  full barrier
 *	W3  read the announcement,	S3  look for work again,
 *	    wake if it is there		    futex_wait if there is none
 *
 * Each side stores, then loads what the other side stores. Without the barriers both loads could
 * be done before both stores are visible (x86 delays stores past loads): the sleeper would sleep
 * although there is work, and no wake would follow. With them at least one side sees the other.
 * The futex closes the gap between S3 and the sleep: its word changes with the work or with the
 * wake.
 *
 *	what			W1			W3 reads	S1 stores
 *	device thread		phv_device.notify	.sleeping	.sleeping
 *	kick thread		kick_wanted		kick_sleeping	kick_sleeping
 *	alarm thread		deadline_ns		alarm_next_ns	alarm_next_ns
 *	halted vCPU		pending, kick		state		state
 *	vCPU in a hand-over	pending			owner		owner
 *	masked line		route			raised		raised
 *	flush elsewhere		proc.flush_wanted	proc.loaded	proc.loaded
 *	kernel flush		kernel_generation	proc.loaded	proc.loaded
 *	clock of a wake-up	wake_lock		asleep		asleep
 *
 * A halted vCPU that looks for work before it sleeps (vcpu/poll.c) has set `polling`, too, and
 * senders that read it do not ring. It takes `polling` back before S2.
 *
 * The doorbell needs no announcement: its futex word counts the rings, and the sleeper reads it
 * before it looks for work.
 *
 * W2 and S2 are a SEQ_CST read-modify-write (a locked instruction) or fence(). The monitor's halves
 * are in monitor/wakeup; its tests run both halves under loom, which tries every order that the
 * memory model allows.
 */
#ifndef PROCESS_DOORBELL_H
#define PROCESS_DOORBELL_H

#include "host/futex.h"
#include "host/step.h"
#include "state/state.h"

/* Counts a futex word up and wakes the thread that waits on it. W1 and W2 in one. */
static inline void ring(u32 *word)
{
	__atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
	futex_wake(word, 1);
}

/* Makes the monitor check the console, the machine's state, the processes and stopped vCPUs. */
static inline void doorbell_ring(void)
{
	ring(&shared->s.doorbell);
}

/*
 * W3: wakes a thread that has announced its sleep. The caller has done W1 by a SEQ_CST
 * read-modify-write. One wake serves all work that comes before the thread runs, so the first waker
 * takes the announcement away.
 *
 * The announcement is the futex. A late waker can take the announcement of the next sleep, for work
 * that is already done. The thread must not sleep then, because no other waker would find an
 * announcement.
 */
static inline void wake_announced(u32 *sleeping)
{
	step();
	if (READ_ONCE(*sleeping) && __atomic_exchange_n(sleeping, 0, __ATOMIC_SEQ_CST))
		futex_wake(sleeping, 1);
}

#endif
