/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Vector and floating-point registers in a signal frame. */
#ifndef PROCESS_FPSTATE_H
#define PROCESS_FPSTATE_H

#include "host/signals.h"

/* Takes vector state out of the frame if all of it is initial; once in the zygote before that. */
void fpstate_trim(struct host_registers *regs);
void fpstate_prepare(void);

#endif
