/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* A vCPU's counters of time, and its alarms. */
#ifndef PROCESS_ALARM_H
#define PROCESS_ALARM_H

#include "state/state.h"

/* Real, stolen and available time. */
void times(struct vcpu *v, struct vmi_times *t);
/* Tells the alarm thread, and irq_wait, when to look again. */
void deadline_set(struct vcpu *v, const struct vmi_times *t);
/* Alarms whose time has come fire. */
void alarm_check(struct vcpu *v);

#endif
