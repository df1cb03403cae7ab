/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* What the parts of memory.storm and time.storm share: see storm.c. */
#ifndef TESTS_STORM_H
#define TESTS_STORM_H

#include "harness.h"
#include "pages.h"
#include "test.h"

/* Longer than any delay that a test from outside makes: what has not come by then is lost. */
#define STORM_LOST (15 * NS_PER_S)

/* Of one vCPU. */
struct storm_cpu {
	u64 seed;
	u64 beat;		/* last sign of life, and during what */
	const char *doing;
	u64 count;		/* operations */
	struct fpu_state want, got;
};

extern struct storm_cpu *storm_cpus[MAX_VCPUS];

static inline struct storm_cpu *storm_here(void)
{
	return storm_cpus[this_vcpu()];
}

static inline u64 storm_random(u64 below)
{
	return (random64(&storm_here()->seed) >> 7) % below;
}

/* In every loop; fails when another vCPU has stopped. */
void storm_beat(const char *doing);

/* storm_spaces.c: spaces that all vCPUs change, load and read. */
void storm_spaces_create(void);
void storm_spaces_destroy(void);
void storm_spaces_step(void);
void storm_spaces_leave(void);

/* storm_events.c: interrupts, alarms, kicks and halts, counted on both sides. */
void storm_events_create(void);
void storm_events_step(void);
/* Nothing is on its way any more. */
void storm_events_finish(void);

#endif
