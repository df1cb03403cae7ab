// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "late.h"
#include "test.h"

void late_clear(struct late *late)
{
	late->count = 0;
}

void late_add(struct late *late, u64 ns)
{
	if (late->count < LATE_MOST)
		late->ns[late->count++] = ns;
}

/* By insertion with shrinking steps. */
static void sort(u64 *values, u32 count)
{
	u32 step, i, n;

	for (step = count / 2; step; step /= 2) {
		for (i = step; i < count; i++) {
			u64 value = values[i];

			for (n = i; n >= step && values[n - step] > value; n -= step)
				values[n] = values[n - step];
			values[n] = value;
		}
	}
}

u64 late_percent(const struct late *late, u32 percent)
{
	return late->ns[(late->count - 1) * percent / 100];
}

void late_print(struct late *late, const char *name)
{
	CHECK_OP(late->count, >, 0);
	sort(late->ns, late->count);
	print("# %s: %u late by half %llu, 99%% %llu, all %llu ns\n", name, late->count,
	      late_percent(late, 50), late_percent(late, 99), late_percent(late, 100));
}
