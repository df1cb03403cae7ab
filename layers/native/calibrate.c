/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * The rates of the time-stamp counter and the APIC timer. Both are measured between two pairs of
 * readings. A pair is tried several times, and the try that took the least time is used, since
 * firmware or a host under an emulator may stop the processor in the middle.
 */
#include "io.h"
#include "native.h"

#define PIT_HZ 1193182
#define PIT_CHANNEL2 0x42
#define PIT_COMMAND 0x43
#define PIT_CHANNEL2_ONCE 0xb0 /* mode 0, both bytes */
#define PIT_CHANNEL2_LATCH 0x80
#define PIT_START 0xffffu
#define PIT_FIRST 0xff00u /* counts: where the measurement may begin */
#define PIT_SECOND 0x4800u /* and about 40 ms later */
#define PIT_PATIENCE 1000000
#define PIT_ROUNDS 20
#define GATE_PORT 0x61
#define GATE_CHANNEL2 0x01
#define GATE_SPEAKER 0x02
#define GATE_OUTPUT2 0x20

#define APIC_SPURIOUS 0xf0
#define APIC_SPURIOUS_ENABLED 0x100
#define APIC_LVT_TIMER 0x320
#define APIC_TIMER_INITIAL 0x380
#define APIC_TIMER_CURRENT 0x390
#define APIC_TIMER_DIVIDE 0x3e0
#define LVT_MASKED (1u << 16)
#define DIVIDE_BY_1 0xb
#define APIC_PARTS 100 /* of a second: length of the measurement */

#define PAIR_TRIES 8

struct pair {
	u64 tsc;
	u32 count;
};

static u32 pit_count(void)
{
	u32 low;

	outb(PIT_COMMAND, PIT_CHANNEL2_LATCH);
	low = inb(PIT_CHANNEL2);
	return low | (u32)inb(PIT_CHANNEL2) << 8;
}

static u32 apic_count(void)
{
	return native_apic_load(APIC_TIMER_CURRENT);
}

static struct pair take_pair(u32 (*count)(void))
{
	struct pair best = { 0, 0 };
	u64 shortest = U64_MAX;

	for (int i = 0; i < PAIR_TRIES; i++) {
		u64 before = cpu_tsc();
		u32 value = count();
		u64 took = cpu_tsc() - before;

		if (took < shortest) {
			shortest = took;
			best.tsc = before + took / 2;
			best.count = value;
		}
	}
	return best;
}

static bool pit_wait(u32 below)
{
	for (int i = 0; i < PIT_PATIENCE; i++)
		if (pit_count() < below)
			return true;
	return false; /* there is no timer */
}

/* 0: no timer. 1: stopped for too long, so the counter wrapped around. */
static u64 pit_round(void)
{
	struct pair first, second;
	bool round;
	u8 gate = inb(GATE_PORT) & ~(GATE_SPEAKER | GATE_CHANNEL2);

	outb(GATE_PORT, gate);
	outb(PIT_COMMAND, PIT_CHANNEL2_ONCE);
	outb(PIT_CHANNEL2, PIT_START & 0xff);
	outb(PIT_CHANNEL2, PIT_START >> 8);
	outb(GATE_PORT, gate | GATE_CHANNEL2);
	if (!pit_wait(PIT_FIRST))
		return 0;
	first = take_pair(pit_count);
	if (!pit_wait(PIT_SECOND))
		return 0;
	second = take_pair(pit_count);
	/* The output rises when the count reaches zero, and stays. */
	round = inb(GATE_PORT) & GATE_OUTPUT2;
	outb(GATE_PORT, gate);
	if (round || second.count >= first.count)
		return 1;
	return mul_div(second.tsc - first.tsc, PIT_HZ, first.count - second.count);
}

/* Crystal and ratio, if the processor reports both and no hypervisor answers in its place. */
static u64 cpuid_frequency(void)
{
	u32 a, b, c, d, last;

	cpu_cpuid(0, 0, &last, &b, &c, &d);
	if (last < 0x15)
		return 0;
	cpu_cpuid(1, 0, &a, &b, &c, &d);
	if (c & 1u << 31)
		return 0;
	cpu_cpuid(0x15, 0, &a, &b, &c, &d);
	return a && b && c ? mul_div(c, b, a) : 0;
}

/* Hz; 0 if there is nothing to measure with. */
u64 native_calibrate_tsc(void)
{
	u64 hz = cpuid_frequency();

	for (int i = 0; hz <= 1 && i < PIT_ROUNDS; i++) {
		hz = pit_round();
		if (!hz)
			break;
	}
	return hz > 1 ? hz : 0;
}

/* Counts in a second with a divider of 1; 0 if the timer does not run. Interrupts are off. */
u64 native_calibrate_apic(u64 tsc_hz)
{
	u32 spurious = native_apic_load(APIC_SPURIOUS);
	struct pair first, second;
	u64 rate;

	native_apic_store(APIC_SPURIOUS, spurious | APIC_SPURIOUS_ENABLED);
	native_apic_store(APIC_LVT_TIMER, LVT_MASKED | VMI_VECTOR_MAX);
	native_apic_store(APIC_TIMER_DIVIDE, DIVIDE_BY_1);
	native_apic_store(APIC_TIMER_INITIAL, 0xffffffff);
	first = take_pair(apic_count);
	while (cpu_tsc() - first.tsc < tsc_hz / APIC_PARTS)
		cpu_pause();
	second = take_pair(apic_count);
	native_apic_store(APIC_TIMER_INITIAL, 0);
	native_apic_store(APIC_SPURIOUS, spurious);

	/*
	 * It stopped at zero: either the processor stood still for seconds, or the timer is broken.
	 */
	if (!second.count || second.count >= first.count)
		return 0;
	rate = mul_div(first.count - second.count, tsc_hz, second.tsc - first.tsc);
	return rate;
}
