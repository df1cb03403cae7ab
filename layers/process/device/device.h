/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Device registers. */
#ifndef PROCESS_DEVICE_H
#define PROCESS_DEVICE_H

#include "host/signals.h"
#include "state/state.h"

/* The result of an access to a device's registers. */
enum device_result {
	DEVICE_NONE,	/* there is no device at the address, or the access is not allowed */
	/* a read's page is mapped; a write is carried out, and regs are those after it */
	DEVICE_DONE,
	/* the same, and the guest steps through its code: it gets a debug exception */
	DEVICE_STEPPED,
	DEVICE_REFUSED,	/* a write by an instruction that store_decode() does not know */
};

/*
 * Handles a fault at va, where the guest's tables lead to no RAM. access: PF_WRITE, PF_FETCH,
 * PF_USER bits.
 */
enum device_result device_access(struct vcpu *v, struct host_registers *regs, u64 va, u32 access);

/* InterruptStatus: the device used a buffer, or changed its configuration (virtio 1.2, 4.2.2). */
#define INTERRUPT_STATUS_BITS 3

/* Clears bits of a device's InterruptStatus. Returns those that were set. */
u32 device_acknowledge(u32 number, u32 bits);

static inline bool device_exists(u32 number)
{
	return number < shared->s.device_count && number < PHV_MAX_DEVICES;
}

/* Whether a page of guest-physical memory is a device's. */
static inline bool device_page(u64 gpa)
{
	return gpa >= shared->s.device_gpa &&
	       gpa - shared->s.device_gpa < shared->s.device_count * PAGE_SIZE;
}

#endif
