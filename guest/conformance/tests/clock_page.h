/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* How a program reads the clock page. */
#ifndef TESTS_CLOCK_PAGE_H
#define TESTS_CLOCK_PAGE_H

#include "test.h"

/* Copies the page as it is at one moment, and returns the counter then. */
static inline struct vmi_clock clock_page_copy(const struct vmi_clock *clock, u64 *tsc)
{
	struct vmi_clock copy;
	u32 sequence;

	do {
		sequence = READ_ONCE(clock->sequence);
		barrier();
		copy = *clock;
		barrier();
		*tsc = read_tsc();
	} while (sequence & 1 || READ_ONCE(clock->sequence) != sequence);
	return copy;
}

/*
 * Real time at a value of the counter, by such a copy. It does not advance while this processor's
 * counter is less than that of the one on which the page was written.
 */
static inline u64 clock_page_at(const struct vmi_clock *copy, u64 tsc)
{
	u64 passed = (s64)(tsc - copy->tsc) > 0 ? tsc - copy->tsc : 0;

	return copy->real_ns + (u64)((unsigned __int128)passed * copy->mult >> copy->shift);
}

static inline u64 clock_page_time(const struct vmi_clock *clock, u64 *tsc)
{
	struct vmi_clock copy = clock_page_copy(clock, tsc);

	return clock_page_at(&copy, *tsc);
}

#endif
