/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Real time by the time-stamp counter alone.
 *
 * The counter is assumed to run at one rate and in step on all processors, as on every current
 * 64-bit machine.
 */
#ifndef NATIVE_COUNTER_H
#define NATIVE_COUNTER_H

#include "native.h"

#define NSEC_PER_SEC 1000000000ULL

/* The largest 32-bit multiplier has the best resolution. 10^9 << 33 still fits u64. */
static inline void counter_set_rate(u64 hz)
{
	u32 shift = 33;

	while (shift && (NSEC_PER_SEC << shift) / hz > 0xffffffff)
		shift--;
	native.tsc_hz = hz;
	native.shift = shift;
	native.mult = (u32)((NSEC_PER_SEC << shift) / hz);
}

/* ns since core.init */
static inline u64 counter_time(void)
{
	u64 ticks = cpu_tsc() - native.tsc_start;

	/* Another processor's counter may be less by a few ticks, just after core.init. */
	if ((s64)ticks < 0)
		return 0;
	return (u64)((u128)ticks * native.mult >> native.shift);
}

/* (ns << shift) / mult + 1: ticks after which ns have passed. Saturates at most. */
static inline u64 counter_ticks(u64 ns, u32 mult, u32 shift, u64 most)
{
	u128 scaled = (u128)ns << shift;
	u64 high = (u64)(scaled >> 64), ticks = (u64)scaled;

	if (high >= mult)
		return most;
	/* high < mult, so that the quotient fits. */
	__asm__("divq %2" : "+a"(ticks), "+d"(high) : "r"((u64)mult) : "cc");
	return ticks < most ? ticks + 1 : most;
}

/* The counter value at which real time has become ns; U64_MAX: never. */
static inline u64 counter_at(u64 ns)
{
	return native.tsc_start +
	       counter_ticks(ns, native.mult, native.shift, U64_MAX - native.tsc_start);
}

#endif
