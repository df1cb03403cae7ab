// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * The fuzzer's guest: hostile=random seed=N ms=N quiet. Each vCPU makes host calls with random
 * registers, jumps into the layer, and writes to all memory that it can write, while the hypervisor
 * creates processes. The seed decides how wild a machine is: a calm one lives long enough for many
 * processes to be created, a wild one breaks soon, and each time differently.
 */
#include <paravane/process.h>

#include "hostile.h"
#include "harness.h"
#include "space.h"
#include "test.h"

#define MSR_LSTAR 0xc0000082
#define SPACES 12
/* Steps between two lines of progress. */
#define REPORT 512

struct fuzzer {
	u64 seed, steps, calls;
	u64 wild;		/* one step in this many ends most machines */
	u32 space;
	u64 scratch[2];		/* where the host writes results */
} __attribute__((aligned(64)));

extern char h_int80[], h_sysenter[], h_syscall[], h_syscall_entry[];
void h_enter(const u64 *regs, u64 target);

static struct fuzzer fuzzers[MAX_VCPUS];
static struct space spaces[SPACES];
static u64 end_time, zygote;
static bool quiet;	/* without signals, which few machines survive */

static struct fuzzer *fuzzer(void)
{
	return &fuzzers[this_vcpu()];
}

static u64 any(struct fuzzer *f)
{
	/*
	 * Multiply: consecutive random numbers are correlated bit by bit, and so would be choices
	 * made from few of their bits.
	 */
	return random64(&f->seed) * 0x2545f4914f6cdd1dull;
}

static u64 below(struct fuzzer *f, u64 limit)
{
	return (any(f) >> 16) % limit;
}

static bool rarely(struct fuzzer *f)
{
	return !below(f, f->wild);
}

static volatile struct phv_proc *proc_at(u64 index)
{
	return (void *)(PHV_SHARED + PHV_SHARED_PROCS + index % PHV_MAX_PROCS * PHV_PROC_STRIDE);
}

static u32 proc_count(void)
{
	return ((volatile struct phv_shared *)PHV_SHARED)->proc_count % PHV_MAX_PROCS;
}

/* A process that exists, or one that is starting. */
static volatile struct phv_proc *some_proc(struct fuzzer *f)
{
	return proc_at(below(f, proc_count() + 4));
}

static u64 edge(struct fuzzer *f)
{
	static const u64 edges[] = {
		0, 1, 2, 7, 64, 255, 4095, 4096, 0x10000, 1 << 21, 0x7fffffff, 0x80000000,
		0xffffffff, 1ull << 32, 1ull << 46,
		1ull << 47, 1ull << 63, ~0ull, ~0ull - 4095, PHV_LAYER_BASE, PHV_SHARED, PHV_ARENA,
		PHV_STACKS, PHV_POOL,
		PHV_DIRECT_MAP, PHV_HOLE_START, PHV_KERNEL_END, 0x7ffff7000000, 0xffffffffff600000,
	};

	return below(f, 4) ? edges[below(f, ARRAY_SIZE(edges))] : any(f) >> below(f, 64);
}

/* An address in the user range that this machine can do without, or any address. */
static u64 some_address(struct fuzzer *f)
{
	if (rarely(f))
		return edge(f) + below(f, 256) * PAGE_SIZE;
	return 64 * GIB * (1 + below(f, 64)) + below(f, 512) * PAGE_SIZE;
}

static u64 some_id(struct fuzzer *f)
{
	switch (below(f, 8)) {
	case 0:
	case 1:
		return zygote;
	case 2:
		return zygote - below(f, 64);
	case 3:
		return zygote + below(f, 512);
	case 4:
		return below(f, 8) ? below(f, 32768) : edge(f);
	case 5:
		return some_proc(f)->tid[below(f, machine.vcpus_online)];
	default:
		return some_proc(f)->pid;
	}
}

