/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* What a vCPU does before a long sleep. */
#ifndef PROCESS_IDLE_H
#define PROCESS_IDLE_H

#include "state/state.h"

/* In a long sleep: processes that have not been used lately give the host's memory back. When to call it again, ns, or never: U64_MAX. */
u64 idle_trim(struct vcpu *v);

#endif
