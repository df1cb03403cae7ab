/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Trims idle processes before a long sleep. */
#ifndef PROCESS_IDLE_H
#define PROCESS_IDLE_H

#include "state/state.h"

/*
 * Trims processes that were not used lately. Returns when to call it again, as now_ns() has it, or
 * U64_MAX for never.
 */
u64 idle_trim(struct vcpu *v);

#endif
