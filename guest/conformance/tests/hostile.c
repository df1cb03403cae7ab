// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * A guest that tries to harm the process hypervisor: hostile=MODE seed=N count=N. Whatever happens
 * to this machine, the monitor must survive, report what happened, and leave nothing on the host.
 * Not a part of the suite.
 */
#include <paravane/process.h>

#include "hostile.h"
#include "harness.h"
#include "pages.h"
#include "test.h"

#define VECTOR_NOISE 0x66

static u64 seed;
static struct space space;

static u64 below(u64 limit)
{
	return (random64(&seed) >> 7) % limit;
}

/* --- idle --- */

static void halt_until(void *argument)
{
	u64 end = *(u64 *)argument;

	CHECK_RESULT(vmi.time_set_alarm(VMI_TIME_REAL, end, 0, VECTOR_NOISE), 0);
	while (now() < end) {
		halt();
		irq_disable();
	}
}

static void acknowledge(struct regs *regs)
{
	(void)regs;
	vmi.time_ack_alarm();
}

void run_idle(u64 seconds)
{
	static struct test_jump jump;
	static u64 end;
	u32 i;

	this_cpu()->test_jump = &jump;
	if (jump_set(&jump))
		panic("idle");
	end = now() + seconds * NS_PER_S;
	set_deadline((seconds + 60) * NS_PER_S);
	set_irq_handler(VECTOR_NOISE, acknowledge);
	print("# idle\n");
	for (i = 1; i < machine.vcpus_online; i++)
		run_on(i, halt_until, &end);
	halt_until(&end);
	for (i = 1; i < machine.vcpus_online; i++)
		wait_for(i);
}

/* --- ordinary work in the background, so that damage shows --- */

static void ignore(struct regs *regs)
{
	(void)regs;
	vmi.time_ack_alarm();
}

static void noise(void)
{
	u64 value = 0;

	switch (below(8)) {
	case 0:
		send_icr(0, ICR_ALL | ICR_FIXED | VECTOR_NOISE);
		break;
	case 1:
		space_load(below(2) ? &space : NULL);
		break;
	case 2:
		vmi.time_set_alarm(VMI_TIME_REAL, now() + below(100000), 0, VECTOR_NOISE);
		irq_enable();
		halt();
		irq_disable();
		break;
	case 3:
		vmi.mmu_flush_tlb(VMI_FLUSH_ALL);
		break;
	case 4:
		try_access(KERNEL_READ, USER_DATA + below(512) * PAGE_SIZE, &value);
		break;
	case 5:
		vmi.lock_kick(below(machine.vcpus_online));
		break;
	default:
		irq_enable();
		pause();
		irq_disable();
	}
}

static void others(void *argument)
{
	(void)argument;
	for (;;)
		noise();
}

/* --- scribble --- */

static void scribble(void)
{
	static const u64 parts[] = { 0, 0, 0x800, PHV_SHARED_CONSOLE, PHV_SHARED_VCPUS,
				     PHV_SHARED_VCPUS,
				     PHV_SHARED_PROCS, PHV_SHARED_PROCS };
	static const u64 values[] = { 0, 1, 2, 3, ~0ull, 1ull << 32, 1ull << 63, PHV_SHARED,
				      PHV_LAYER_BASE };
	u64 at = below(16) ? parts[below(ARRAY_SIZE(parts))] + below(256) * 4 :
		below(PHV_SHARED_SIZE) & ~3ull;
	u64 value = below(2) ? values[below(ARRAY_SIZE(values))] : random64(&seed);

	if (at >= PHV_SHARED_VCPUS && at < PHV_SHARED_VCPUS + 0x1000)
		at += below(machine.vcpus_online) * PHV_VCPU_STRIDE;
	if (at >= PHV_SHARED_PROCS && at < PHV_SHARED_PROCS + 0x1000)
		at += below(8) * PHV_PROC_STRIDE;
	if (below(2))
		WRITE_ONCE(*(u64 *)(PHV_SHARED + (at & ~7ull)), value);
	else
		WRITE_ONCE(*(u32 *)(PHV_SHARED + at), (u32)value);
	if (!below(4))
		noise();
}