/* A call whose number the filter admits. */
static void admitted(struct fuzzer *f)
{
	static const u64 past[2];
	u64 pid = some_id(f), pages = 1 + below(f, below(f, 8) ? 8 : 4096);

	switch (below(f, 12)) {
	case 0:		/* wake */
		host_call(202, below(f, 2) ? PHV_SHARED + below(f, 512) * 8 : edge(f), 1,
			  below(f, 100), edge(f), edge(f), edge(f));
		break;
	case 1:		/* wait: with a timeout in the past, or for a value that is not there */
		host_call(202, below(f, 2) ? PHV_SHARED + below(f, 512) * 8 : edge(f), 9, edge(f),
			  (u64)past, edge(f), 0xffffffff);
		break;
	case 2:
	case 3:		/* map */
		host_call(9, some_address(f), pages * PAGE_SIZE, any(f) & 7,
			  below(f, 2) ? 0x11 : 0x8011,
			  PHV_FD_RAM + (rarely(f) ? below(f, 4) : 0),
			  below(f, 16 * KIB) * PAGE_SIZE);
		break;
	case 4:		/* protect */
		host_call(10, some_address(f), pages * PAGE_SIZE, rarely(f) ? edge(f) : any(f) & 7,
			  0, 0, 0);
		break;
	case 5:		/* unmap */
		host_call(11, some_address(f), pages * PAGE_SIZE, 0, 0, 0, 0);
		break;
	case 6:		/* advise */
		host_call(28, some_address(f), pages * PAGE_SIZE, (u64[]){ 4, 22, 23 }[below(f, 3)],
			  0, 0, 0);
		break;
	case 7:		/* signal */
		if (quiet && !rarely(f))
			break;
		host_call(234, pid, below(f, 4) ? pid : some_id(f), 23, edge(f), edge(f), edge(f));
		break;
	case 8:		/* many signals, mostly to the zygote */
		if (quiet && !rarely(f))
			break;
		pid = below(f, 4) ? zygote : pid;
		for (pages = below(f, 8) ? 0 : below(f, 128); pages; pages--, f->calls++)
			host_call(234, pid, pid, 23, 0, 0, 0);
		break;
	case 9:		/* time */
		host_call(228, below(f, 2) ? 1 : 3, rarely(f) ? edge(f) : (u64)f->scratch, 0, 0, 0,
			  0);
		break;
	case 10:
		host_call(below(f, 2) ? 24 : 219, edge(f), edge(f), edge(f), edge(f), edge(f),
			  edge(f));
		break;
	case 11:
		host_call(158, 0x1012, 1, 0, 0, 0, 0);
		break;
	}
	f->calls++;
}

/* With arbitrary registers, jump to an address where they may matter. */
static void jump(struct fuzzer *f)
{
	u64 regs[16], i, layer = PHV_LAYER_BASE + below(f, 0x10000);
	const u64 targets[] = { host_call_address(), layer, layer, (u64)h_int80, (u64)h_sysenter,
				(u64)h_syscall };

	for (i = 0; i < 15; i++)
		regs[i] = edge(f);
	/* Mostly the number of a host call. */
	if (below(f, 8))
		regs[0] = below(f, 512);
	f->calls++;
	h_enter(regs, targets[below(f, ARRAY_SIZE(targets))]);
}

