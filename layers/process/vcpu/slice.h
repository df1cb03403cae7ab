/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The time in which a thread is the vCPU, and what of it was stolen. */
#ifndef PROCESS_SLICE_H
#define PROCESS_SLICE_H

#include "state/state.h"

/*
 * Begins and ends the time in which a thread is a vCPU that runs (time.c). What lies between is stolen, if it is long: from the end of
 * the last stint on, or from vcpu.woken on if that is changed meanwhile; 0: nothing.
 */
void slice_begin(struct vcpu *v);
void slice_end(struct vcpu *v);

/* Takes a sample: what this thread was the vCPU for, less what it ran, was stolen. */
void slice_sample(struct vcpu *v, u64 now);

#endif
