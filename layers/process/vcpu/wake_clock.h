/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Whether the machine's clock is still the host's when a vCPU wakes up. */
#ifndef PROCESS_WAKE_CLOCK_H
#define PROCESS_WAKE_CLOCK_H

#include "state/state.h"

/*
 * For a vCPU that has woken up and has read no clock yet: it is asleep until here. Where the clock
 * was not compared for a while and is wrong, waits until the monitor has corrected it.
 */
void wake_clock(struct vcpu *v);

#endif
