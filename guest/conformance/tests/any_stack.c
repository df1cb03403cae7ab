// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * A system call keeps the program's stack pointer until the kernel's entry has switched stacks, and
 * on the way back the kernel loads it before cpu.sysret. It can hold any value, and nothing that
 * happens in between may use it: an NMI has a stack of its own, and a layer that does some work
 * there has its own, too.
 */
#include "any_stack.h"
#include "harness.h"
#include "test.h"
#include "user_mode.h"

#define VECTOR_A	0x5a
#define MSR_LSTAR	0xc0000082
#define EVENTS		400		/* option "events": more, for a fault that needs luck */
#define CALLS		20		/* in one run of the program */
#define CANARY		0x5afe5afe5afe5afeull

void syscall_entry(void);
void k_slow_call_entry(void);
void k_stack_call_entry(void);

static struct space space;
static u64 canary[64] __attribute__((aligned(16)));
static u32 ready;
static u64 errors, events;

/* The last one is valid kernel memory. */
#define STACKS 9

static u64 stack_of(u32 i)
{
	const u64 stacks[STACKS] = {
		0, 8, USER_DATA + 64 * PAGE_SIZE, (u64)to_linear(1ull << 40), 0x8000000000001000,
		0x0000800000000000,
		~0ull, ~15ull, (u64)(canary + 48),
	};

	return stacks[i];
}

static bool canary_intact(void)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(canary); i++)
		if (canary[i] != CANARY)
			return false;
	return true;
}

static bool run(u64 in, u64 out)
{
	struct user_context context;

	user_init(&context, u_any_stack);
	context.in.rdi = in;
	context.in.r8 = out;
	context.in.rsi = CALLS;
	user_run(&context);
	return context.out.vector == VECTOR_USER_GATE && !context.out.rax && context.out.rsp == out;
}

/*
 * Without a processor's stack for NMIs, a layer cannot tell valid kernel memory from a program's
 * stack, unless the program entered with it.
 */
static bool run_any(u64 *seed)
{
	u64 random = random64(seed);
	u32 in = random % STACKS, out = (random >> 16) % (STACKS - 1);

	return run(stack_of(in), stack_of(random >> 32 & 1 ? in : out));
}

u64 any_stack_calls(bool (*until)(void))
{
	u64 wrong = 0, seed = 1234567;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(canary); i++)
		canary[i] = CANARY;
	vmi.cpu_write_msr(MSR_LSTAR, (u64)k_slow_call_entry);
	while (!until()) {
		wrong += !run_any(&seed);
		watch("events");
	}
	vmi.cpu_write_msr(MSR_LSTAR, (u64)syscall_entry);
	return wrong + !canary_intact();
}

static bool nmis_over(void)
{
	return READ_ONCE(k_nmis) >= events;
}

static u64 interrupts_before;

static bool interrupts_over(void)
{
	return irq_count(1, VECTOR_A) >= interrupts_before + events;
}

static void caller(void *nmis)
{
	space_create(&space);
	space_load(&space);
	if (nmis)
		count_nmis_begin();
	atomic_store(&ready, 1);
	errors = any_stack_calls(nmis ? nmis_over : interrupts_over);
	if (nmis)
		count_nmis_end();
	space_load(NULL);
	space_destroy(&space);
}

/* The program's stack pointer is the one that the kernel itself works on. */
static void caller_on_own(void *argument)
{
	struct percpu *cpu = this_cpu();
	u64 stack = 0;

	(void)argument;
	space_create(&space);
	space_load(&space);
	count_nmis_begin();
	vmi.cpu_write_msr(MSR_LSTAR, (u64)k_stack_call_entry);
	errors = 0;
	atomic_store(&ready, 1);
	while (!nmis_over()) {
		errors += !run(stack, stack);
		/* From now on, the program works at a frame of the kernel's own stack. */
		stack = cpu->kernel_rsp - 5 * 8;
		watch("NMIs");
	}
	errors += stack != cpu->kernel_rsp - 5 * 8;
	vmi.cpu_write_msr(MSR_LSTAR, (u64)syscall_entry);
	count_nmis_end();
	space_load(NULL);
	space_destroy(&space);
}

static void storm(void (*function)(void *))
{
	events = option_number("events") ?: EVENTS;
	k_nmis = ready = 0;
	run_on(1, function, (void *)1);
	WAIT_UNTIL(atomic_load(&ready));
	send_nmis(1, events);
	wait_for(1);
	CHECK_EQ(errors, 0);
}

TEST(nmi_any_stack, "cpu.set_kernel_stack.nmi_any_stack", 2, 0, CPU_SET_KERNEL_STACK, APIC_SEND_IPI,
     CPU_SYSRET)
{
	storm(caller);
}

TEST(nmi_own_stack, "cpu.set_kernel_stack.nmi_own_stack", 2, 0, CPU_SET_KERNEL_STACK, APIC_SEND_IPI,
     CPU_SYSRET)
{
	storm(caller_on_own);
}

static void ignore(struct regs *regs)
{
	(void)regs;
}

/*
 * Interrupts arrive while the stack pointer is the program's. They are disabled then, so they stay
 * pending.
 */
TEST(irq_any_stack, "cpu.set_kernel_stack.irq_any_stack", 2, 0, CPU_SET_KERNEL_STACK, APIC_SEND_IPI,
     CPU_SYSRET)
{
	u32 i;

	set_irq_handler(VECTOR_A, ignore);
	events = option_number("events") ?: EVENTS;
	interrupts_before = irq_count(1, VECTOR_A);
	ready = 0;
	run_on(1, caller, NULL);
	WAIT_UNTIL(atomic_load(&ready));
	for (i = 1; i <= events; i++) {
		CHECK_RESULT(send_ipi(1, VECTOR_A), 0);
		WAIT_UNTIL(irq_count(1, VECTOR_A) >= interrupts_before + i);
	}
	wait_for(1);
	CHECK_EQ(errors, 0);
}
