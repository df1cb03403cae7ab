/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Delays where threads meet. */
#ifndef PROCESS_STEP_H
#define PROCESS_STEP_H

#include "common/types.h"

/*
 * Marks a step of a hand-over, fill, flush or wake-up. In a layer built with STEPS=1, for the
 * stress test, each step may take a while, so that other threads get in between. Otherwise it is
 * nothing.
 */
#ifdef PROCESS_STEPS
void step(void);
#else
static inline void step(void)
{
}
#endif

#endif
