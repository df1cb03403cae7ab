/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Fixups of critical sections on the ways back into the guest. */
#ifndef PROCESS_WINDOWS_H
#define PROCESS_WINDOWS_H

#include "host/signals.h"
#include "state/state.h"

/*
 * The instruction pointer is in the layer. If it is in a critical section, sets regs to the guest's
 * own registers as after the return, and returns true.
 */
bool fixup_complete(struct vcpu *v, struct host_registers *regs);
/*
 * For a signal on the way out of another handler: makes regs start again at ph_sigreturn, which
 * checks the marks.
 */
void fixup_rollback(struct host_registers *regs);

/*
 * Whether regs are at the hlt of cpu.iret because no processor would take the frame's selectors.
 * *error: the error code for them.
 */
bool fixup_bad_frame(const struct host_registers *regs, u64 *error);

#endif
