/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Reports to the monitor. */
#ifndef PROCESS_ZYGOTE_H
#define PROCESS_ZYGOTE_H

#include "host/step.h"
#include "state/state.h"

void tell(u32 op, u32 index, u32 pid, u32 value);
/* Reports which step failed, and ends the process. */
noreturn void die(u32 step, s64 error);

static inline void must(u32 step, s64 result)
{
	if (result < 0)
		die(step, result);
}

#endif
