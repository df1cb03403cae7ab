/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Devices: registers, notifications, interrupt lines. */
#ifndef PROCESS_DEVICE_H
#define PROCESS_DEVICE_H

#include "entry/signal.h"

/*
 * A fault at va, where the guest's tables lead to no RAM. If a device's registers are there: a read gets them mapped, a write is
 * carried out, and regs are those behind it. False: there is no device, or the instruction is none that can be done.
 */
bool device_access(struct vcpu *v, struct host_registers *regs, u64 va, u32 access);

/* Whether a page of guest-physical memory is a device's. */
static inline bool device_page(u64 gpa)
{
	return gpa >= shared->s.device_gpa && gpa - shared->s.device_gpa < shared->s.device_count * PAGE_SIZE;
}

#endif
