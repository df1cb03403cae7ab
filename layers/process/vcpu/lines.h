/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Where signals of interrupt lines go. The monitor's half is kick.rs. */
#ifndef PROCESS_LINES_H
#define PROCESS_LINES_H

#include "state/state.h"

/* The vCPU that gets a signal of a line with this place (phv_device.route), which notes it. */
struct vcpu *line_signal(u32 line, u32 place);
/*
 * Sends the signals that no vCPU has taken again, to vCPUs that run. This vCPU is off: it may have
 * been asked to take them.
 */
void lines_resend(void);

#endif
