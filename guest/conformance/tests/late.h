/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* How late many events were: the middle and the tail. */
#ifndef TESTS_LATE_H
#define TESTS_LATE_H

#include "../kernel/types.h"

/* Events of one measurement. */
#define LATE_MOST 3000

struct late {
	u32 count;
	u64 ns[LATE_MOST];	/* in order after late_print() */
};

void late_clear(struct late *late);
/* Ignores those after the first LATE_MOST. */
void late_add(struct late *late, u64 ns);
/* Prints a line "# NAME: N late by half H, 99% P, all M ns", which tests compare with the host. */
void late_print(struct late *late, const char *name);
/* After late_print(): the lateness in ns that @percent % of the events do not exceed. */
u64 late_percent(const struct late *late, u32 percent);

#endif
