/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A counter that is the clock source and the scheduler's clock, and has begun again at a lower
 * value while the kernel was running: the host of a virtual machine was suspended.
 */
#ifndef _LINUX_COUNTER_FELL_H
#define _LINUX_COUNTER_FELL_H

#include <linux/types.h>

/*
 * CLOCK_MONOTONIC stands, and goes on at @mono, in ns, or where it stands if that is later. Returns
 * by how many counts the counter has fallen.
 */
u64 timekeeping_counter_fell(u64 mono);

/* sched_clock() goes on as if the counter had not fallen by @counts. Not in two places at once. */
void sched_clock_counter_fell(s64 counts);

/* For tests: to the clocks, the counter falls by @counts. */
void timekeeping_move_counter(u64 counts);

#endif
