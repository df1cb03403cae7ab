/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Delays where threads meet. */
#ifndef PROCESS_STEP_H
#define PROCESS_STEP_H

#include "common/types.h"

/*
 * A step of the hand-over, the fill, the flush or the wake-up. In a layer built with STEPS=1, for the stress test, each may take a
 * while, so that other threads get in between; otherwise it is nothing.
 */
#ifdef PROCESS_STEPS
void step(void);
#else
static inline void step(void)
{
}
#endif

#endif