/* Memory that the guest can write: its RAM, and what all of the machine's processes share. */
static void write_somewhere(struct fuzzer *f)
{
	u64 at, value = below(f, 2) ? edge(f) : any(f);

	switch (rarely(f) ? 4 + below(f, 9) : below(f, 4)) {
	case 0:		/* data that a starting process could act on */
	case 1:
		at = (u64)proc_at(proc_count() + below(f, 4)) + below(f, PHV_SIZE_PROC / 4) * 4;
		break;
	case 2:		/* messages, counters, events */
		at = PHV_SHARED + PHV_SHARED_EVENTS + below(f, 4096) * 4;
		break;
	case 3:		/* the filter, in case it is copied again */
		at = PHV_SHARED + PHV_SHARED_FILTER + below(f, PHV_FILTER_MAX) * 8;
		break;
	case 4:
		at = PHV_SHARED + below(f, PHV_SHARED_SIZE / 4) * 4;
		break;
	case 5:
		at = PHV_SHARED + below(f, PHV_SIZE_SHARED / 4) * 4;
		break;
	case 6:
		at = PHV_SHARED + PHV_SHARED_VCPUS +
		     below(f, machine.vcpus_online) * PHV_VCPU_STRIDE + below(f, 512) * 4;
		break;
	case 7:		/* the layer: its code and its data */
		at = PHV_LAYER_BASE + below(f, 0x20000 / 4) * 4;
		break;
	case 8:		/* its stacks; those for signals are in the upper half of each */
		at = PHV_STACKS + below(f, machine.vcpus_online * PHV_STACK_SIZE / 8) * 8;
		break;
	case 9:
		at = PHV_ARENA + below(f, PHV_ARENA_SIZE / 8) * 8;
		break;
	case 10:
		at = PHV_POOL + below(f, 1 << 20);
		break;
	case 11:	/* a process that runs */
		at = (u64)some_proc(f) + below(f, PHV_PROC_STRIDE / 4) * 4;
		break;
	default:
		at = machine.info.direct_map + below(f, 64 * MIB / 8) * 8;
	}
	if (below(f, 2))
		*(volatile u32 *)(at & ~3ull) = (u32)value;
	else
		*(volatile u64 *)(at & ~7ull) = value;
}

static void step(void *argument)
{
	struct fuzzer *f = argument;

	switch (below(f, 16)) {
	case 0:
	case 1:
	case 2:
	case 3:
		write_somewhere(f);
		break;
	case 4:
		hostile_wish((u32)below(f, 6));
		break;
	case 5:
		f->space = (u32)below(f, SPACES + 1);
		space_load(f->space < SPACES ? &spaces[f->space] : NULL);
		break;
	case 6:
		if (!rarely(f))
			break;
		if (below(f, 4))
			jump(f);
		else
			hostile_calls(&f->seed, false), f->calls++;
		break;
	default:
		admitted(f);
	}
}

static void report(void)
{
	u64 calls = 0;
	u32 i;

	for (i = 0; i < machine.vcpus_online; i++)
		calls += READ_ONCE(fuzzers[i].calls);
	print("# calls %llu\n", calls);
}

static void work(void *argument)
{
	struct fuzzer *f = fuzzer();
	struct test_jump back;
	struct catch catch;

	(void)argument;
	vmi.cpu_write_msr(MSR_LSTAR, (u64)h_syscall_entry);
	/* A check that fails returns here, and the work continues. */
	this_cpu()->test_jump = &back;
	jump_set(&back);
	while (now() < end_time) {
		catch_trap(&catch, step, f);
		if (!(++f->steps % REPORT) && !this_vcpu())
			report();
	}
}

void hostile_random(void)
{
	u64 seed = (option_number("seed") + 1) * 0x9e3779b97f4a7c15ull;
	u64 wild = (u64[]){ 1 << 14, 1 << 12, 1 << 9, 1 << 6 }[(random64(&seed) >> 9) % 4];
	char word[4];
	u32 i;

	for (i = 0; i < SPACES; i++)
		space_create(&spaces[i]);
	for (i = 0; i < machine.vcpus_online; i++) {
		fuzzers[i].seed = random64(&seed);
		fuzzers[i].wild = wild;
	}
	quiet = option("quiet", word, sizeof(word));
	/*
	 * The zygote's id is most often one less than the first process's. No signal is needed to
	 * guess it.
	 */
	zygote = quiet ? proc_at(0)->pid - 1 : hostile_zygote();
	end_time = now() + (option_number("ms") ?: 1000) * NS_PER_US * 1000;
	print("# fuzzing: one step in %llu is wild\n", wild);
	for (i = 1; i < machine.vcpus_online; i++)
		run_on(i, work, NULL);
	work(NULL);
	report();
}
