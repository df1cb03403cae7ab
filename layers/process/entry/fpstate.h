/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Vector and floating-point registers in a signal frame. */
#ifndef PROCESS_FPSTATE_H
#define PROCESS_FPSTATE_H

#include "host/signals.h"

/*
 * Removes vector state from the frame if all of it is initial. The zygote calls fpstate_prepare()
 * first, once.
 */
void fpstate_trim(struct host_registers *regs);
void fpstate_prepare(void);

#endif
