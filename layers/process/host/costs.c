// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * What core.costs reports to the kernel.
 *
 * cpuid takes 0.1 us on a host without a hypervisor, and 1 to 70 us on one that is itself a virtual
 * machine, so it is measured. The rest depends on host calls and signals, which take a similar
 * number of page copies on all hosts: `paravane bench vmi` saw 3.0 us for a first touch, 2.8 us for
 * a flush, 1.2 us for a trapped system call and 0.04 us for another, and 0.35 us for each page of a
 * run of 16 where a single one took 2.3 us. A copy of a page takes 0.3 us there.
 */
#include "host/costs.h"
#include "host/cpuid.h"
#include "state/cpu.h"

#define PAGE_FAULT 10
#define FLUSH 5
/* The layer maps a run at once. Longer ones gain little more. */
#define RUN_PAGES 16
#define SYSCALL_TRAP 4

#define TRIES 4
/* The longest time that has a value of its own. */
#define CPUID_MAX 1000

/* Written by the zygote alone. */
static u32 cpuid_copies;

static u64 copy_cycles(void)
{
	static u8 from[PAGE_SIZE], to[PAGE_SIZE];
	u64 start = rdtsc();

	__builtin_memcpy(to, from, sizeof(to));
	/* The copy is needed. */
	__asm__ volatile("" : : "r"(to) : "memory");
	return rdtsc() - start;
}

/* The least of some tries: whatever disturbs one makes it longer. */
void costs_prepare(void)
{
	u64 copy = ~0ULL, cpuid = ~0ULL, cycles;
	u32 i;

	for (i = 0; i < TRIES; i++) {
		cycles = copy_cycles();
		if (cycles < copy)
			copy = cycles;
		cycles = cpuid_cycles();
		if (cycles < cpuid)
			cpuid = cycles;
	}
	cycles = cpuid / (copy ? copy : 1);
	cpuid_copies = cycles < CPUID_MAX ? (u32)cycles : CPUID_MAX;
}

void costs_known(struct vmi_costs *costs)
{
	*costs = (struct vmi_costs){
		.page_fault = PAGE_FAULT,
		.flush = FLUSH,
		.run_pages = RUN_PAGES,
		.syscall_trap = SYSCALL_TRAP,
		.cpuid = cpuid_copies,
	};
}
