/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Time for tests: deadlines, so that a lost event is a failure and not a hang. */
#ifndef KERNEL_CLOCK_H
#define KERNEL_CLOCK_H

#include "types.h"

/* Real time, ns. */
u64 now(void);
/* Waits, spinning. */
void delay_ns(u64 ns);

/* To be called in every loop that waits; fails the test after its deadline. */
void watch(const char *what);
void set_deadline(u64 ns_from_now);

/*
 * Rounds between vCPUs cost a time slice each where processors are short:
 * such loops do all their rounds, or what they get done in this time.
 */
#define ROUNDS_BUDGET (2 * NS_PER_S)

/* Spins until condition(argument); true in time, false after ns. */
bool spin_until(bool (*condition)(void *), void *argument, u64 ns);

#define WAIT_UNTIL(condition)				\
	do {						\
		while (!(condition)) {			\
			pause();			\
			watch(#condition);		\
		}					\
	} while (0)

#endif
