// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * The long stress test, for errors that appear once in a million times. Every vCPU takes random
 * steps in spaces that all share (storm_spaces.c) and with events between vCPUs (storm_events.c).
 * Nothing may be lost or stale, no register may change, and all memory must be freed. Duration:
 * stress=SECONDS on the command line.
 */
#include "storm.h"

struct storm_cpu *storm_cpus[MAX_VCPUS];

static u64 end_time, working;

void storm_beat(const char *doing)
{
	struct storm_cpu *cpu = storm_here();
	u64 time = now();
	u32 i;

	WRITE_ONCE(cpu->doing, doing);
	WRITE_ONCE(cpu->beat, time);
	watch(doing);
	for (i = 0; i < machine.vcpus_online; i++) {
		u64 beat = READ_ONCE(storm_cpus[i]->beat);

		/* Another vCPU's clock may be slightly ahead. */
		if (time <= beat || time - beat <= STORM_LOST)
			continue;
		/* The boot vCPU continues after a failure. */
		if (!i)
			panic("vCPU 0 stands still for %llu ms: %s", (time - beat) / NS_PER_MS,
			      storm_cpus[i]->doing);
		FAIL("vCPU %u stands still for %llu ms: %s", i, (time - beat) / NS_PER_MS,
		     storm_cpus[i]->doing);
	}
}

static void steps(u64 count)
{
	struct storm_cpu *cpu = storm_here();
	u64 base = (random64(&cpu->seed) & 0x3fffffffffff) + GIB;
	enum fpu_level level = fpu_level();

	fpu_fill(&cpu->want, cpu->seed);
	CHECK_RESULT(vmi.cpu_set_fs_base(base), 0);
	fpu_load(&cpu->want, level);
	for (; count; count--) {
		if (storm_random(3))
			storm_spaces_step();
		else
			storm_events_step();
		cpu->count++;
	}
	fpu_store(&cpu->got, level);
	fpu_compare(&cpu->want, &cpu->got, "after a step");
	CHECK_EQ(vmi.cpu_get_fs_base(), base);
}

static void work(void *argument)
{
	u64 fs_base = vmi.cpu_get_fs_base();

	(void)argument;
	irq_enable();
	do {
		steps(1 + storm_random(32));
		storm_beat("a step");
	} while (now() < end_time);
	storm_spaces_leave();
	storm_events_finish();
	atomic_add(&working, -1);
	/* Others may still wait for this vCPU. */
	while (atomic_load(&working)) {
		pause();
		storm_beat("the end");
	}
	irq_disable();
	vmi.cpu_set_fs_base(fs_base);
}

static u64 seconds(void)
{
	char text[16];
	u64 result = 0;
	char *s;

	if (!option("stress", text, sizeof(text)))
		return 1;
	for (s = text; *s >= '0' && *s <= '9'; s++)
		result = result * 10 + (u64)(*s - '0');
	return MAX(result, 1);
}

TEST(storm, "memory.storm", 1, 0, MMU_SET_CR3, MMU_INVALIDATE_PAGE, MMU_INVALIDATE_RANGE,
     MMU_FLUSH_TLB,
     MMU_RELEASE_PAGE_TABLE, MMU_SET_LAZY_MODE, APIC_SEND_IPI, LOCK_KICK, LOCK_WAIT, TIME_SET_ALARM,
     CPU_HALT)
{
	static u64 run;
	u64 in_use, count = 0;
	u32 i;

	for (i = 0; i < machine.vcpus_online; i++) {
		if (!storm_cpus[i])
			storm_cpus[i] = alloc_contiguous(sizeof(struct storm_cpu));
		memset(storm_cpus[i], 0, sizeof(struct storm_cpu));
		storm_cpus[i]->seed = 0x9e3779b97f4a7c15ull * (1 + i + MAX_VCPUS * run);
		storm_cpus[i]->seed ^= read_tsc();
		storm_cpus[i]->beat = now();
		storm_cpus[i]->doing = "the start";
	}
	run++;
	set_deadline((seconds() + 60) * NS_PER_S);
	storm_events_create();
	in_use = pages_in_use();
	storm_spaces_create();
	working = machine.vcpus_online;
	end_time = now() + seconds() * NS_PER_S;
	for (i = 1; i < machine.vcpus_online; i++)
		run_on(i, work, NULL);
	work(NULL);
	for (i = 1; i < machine.vcpus_online; i++)
		wait_for(i);
	storm_spaces_destroy();
	for (i = 0; i < machine.vcpus_online; i++)
		count += storm_cpus[i]->count;
	print("# storm: %llu steps\n", count);
	CHECK_EQ(pages_in_use(), in_use);
}
