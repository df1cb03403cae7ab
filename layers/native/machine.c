/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * The functions of bare metal that a layer for full virtualization replaces by its own when it
 * links the rest of this folder (layers/kvm/). native.h declares them.
 */
#include "counter.h"
#include "native.h"

/* Nothing is stolen on bare metal. */
void native_times(struct vmi_times *times)
{
	times->real = counter_time();
	times->stolen = FAULT(STOLEN_DRIFTS) ? times->real >> 10 : 0;
	/* The fault breaks the sum. */
	times->available = times->real;
}

u64 native_tsc_at(u64 ns)
{
	return counter_at(ns);
}

void native_forget_more(struct native_percpu *data)
{
	(void)data;
}
