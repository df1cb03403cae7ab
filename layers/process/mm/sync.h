/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Brings the mappings of a process up to date with its space. */
#ifndef PROCESS_SYNC_H
#define PROCESS_SYNC_H

#include "state/state.h"

/* Makes this process's mappings agree with the vCPU's space at its generation. */
void mm_sync(struct vcpu *v);

/*
 * Does the flushes that other processes have requested of this one (PHV_PENDING_FLUSH). The caller
 * must not hold the process's lock.
 */
void mm_serve_flushes(struct vcpu *v);

/* Does them in a parked thread, for its vCPU, which is in another process. */
void mm_serve_flushes_parked(void);

/* Drops the mappings of a space that was released. */
void mm_drop_released(void);

#endif