/* --- wild tables --- */

static u64 wild_entry(void)
{
	u64 gpa = below(2) ? to_gpa((void *)((u64)to_linear(space.root))) :
		below(1ull << (8 + below(45))) & PTE_ADDRESS;

	return gpa | (random64(&seed) & (below(2) ? 0xfff : ~PTE_ADDRESS)) |
	       (below(4) ? PTE_P | PTE_W | PTE_U : 0);
}

static void wild_tables(void)
{
	struct vmi_table_register table = { .base = random64(&seed),
					    .limit = (u16)random64(&seed) };
	struct catch catch;
	u64 value = 0, i;

	switch (below(12)) {
	case 0:
		set_cr3(wild_entry(), random64(&seed), random64(&seed));
		break;
	case 1:
		if (!below(64))
			vmi.cpu_set_idt(&table);
		break;
	case 2:
		if (!below(64))
			vmi.cpu_set_gdt(&table);
		break;
	case 3:
		if (!below(64))
			WRITE_ONCE(*(u64 *)&this_cpu()->vmi, random64(&seed));
		if (!below(64))
			WRITE_ONCE(((u64 *)&this_cpu()->vmi)[2], random64(&seed));
		if (!below(64))
			vmi.cpu_set_kernel_stack(&this_cpu()->tss, random64(&seed));
		break;
	case 4:
		space_load(&space);
		break;
	default:
		for (i = 0; i < 8; i++) {
			u64 *t = to_linear(space.tables[below(space.table_count)].gpa);

			/* Only the user half of roots: this code runs in the kernel half. */
			t[below(below(2) ? 8 : 256)] = wild_entry();
		}
		vmi.mmu_flush_tlb(VMI_FLUSH_USER);
		try_access(below(2) ? KERNEL_READ : KERNEL_WRITE,
			   random64(&seed) & (machine.info.user_end - 1), &value);
		catch_trap(&catch, (void (*)(void *))(random64(&seed) & 0xfffff000), NULL);
		break;
	}
}

/* --- floods --- */

/*
 * Pages of a thread's part that are not mapped: after its record, between its stacks, after the
 * second stack.
 */
static bool between_stacks(u64 offset)
{
	return offset == PAGE_SIZE || offset == PHV_STACK_SIZE / 2 ||
	       offset == PHV_STACK_SIZE - PAGE_SIZE;
}

/* Floods one process, before the next one starts. */
static void flood_here(u64 kind)
{
	u64 i, va;

	switch (kind) {
	case 3:
		for (va = PHV_ARENA + 16 * PAGE_SIZE; va < PHV_ARENA + PHV_ARENA_SIZE;
		     va += PAGE_SIZE)
			*(volatile u8 *)va = 1;
		for (i = 1; i < machine.vcpus_online; i++)
			for (va = 0; va < PHV_STACK_SIZE; va += PAGE_SIZE)
				/* Keep the value: a thread uses this memory. */
				if (!between_stacks(va))
					__atomic_fetch_or((u8 *)(PHV_STACKS + i * PHV_STACK_SIZE +
								 va), 0,
							  __ATOMIC_RELAXED);
		break;
	case 7:
		for (i = 0, va = GIB * 4; i < 60000; i++, va += 2 * PAGE_SIZE)
			host_call(9, va, PAGE_SIZE, 7, 0x11, PHV_FD_RAM, 0);
		break;
	case 8:
		for (i = 0, va = GIB * 4; i < 2000; i++, va += GIB)
			host_call(9, va, PAGE_SIZE, 7, 0x8011, PHV_FD_RAM, 0);
		break;
	}
}

