/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The guest's clock page. */
#ifndef PROCESS_GUEST_CLOCK_H
#define PROCESS_GUEST_CLOCK_H

#include "state/state.h"

/* Writes the page. Under the lock. */
void clock_write(struct vmi_clock *page);
/* Updates the guest's clock page if the monitor's clock has changed. */
void clock_follow(void);

#endif
