// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Rows about system calls, interrupts to itself, and switches of spaces. */
#include "vmi_bench.h"
#include "test.h"
#include "user_mode.h"

#define MSR_LSTAR	0xc0000082
#define VECTOR_BENCH	0x60
/* Where a layer's call stubs may be: bits 16 to 23 are 06. */
#define SLOTS		0x10060000ull

void syscall_entry(void);

static struct space space, other;
static u64 taken;

/* The kernel's work in a system call, by number. */
typedef u64 call_fn(void);

static u64 parent = 1;

static u64 call_getppid(void)
{
	return READ_ONCE(parent);
}

static call_fn *const calls[128] = { [BENCH_GETPPID] = call_getppid };

/* Called by bench_syscall_entry. */
void bench_syscall(struct regs *regs);

void bench_syscall(struct regs *regs)
{
	u64 number = regs->rax;

	irq_enable();
	regs->rax = number < ARRAY_SIZE(calls) && calls[number] ? calls[number]() : -38ull;
}

static bool begin_calls(void)
{
	space_create(&space);
	vmi.cpu_write_msr(MSR_LSTAR, (u64)bench_syscall_entry);
	space_load(&space);
	return true;
}

static void end_calls(void)
{
	vmi.cpu_write_msr(MSR_LSTAR, (u64)syscall_entry);
	space_load(NULL);
	space_destroy(&space);
}

/* Rewrites the program's first site, before user code has run at all. */
static bool begin_injected(void)
{
	u64 page = alloc_page(), *pte;
	struct vmi_patch_area area = { SLOTS, (u64)to_linear(page), PAGE_SIZE, 0 };
	struct vmi_syscall_site site;
	u8 *text;

	begin_calls();
	if (in_hole(SLOTS, SLOTS + PAGE_SIZE))
		return false;
	space_set(&space, SLOTS, page | PTE_P | PTE_U, VMI_LEVEL_PT);
	memset(&site, 0, sizeof(site));
	site.addr = USER_ADDRESS(u_bench_calls);
	site.length = 7;
	site.syscall_offset = 5;
	pte = space_pte(&space, site.addr, VMI_LEVEL_PT);
	text = (u8 *)to_linear(*pte & PTE_ADDRESS) + site.addr % PAGE_SIZE;
	memcpy(site.code, text, site.length);
	if (!vmi.patch_claim || vmi.patch_claim(&area, &site))
		return false;
	memcpy(text, site.patch, site.patch_length);
	return true;
}

static void run_injected(u64 ops)
{
	user_call(u_bench_calls, ops, 0);
}

static void run_trapped(u64 ops)
{
	user_call(u_bench_calls_trapped, ops, 0);
}

static bool begin_switch(void)
{
	space_create(&space);
	space_create(&other);
	return true;
}

static void run_switch(u64 ops)
{
	for (; ops; ops -= 2) {
		set_cr3(space.root, space.context, space.generation);
		set_cr3(other.root, other.context, other.generation);
	}
}

static void end_switch(void)
{
	space_load(NULL);
	space_destroy(&space);
	space_destroy(&other);
}

static void take(struct regs *regs)
{
	(void)regs;
	taken++;
}

static bool begin_interrupt(void)
{
	set_irq_handler(VECTOR_BENCH, take);
	return true;
}

static void run_interrupt(u64 ops)
{
	u64 before = taken, i;

	irq_enable();
	for (i = 0; i < ops; i++) {
		vmi.apic_send_ipi(ICR_SELF | VECTOR_BENCH);
		/* Real APICs take a moment. */
		while (READ_ONCE(taken) == before + i)
			pause();
	}
	irq_disable();
}

const struct vmi_row vmi_rows_user[] = {
	{ "syscall_injected", 1, 5000, 201, begin_injected, NULL, run_injected, end_calls },
	{ "syscall_trapped", 1, 100, 201, begin_calls, NULL, run_trapped, end_calls },
	{ "address_space_switch", 1, 100, 201, begin_switch, NULL, run_switch, end_switch },
	{ "interrupt", 1, 100, 201, begin_interrupt, NULL, run_interrupt, NULL },
};
const u32 vmi_rows_user_count = ARRAY_SIZE(vmi_rows_user);
