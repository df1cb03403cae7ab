/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Whether a halted vCPU looks for an interrupt of another one before it sleeps, and for how long.
 */
#ifndef PROCESS_POLL_H
#define PROCESS_POLL_H

#include "state/state.h"

/*
 * Begins to look. False: it is not worth while. True: others see that the vCPU needs no wake,
 * until poll_end(). The owner then announces its sleep as always (host/doorbell.h).
 */
bool poll_begin(struct vcpu *v);
/* Whether to look once more. */
bool poll_on(struct vcpu *v);
/* Ends it; `won`: there was something. */
void poll_end(struct vcpu *v, bool won);
/*
 * Learns from a halt that slept: the counter at its beginning, and when another vCPU ended it; 0:
 * something else did.
 */
void poll_learn(struct vcpu *v, u64 begin, u64 kicked);

#endif
