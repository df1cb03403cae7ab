// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * bench: the cost of a call at a site, and of the plain instruction. Under "-icount shift=0" the
 * time-stamp counter counts instructions, so the figures are exact. A line is: bench NAME SITE
 * PLAIN, in instructions.
 */
#include "harness.h"
#include "space.h"
#include "test.h"

#define ROUNDS 2000

/* bench_loops.S: a loop for each operation. */
typedef void loop_fn(u64 rounds, u64 argument);

struct row {
	const char *name;
	loop_fn *site, *plain;
	u64 argument;
};

#define LOOPS(name) loop_fn site_##name, plain_##name;
LOOPS(empty) LOOPS(irq_disable) LOOPS(irq_enable) LOOPS(irq_flag)
LOOPS(irq_restore) LOOPS(irq_save) LOOPS(pause) LOOPS(get_cr0) LOOPS(set_cr0)
LOOPS(clts) LOOPS(get_cr2) LOOPS(set_cr2) LOOPS(get_cr4) LOOPS(set_cr4)
LOOPS(get_cr8) LOOPS(set_cr8) LOOPS(read_tsc) LOOPS(io_delay) LOOPS(wbinvd)
LOOPS(set_cr3) LOOPS(get_cr3) LOOPS(invalidate_page) LOOPS(swapgs_twice)
LOOPS(iret)
loop_fn call_loop;

/* Exact in instructions; the smallest of three, for calls that wait for time. */
static u64 time_loop(loop_fn *loop, u64 argument)
{
	u64 best = ~0ull, start;
	u32 i;

	for (i = 0; i < 3; i++) {
		start = read_tsc();
		loop(ROUNDS, argument);
		start = read_tsc() - start;
		best = MIN(best, start);
	}
	return best;
}

static void print_cost(u64 cost, u64 empty)
{
	/* Rounded: the loops differ from the empty one by one instruction in total. */
	u64 hundredths = cost > empty ? ((cost - empty) * 100 + ROUNDS / 2) / ROUNDS :
			 0;

	print(" %llu.%02llu", hundredths / 100, hundredths % 100);
}

static void bench_sites(void)
{
	const struct row rows[] = {
#define ROW(name, argument) { #name, site_##name, plain_##name, argument }
		ROW(irq_disable, 0), ROW(irq_enable, 0), ROW(irq_flag, 0),
		ROW(irq_restore, 0), ROW(irq_save, 0), ROW(pause, 0),
		ROW(get_cr0, 0), ROW(set_cr0, get_cr0()), ROW(clts, 0),
		ROW(get_cr2, 0), ROW(set_cr2, 0), ROW(get_cr4, 0),
		ROW(set_cr4, get_cr4()), ROW(get_cr8, 0), ROW(set_cr8, 0),
		ROW(read_tsc, 0), ROW(io_delay, 0), ROW(wbinvd, 0),
		ROW(set_cr3, get_cr3()), ROW(get_cr3, 0),
		ROW(invalidate_page, kernel_area), ROW(swapgs_twice, 0),
		ROW(iret, 0),
	};
	u64 empty = time_loop(site_empty, 0);
	u32 i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		u64 site, plain;

		irq_disable();
		site = time_loop(rows[i].site, rows[i].argument);
		irq_disable();
		plain = time_loop(rows[i].plain, rows[i].argument);
		irq_disable();
		print("bench %s", rows[i].name);
		print_cost(site, empty);
		print_cost(plain, empty);
		print("\n");
	}
}

struct call {
	const char *name;
	u32 number;
	u64 arguments[5];
};

/* Calls without a native form, through their entry. They have no plain instruction. */
static void bench_calls(void)
{
	static u64 table[16] __attribute__((aligned(64)));
	static u64 descriptor;
	struct percpu *cpu = this_cpu();
	const struct call calls[] = {
		{ "core.version", CORE_VERSION, { 1 } },
		{ "cpu.read_msr", CPU_READ_MSR, { 0xc0000082, (u64)table } },
		{ "cpu.cpuid", CPU_CPUID, { (u64)table } },
		{ "cpu.get_gs_base", CPU_GET_GS_BASE, { 0 } },
		{ "cpu.set_fs_base", CPU_SET_FS_BASE, { 0 } },
		{ "cpu.set_tls", CPU_SET_TLS,
		  { (u64)cpu->gdt, TLS_INDEX, (u64)&descriptor, 1 } },
		{ "cpu.set_kernel_stack", CPU_SET_KERNEL_STACK,
		  { (u64)&cpu->tss, (u64)cpu->stack } },
		{ "cpu.port_in", CPU_PORT_IN, { 0x80, 1 } },
		{ "mmu.set_pte", MMU_SET_PTE, { (u64)table, 0, VMI_LEVEL_PT, 0 } },
		{ "mmu.invalidate_range", MMU_INVALIDATE_RANGE,
		  { kernel_area, kernel_area + PAGE_SIZE } },
		{ "mmu.flush_tlb", MMU_FLUSH_TLB, { VMI_FLUSH_USER } },
		{ "mmu.flush_queue", MMU_FLUSH_QUEUE, { 0 } },
		{ "mmu.set_lazy_mode", MMU_SET_LAZY_MODE, { 0 } },
		{ "apic.read", APIC_READ, { 0x20 } },
		{ "apic.eoi", APIC_EOI, { 0 } },
		{ "time.read", TIME_READ, { (u64)table } },
		{ "time.wallclock", TIME_WALLCLOCK, { 0 } },
		{ "lock.kick", LOCK_KICK, { 0 } },
		{ "lock.pending", LOCK_PENDING, { 0 } },
	};
	u64 empty = time_loop(site_empty, 0);
	u32 i;

	for (i = 0; i < ARRAY_SIZE(calls); i++) {
		u64 block[6];

		block[0] = (u64)layer_entry(calls[i].number);
		if (!block[0])
			continue;
		memcpy(block + 1, calls[i].arguments, sizeof(calls[i].arguments));
		print("bench %s", calls[i].name);
		print_cost(time_loop(call_loop, (u64)block), empty);
		print(" -\n");
	}
}

void run_bench(void)
{
	if (!machine.pvh) {
		print("# bench: the plain instructions need bare metal\n");
		return;
	}
	bench_sites();
	bench_calls();
	test_reset_vcpu();
}
