/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* What core.costs reports to the kernel. */
#ifndef PROCESS_COSTS_H
#define PROCESS_COSTS_H

#include "state/state.h"

/* Measures what differs between hosts, in the zygote. It takes some microseconds. */
void costs_prepare(void);

void costs_known(struct vmi_costs *costs);

#endif
