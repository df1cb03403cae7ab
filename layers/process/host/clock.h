/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Time, by the time-stamp counter and the factors that the monitor writes. */
#ifndef PROCESS_CLOCK_H
#define PROCESS_CLOCK_H

#include "state/state.h"

/* A consistent copy of the monitor's factors; its sequence. */
u32 clock_read(struct phv_clock *copy);
/* CLOCK_MONOTONIC at a value of the counter, by such a copy. */
u64 clock_at(const struct phv_clock *c, u64 tsc);
/* CLOCK_MONOTONIC now. */
u64 now_ns(void);
/* The counter at a moment that is not long ago; ns of now_ns. */
u64 tsc_at(u64 ns);
/* TSC cycles, at most some hours of them, in ns. */
u64 cycles_ns(u64 cycles);

#endif
