// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Marks that the host sees in its trace, in the order of the exits: an unknown hypercall, and an
 * unknown leaf of CPUID. A hypercall from user mode returns an error and has no other effect.
 */
#include <cpuid.h>
#include "exits.h"

uint32_t mark_number;

static int intel(void)
{
	unsigned int a, b, c, d;

	__cpuid(0, a, b, c, d);
	return b == signature_INTEL_ebx;
}

/* CPUID reports the host's processor, which decides which instruction is the hypercall. */
void begin(void)
{
	uint64_t result = mark_number;
	static int is_intel = -1;

	if (!mark_number)
		return;
	if (is_intel < 0)
		is_intel = intel();
	if (is_intel)
		__asm__ volatile("vmcall" : "+a"(result) : "b"(0UL) : "memory");
	else
		__asm__ volatile("vmmcall" : "+a"(result) : "b"(0UL) : "memory");
}

void end(void)
{
	unsigned int a, b, c, d;

	if (mark_number)
		__cpuid(mark_number, a, b, c, d);
}

/* What the rows of `bench micro` call: here a batch is counted and not timed. */

unsigned int batches = 1;

double timed(void (*batch)(unsigned long))
{
	begin();
	batch(operations);
	end();
	return 0;
}

double timed_by(uint64_t (*batch)(void), unsigned long unused, unsigned int count)
{
	(void)unused;
	(void)count;
	begin();
	batch();
	end();
	return 0;
}
