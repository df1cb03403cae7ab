/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Run slices: the time for which a thread owns the vCPU, and what of it was stolen. */
#ifndef PROCESS_SLICE_H
#define PROCESS_SLICE_H

#include "state/state.h"

/*
 * Begin and end a run slice. The time between two slices is stolen if it is long. It counts from
 * the end of the last slice, or from vcpu.woken if that was changed since; 0: nothing was
 * stolen. slice_begin() returns whether some was.
 */
bool slice_begin(struct vcpu *v);
void slice_end(struct vcpu *v);

/* What slice_begin() would add to the stolen time now, ns. */
u64 slice_waited(const struct vcpu *v);

/* Takes a sample: the time as the owner less the thread's CPU time was stolen. */
void slice_sample(struct vcpu *v, u64 now);

#endif
