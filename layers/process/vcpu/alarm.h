/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* A vCPU's times and alarms. */
#ifndef PROCESS_ALARM_H
#define PROCESS_ALARM_H

#include "state/state.h"

/* Reads real, stolen and available time. */
void times(struct vcpu *v, struct vmi_times *t);
/* Sets when the alarm thread and irq_wait() check again. */
void deadline_set(struct vcpu *v, const struct vmi_times *t);
/* Fires the alarms whose time has come. */
void alarm_check(struct vcpu *v);

#endif