static void in_all_spaces(u64 kind)
{
	static struct space spaces[1024];
	volatile struct phv_shared *s = (void *)PHV_SHARED;
	u64 va;
	u32 i;

	/* All processes share one pool. */
	for (va = 0; kind == 3 && va < s->pool_chunks * PHV_POOL_CHUNK; va += PAGE_SIZE)
		*(volatile u8 *)(PHV_POOL + va) = 1;
	s->proc_wanted = 1024;
	s->doorbell++;
	host_call(202, (u64)&s->doorbell, 1, 1, 0, 0, 0);
	for (i = 0; i < ARRAY_SIZE(spaces); i++) {
		while (s->proc_count <= i + 2 && s->proc_count < s->proc_limit)
			pause();
		if (s->proc_count <= i + 2)
			break;
		space_create(&spaces[i]);
		space_load(&spaces[i]);
		flood_here(kind);
	}
	print("# flooded %u spaces\n", i);
	space_load(NULL);
}

static void flood(u64 kind)
{
	u64 i, va, ram = 64 * MIB;
	u64 *root, *upper, *middle, *table;

	switch (kind) {
	case 0:		/* two tables for each page */
		for (va = GIB * 4; va < machine.info.user_end; va += GIB)
			host_call(9, va, PAGE_SIZE, 7, 0x8011, PHV_FD_RAM, 0);
		break;
	case 1:
		/*
		 * A full table for each 2 MiB, in few mappings. They are not aligned, so that the
		 * host cannot use large pages.
		 */
		for (va = GIB * 4 + PAGE_SIZE; va + ram <= machine.info.user_end; va += ram)
			host_call(9, va, ram, 7, 0x8011, PHV_FD_RAM, 0);
		break;
	case 2:		/* many mappings in few tables: their cost is not in the tables */
		for (va = GIB * 4; va < GIB * 5; va += 2 * PAGE_SIZE)
			host_call(9, va, PAGE_SIZE, 7, 0x11, PHV_FD_RAM, 0);
		break;
	case 3:		/* the layer's own memory, in as many processes as the machine can have */
	case 7:		/* many mappings in each of them */
	case 8:		/* tables */
		in_all_spaces(kind);
		break;
	/* 4, 5, 6: the guest's own tables map pages everywhere: small, large, adjacent large. */
	default:
		space_create(&space);
		space_load(&space);
		root = to_linear(space.root);
		upper = to_linear(alloc_page());
		middle = to_linear(alloc_page());
		table = to_linear(alloc_page());
		for (i = 0; i < 512; i++) {
			upper[i] = to_gpa(middle) | PTE_P | PTE_W | PTE_U;
			middle[i] = kind == 4 ? to_gpa(table) | PTE_P | PTE_W | PTE_U :
						4 * MIB | PTE_P | PTE_W | PTE_U | PTE_PS;
			table[i] = space.root | PTE_P | PTE_U;
		}
		for (i = 2; i < 98; i++)
			if (!(root[i] & PTE_P))
				root[i] = to_gpa(upper) | PTE_P | PTE_W | PTE_U;
		for (i = 0; i < 60000; i++)
			(void)*(volatile u64 *)(kind == 6 ? 1024 * GIB + i * LARGE_SIZE :
						(2 + below(96)) * 512 * GIB + below(512) * GIB +
						below(512) * LARGE_SIZE);
		space_load(NULL);
	}
}

/*
 * Data that a starting process could act on: its wake words, the numbers and stacks of the vCPUs.
 */
