/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Time and deadlines. A deadline turns a lost event into a failed test. */
#ifndef KERNEL_CLOCK_H
#define KERNEL_CLOCK_H

#include "types.h"

/* Real time in ns. */
u64 now(void);
/* Spins for ns. */
void delay_ns(u64 ns);

/* Every loop that waits calls this. It fails the test after the deadline. */
void watch(const char *what);
void set_deadline(u64 ns_from_now);
/* A limit of time on this host, which may be some times slower than an idle one (patience=N). */
u64 patient(u64 ns);

/*
 * For loops of rounds between vCPUs: they stop after this time. When the host has
 * fewer processors than vCPUs, each round takes a time slice of the host.
 */
#define ROUNDS_BUDGET (2 * NS_PER_S)

/* Spins until condition(argument) holds; false if it does not within ns. */
bool spin_until(bool (*condition)(void *), void *argument, u64 ns);

#define WAIT_UNTIL(condition)				\
	do {						\
		while (!(condition)) {			\
			pause();			\
			watch(#condition);		\
		}					\
	} while (0)

#endif
