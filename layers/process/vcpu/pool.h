/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The process pool: which process has which space. */
#ifndef PROCESS_POOL_H
#define PROCESS_POOL_H

#include "state/state.h"

/* The process of a space, or -1. Under the spaces lock. */
s64 pool_find(u64 cr3);
/*
 * The process for a space, a new one if necessary, marked as loaded by v, which leaves its last
 * one. The caller must hold no lock.
 */
u32 pool_get(struct vcpu *v, u64 cr3);

#endif
