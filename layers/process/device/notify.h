/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Messages to a device's thread in the monitor. */
#ifndef PROCESS_NOTIFY_H
#define PROCESS_NOTIFY_H

#include "state/state.h"

/* Sets bits of phv_device.notify and wakes the device's thread if it sleeps. */
void device_notify(struct phv_device *device, u32 bits);
/* Notifies a queue, on behalf of a vCPU, which becomes the device's notifier. */
void device_notify_from(const struct vcpu *v, u32 number, u32 queue);
/* Have the device's thread carry out a register write, and return when that is done. */
void device_store(struct vcpu *v, u32 number, u32 offset, u32 width, u64 value);
/* Has it carry out a command of a bridge's driver. Returns what bus.command returns. */
int device_command(struct vcpu *v, u32 number, u64 command);

#endif
