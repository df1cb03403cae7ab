/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Where an instruction pointer is. */
#ifndef PROCESS_WHERE_H
#define PROCESS_WHERE_H

#include "host/signals.h"
#include "state/state.h"

/* Whether the instruction pointer is in the layer; what is as good as guest code (thunks.S) is not. */
bool in_layer(u64 rip);

/*
 * Whether rip, which is not in the layer, is user code: by its address; or user code has jumped to an address of the
 * kernel's, which the GS base tells. User code always has interrupts enabled, so a kernel that has disabled them may have any GS base.
 */
bool from_user(const struct vcpu *v, u64 rip);

/*
 * User code that has jumped into the layer.
 */
bool strayed(const struct vcpu *v, const struct host_registers *regs);

#endif
