/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * The last events of each vCPU, for the report of a machine that crashed. Events are always
 * recorded: each costs a read of the time-stamp counter and four stores. Only the owner of the vCPU
 * calls this. A signal in between may overwrite an event, which costs one line of a report.
 */
#ifndef PROCESS_EVENT_H
#define PROCESS_EVENT_H

#include "state/cpu.h"
#include "state/state.h"

static inline void event(struct vcpu *v, u64 kind, u64 a, u64 b)
{
	u32 number = v->s.events++;
	struct phv_event *e = (struct phv_event *)to_pointer(PHV_SHARED + PHV_SHARED_EVENTS) +
				 v->number * PHV_EVENTS + (number & (PHV_EVENTS - 1));

	e->tsc = rdtsc_rough();
	e->kind = kind;
	e->a = a;
	e->b = b;
}

#endif
