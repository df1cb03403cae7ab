/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Time, from the time-stamp counter and the monitor's factors. */
#ifndef PROCESS_CLOCK_H
#define PROCESS_CLOCK_H

#include "state/state.h"

/* Copies the monitor's factors consistently and returns their sequence number. */
u32 clock_read(struct phv_clock *copy);
/* The machine's clock, in ns, at a value of the counter, by such a copy. */
u64 clock_at(const struct phv_clock *c, u64 tsc);
/*
 * The machine's clock now, in ns: the host's CLOCK_MONOTONIC, and suspends of the host in which the
 * counter went on.
 */
u64 now_ns(void);
/* The counter at a recent moment, which is given in ns as now_ns() returns it. */
u64 tsc_at(u64 ns);
/* Turns TSC cycles, at most some hours of them, into ns. */
u64 cycles_ns(u64 cycles);

#endif
