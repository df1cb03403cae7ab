/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Classifies instruction pointers. */
#ifndef PROCESS_WHERE_H
#define PROCESS_WHERE_H

#include "host/signals.h"
#include "state/state.h"

/* Whether rip is in the layer. The short calls of crossing/tail.S count as guest code. */
bool in_layer(u64 rip);

/*
 * Whether rip, which is not in the layer, is in user code. It is user code by its address, or if
 * user code has jumped to a kernel address, which the GS base shows. User code always has
 * interrupts enabled; a kernel with interrupts off may have any GS base.
 */
bool from_user(const struct vcpu *v, u64 rip);

/*
 * Whether user code has jumped into the layer. While interrupts are enabled, only code on the
 * layer's own stacks and the ways out to user mode have the user's GS base there.
 */
bool strayed(const struct vcpu *v, const struct host_registers *regs);

#endif
