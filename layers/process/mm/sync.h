/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* What a process has mapped becomes what its space needs. */
#ifndef PROCESS_SYNC_H
#define PROCESS_SYNC_H

#include "state/state.h"

/* Makes this process's mappings good for the vCPU's space at its generation. */
void mm_sync(struct vcpu *v);

/* Carries out what others have asked of this process (PHV_PENDING_FLUSH); not where this thread holds its lock. */
void mm_serve_flushes(struct vcpu *v);

/* Drops the mappings of a space that was released. */
void mm_drop_released(void);

#endif
