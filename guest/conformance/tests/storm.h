/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Shared by the parts of memory.storm and time.storm: see storm.c. */
#ifndef TESTS_STORM_H
#define TESTS_STORM_H

#include "harness.h"
#include "pages.h"
#include "test.h"

/* Longer than any delay that a host's test causes: an event that is later is lost. */
#define STORM_LOST (15 * NS_PER_S)

/* Data of one vCPU. */
struct storm_cpu {
	u64 seed;
	u64 beat;		/* time of the last sign of life, and the step then */
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

/* Called in every loop. Fails when another vCPU has stopped. */
void storm_beat(const char *doing);

/* storm_spaces.c: spaces that all vCPUs change, load and read. */
void storm_spaces_create(void);
void storm_spaces_destroy(void);
void storm_spaces_step(void);
void storm_spaces_leave(void);

/* storm_events.c: interrupts, alarms, kicks and halts, counted at both ends. */
void storm_events_create(void);
void storm_events_step(void);
/* Returns when no event is on its way. */
void storm_events_finish(void);

#endif
