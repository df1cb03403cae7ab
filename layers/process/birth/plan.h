/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * What the zygote and a new process share before the filter is installed.
 *
 * During this time, guest code runs in other processes and writes to everything that it shares:
 * RAM, the shared area, the thunks, the pool. So code that runs before the filter decides by its
 * private memory alone, and no page that the guest can write is executable yet.
 */
#ifndef PROCESS_PLAN_H
#define PROCESS_PLAN_H

#include "state/state.h"

/*
 * How processes are made. Copied from the shared area before any guest code exists, read-only from
 * then on.
 */
struct process_plan {
	u64 filter[PHV_FILTER_MAX];
	u64 direct_map;
	u32 filter_length, flags, vcpu_count, region_count, segment_count;
	s32 child_events;	/* the zygote's signalfd of SIGCHLD */
	u32 zygote;		/* its process id */
	bool descriptors;	/* whether threads can have descriptors */
	u32 cpu[PHV_MAX_VCPUS];
	struct phv_region regions[PHV_MAX_REGIONS];
	struct phv_segment segments[8];
};

/* On pages of its own, so that they can be made read-only. */
union plan_pages {
	struct process_plan p;
	u8 bytes[(sizeof(struct process_plan) + PAGE_SIZE - 1) & PAGE_MASK];
};

extern union plan_pages plan_pages;
#define plan ((const struct process_plan *)&plan_pages.p)

/*
 * A page that the zygote shares with the process that it is making: 1 once the filter is installed.
 * The process unmaps it before any of its threads can run guest code.
 */
extern u32 ph_ready[];

#endif
