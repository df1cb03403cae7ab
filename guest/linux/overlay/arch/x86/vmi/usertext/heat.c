// SPDX-License-Identifier: GPL-2.0-only
/*
 * How often something has happened lately. Each key has two places to be in; the one with the lower
 * count is replaced. The counts are a guess: what a hash collision or a race of two CPUs loses is
 * counted again.
 */
#include <linux/hash.h>
#include <linux/log2.h>
#include <linux/math.h>
#include <linux/percpu.h>
#include "heat.h"

struct heat {
	u64 key;
	u32 times;
};

#define HEAT_SETS 256
static DEFINE_PER_CPU(struct heat[HEAT_SETS][2], process_heat);
static struct heat file_heat[2 * HEAT_SETS][2];

static unsigned int heat_add(struct heat *set, u64 key)
{
	struct heat *entry = set[0].times <= set[1].times ? &set[0] : &set[1];
	struct heat *other = entry == &set[0] ? &set[1] : &set[0];

	if (other->key == key)
		entry = other;
	if (entry->key != key) {
		/* Age the other entry, so that it is replaced when its key is no longer counted. */
		other->times -= DIV_ROUND_UP(other->times, 8);
		entry->key = key;
		entry->times = 0;
	}
	return ++entry->times;
}

unsigned int heat_by_process(u64 key)
{
	struct heat *set = get_cpu_var(process_heat)[hash_64(key, ilog2(HEAT_SETS))];
	unsigned int times = heat_add(set, key);

	put_cpu_var(process_heat);
	return times;
}

unsigned int heat_by_file(u64 key)
{
	return heat_add(file_heat[hash_64(key, ilog2(2 * HEAT_SETS))], key);
}
