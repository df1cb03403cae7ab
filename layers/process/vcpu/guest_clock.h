/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The guest's clock page. */
#ifndef PROCESS_GUEST_CLOCK_H
#define PROCESS_GUEST_CLOCK_H

#include "state/state.h"

/* Writes it anew. Under the lock. */
void clock_write(struct vmi_clock *page);
/* The guest's clock page, if the monitor's has changed. */
void clock_follow(void);

#endif
