/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The windows of the ways back into the guest. */
#ifndef PROCESS_WINDOWS_H
#define PROCESS_WINDOWS_H

#include "host/signals.h"
#include "state/state.h"

/*
 * The instruction pointer is in the layer. If it is in a window, makes regs the guest's
 * own registers, as they would be after the return, and says so.
 */
bool fixup_complete(struct vcpu *v, struct host_registers *regs);
/*
 * A signal that is on its way out of another handler: makes regs begin again at ph_sigreturn, which looks at what is marked.
 */
void fixup_rollback(struct host_registers *regs);

/* Stopped at the hlt of cpu.iret: the frame's selectors are none that a processor would take; error is theirs. */
bool fixup_bad_frame(const struct host_registers *regs, u64 *error);

#endif