static void grow(u64 count)
{
	volatile struct phv_shared *s = (void *)PHV_SHARED;
	bool peace = true;
	u64 at, value, end, n;

	for (n = 0; n < count; n++) {
		if (!(n % 256)) {
			u32 wanted = s->proc_count + 4;

			s->proc_wanted = wanted;
			s->doorbell++;
			host_call(202, (u64)&s->doorbell, 1, 1, 0, 0, 0);
			/*
			 * The first process that is hit ends the growth. So spare some, and always
			 * the first ones.
			 */
			for (end = now() + NS_PER_S;
			     peace && s->proc_count < wanted && now() < end;)
				;
			peace = !below(64);
		}
		at = PHV_SHARED_PROCS + (s->proc_count + below(4)) * PHV_PROC_STRIDE +
		     below(256) * 4;
		value = below(4) ? 1 : random64(&seed);
		/*
		 * Among the vCPUs, one that does not run: it must not start before its request.
		 */
		if (below(2)) {
			at = PHV_SHARED_VCPUS + (machine.vcpus_online - 1) * PHV_VCPU_STRIDE +
			     0x100 + below(128) * 4;
			value = below(2) ? PHV_STACKS + below(PHV_STACK_SIZE) : random64(&seed);
		}
		WRITE_ONCE(*(u32 *)(PHV_SHARED + at), (u32)value);
		if (!below(64))
			host_call(202, PHV_SHARED + at, 1, 64, 0, 0, 0);
	}
}

static void storms(const char *mode)
{
	volatile struct phv_vcpu *v = (void *)(PHV_SHARED + PHV_SHARED_VCPUS);
	volatile struct phv_shared *s = (void *)PHV_SHARED;
	u64 end = now() + 5 * NS_PER_S, n = 0;

	while (now() < end) {
		n++;
		if (!strcmp(mode, "alarms")) {
			v->deadline_ns = n;
			s->alarm_word++;
		} else if (!strcmp(mode, "alarm")) {
			v->deadline_ns = 1;
		} else if (!strcmp(mode, "doorbell")) {
			s->doorbell++;
			s->proc_wanted = (u32)n << 31;
			host_call(202, (u64)&s->doorbell, 1, 1, 0, 0, 0);
		} else if (!strcmp(mode, "console")) {
			print("# noise %llu ............................................\n",
			      n);
		} else if (!strcmp(mode, "ipis")) {
			send_icr(0, ICR_OTHERS | VECTOR_NOISE);
		}
	}
	v->deadline_ns = ~0ull;
}

static void loop(const char *mode, u64 count)
{
	for (; count; count--) {
		if (!strcmp(mode, "calls"))
			hostile_calls(&seed, random64(&seed) & 0x80);
		else if (!strcmp(mode, "scribble"))
			scribble();
		else
			wild_tables();
	}
}

bool run_hostile(const char *mode)
{
	static struct test_jump jump;
	char word[24];
	u32 i;

	seed = (option_number("seed") + 1) * 0x9e3779b97f4a7c15ull;
	this_cpu()->test_jump = &jump;
	set_deadline(3600 * NS_PER_S);
	set_irq_handler(VECTOR_NOISE, ignore);
	print("# hostile: %s\n", mode);
	if (!strcmp(mode, "grow")) {
		grow(option_number("count") ?: 1000);
		return true;
	}
	if (!strcmp(mode, "feed")) {
		feed(!option_number("leave"));
		return true;
	}
	if (!strcmp(mode, "break"))
		break_queues();
	if (!strcmp(mode, "signals")) {
		hostile_signals();
		return true;
	}
	if (!strcmp(mode, "random")) {
		hostile_random();
		return true;
	}
	if (hostile_attack(mode))
		return true;
	if (!strcmp(mode, "flood")) {
		flood(option_number("kind"));
		return true;
	}
	if (strcmp(mode, "calls") && strcmp(mode, "scribble") && strcmp(mode, "cr3")) {
		storms(mode);
		return true;
	}
	space_create(&space);
	space_load(&space);
	for (i = 0; i < 8; i++)
		space_set(&space, USER_DATA + i * PAGE_SIZE, identity_page() | USER_RW,
			  VMI_LEVEL_PT);
	if (option("others", word, sizeof(word)))
		for (i = 1; i < machine.vcpus_online; i++)
			run_on(i, others, NULL);
	/* A check that fails returns here, and the work continues. */
	jump_set(&jump);
	loop(mode, option_number("count") ?: 1000);
	return true;
}
