// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Exceptions in kernel and user mode: vector, error code, frame. */
#include "harness.h"
#include "test.h"
#include "user_mode.h"

extern char k_divide_at[], k_ud2_at[], k_int3_after[], k_noncanonical_at[],
	k_stack_at[], k_step_after[], k_registers_after[];
void k_divide(void *argument), k_ud2(void *argument), k_int3(void *argument),
	k_noncanonical(void *argument), k_stack(void *argument),
	k_step(void *argument), k_iret(void *frame), k_registers(void *words);

static struct space space;

static void enter_space(void)
{
	space_create(&space);
	space_load(&space);
}

static void leave_space(void)
{
	space_load(NULL);
	space_destroy(&space);
}

/* --- in kernel mode --- */

struct kernel_case {
	void (*function)(void *argument);
	const char *rip;
	u32 vector;
	u64 error;
};

static const struct kernel_case kernel_cases[] = {
	{ k_divide, k_divide_at, VECTOR_DE, 0 },
	{ k_ud2, k_ud2_at, VECTOR_UD, 0 },
	{ k_int3, k_int3_after, VECTOR_BP, 0 },
	{ k_noncanonical, k_noncanonical_at, VECTOR_GP, 0 },
	{ k_stack, k_stack_at, VECTOR_SS, 0 },
	{ k_step, k_step_after, VECTOR_DB, 0 },
};

/* A processor leaves SS null after an interrupt in user mode, until the iret. */
static void check_kernel_ss(u64 ss)
{
	if (ss)
		CHECK_EQ(ss, KERNEL_SS);
}

static void kernel_exception(u64 number)
{
	const struct kernel_case *c = &kernel_cases[number];
	struct catch catch;
	u64 enabled;

	for (enabled = 0; enabled < 2; enabled++) {
		if (enabled)
			irq_enable();
		else
			irq_disable();
		CHECK(catch_trap(&catch, c->function, NULL));
		/* Some emulators raise #GP for #SS. */
		if (c->vector != VECTOR_SS || catch.vector != VECTOR_GP)
			CHECK_EQ(catch.vector, c->vector);
		CHECK_EQ(catch.regs.error, c->error);
		CHECK_EQ(catch.regs.rip, (u64)c->rip);
		CHECK_EQ(catch.regs.cs, KERNEL_CS);
		check_kernel_ss(catch.regs.ss);
		CHECK_EQ(!!(catch.regs.rflags & FLAGS_IF), enabled);
		CHECK_EQ(irqs_enabled(), enabled);
	}
}
TEST_OF(kernel_de, "exception.kernel.divide", kernel_exception, 0, 1, 0, CPU_SET_IDT);
TEST_OF(kernel_ud, "exception.kernel.invalid_opcode", kernel_exception, 1, 1, 0, CPU_SET_IDT);
TEST_OF(kernel_bp, "exception.kernel.breakpoint", kernel_exception, 2, 1, 0, CPU_SET_IDT);
TEST_OF(kernel_gp, "exception.kernel.protection", kernel_exception, 3, 1, 0, CPU_SET_IDT);
TEST_OF(kernel_ss, "exception.kernel.stack", kernel_exception, 4, 1, 0, CPU_SET_IDT);
TEST_OF(kernel_db, "exception.kernel.single_step", kernel_exception, 5, 1, 0, CPU_SET_IDT);

static void go_on(struct regs *regs)
{
	(void)regs;
}

/* A handler that returns: the interrupted code sees no change. */
TEST(exception_registers, "exception.kernel.registers", 1, 0, CPU_IRET, CPU_SET_IDT)
{
	static u64 words[32];
	static struct fpu_state before, after;
	enum fpu_level level = fpu_level();
	u64 seed = 99;
	u32 i;

	set_irq_handler(VECTOR_BP, go_on);
	for (i = 0; i < 16; i++)
		words[i] = random64(&seed);
	fpu_fill(&before, 31);
	fpu_load(&before, level);
	k_registers(words);
	fpu_store(&after, level);
	for (i = 0; i < 16; i++)
		if (i != RSP)
			CHECK_EQ(words[16 + i], words[i]);
	fpu_compare(&before, &after, "after an exception");
}

#define NMIS 1500

static u32 storm_ready;
static u64 storm_errors;

static void except_in_storm(void *argument)
{
	static u64 words[32];
	u64 seed = 4, i;

	(void)argument;
	count_nmis_begin();
	atomic_store(&storm_ready, 1);
	while (READ_ONCE(k_nmis) < NMIS) {
		for (i = 0; i < 16; i++)
			words[i] = random64(&seed);
		k_registers(words);
		for (i = 0; i < 16; i++)
			if (i != RSP && words[16 + i] != words[i])
				storm_errors++;
		watch("NMIs");
	}
	count_nmis_end();
}

/* An NMI arrives between any two instructions of the way into the kernel and back. */
TEST(exception_nmi, "exception.kernel.nmi", 2, 0, CPU_IRET, CPU_SET_IDT, APIC_SEND_IPI)
{
	set_irq_handler(VECTOR_BP, go_on);
	k_nmis = storm_errors = 0;
	storm_ready = 0;
	/* Each is two turns of a processor that both vCPUs share. */
	set_deadline(60 * NS_PER_S);
	run_on(1, except_in_storm, NULL);
	WAIT_UNTIL(atomic_load(&storm_ready));
	send_nmis(1, NMIS);
	wait_for(1);
	CHECK_EQ(storm_errors, 0);
}

/* --- iret --- */

struct bad_frame {
	u64 cs, ss, rip;
};

static void bad_iret(u64 number)
{
	static const struct bad_frame frames[] = {
		{ 0, USER_SS, 0x1000 },			/* null code segment */
		{ USER_SS, USER_SS, 0x1000 },		/* data as code */
		{ USER_CS, KERNEL_SS, 0x1000 },		/* stack of another privilege level */
		{ GDT_ENTRIES * 8 | 3, USER_SS, 0x1000 }, /* outside the table */
		{ USER_CS, USER_SS, 0x800000000000 },	/* not canonical */
	};
	const struct bad_frame *bad = &frames[number];
	struct catch catch;
	u64 words[5] = { bad->rip, bad->cs, FLAGS_FIXED, 0x2000, bad->ss };

	CHECK(catch_trap(&catch, k_iret, words));
	CHECK_EQ(catch.vector, VECTOR_GP);
	CHECK_EQ(catch.regs.cs, KERNEL_CS);
	CHECK_EQ(vmi.cpu_get_gs_base(), (u64)this_cpu());
}
TEST_OF(iret_null, "cpu.iret.null_cs", bad_iret, 0, 1, 0, CPU_IRET);
TEST_OF(iret_data, "cpu.iret.data_as_cs", bad_iret, 1, 1, 0, CPU_IRET);
TEST_OF(iret_ss, "cpu.iret.bad_ss", bad_iret, 2, 1, 0, CPU_IRET);
TEST_OF(iret_limit, "cpu.iret.cs_outside", bad_iret, 3, 1, 0, CPU_IRET);

/* Processors differ in where they raise the fault for a bad rip: at the iret or at the target. */
TEST(iret_rip, "cpu.iret.noncanonical_rip", 1, 0, CPU_IRET)
{
	struct user_context context;
	struct catch catch;
	u64 words[5] = { 0x800000000000, KERNEL_CS, FLAGS_FIXED, (u64)&catch - 4096,
			 KERNEL_SS };

	(void)context;
	CHECK(catch_trap(&catch, k_iret, words));
	CHECK_EQ(catch.vector, VECTOR_GP);
	CHECK_EQ(catch.regs.error, 0);
}

/* --- in user mode --- */

struct user_case {
	const char *label;
	u32 vector;
	s32 offset;		/* of rip from the label */
	u64 error;
};

static const struct user_case user_cases[] = {
	{ u_ud2, VECTOR_UD, 0, 0 },
	{ u_int3, VECTOR_BP, 1, 0 },
	{ u_overflow, VECTOR_OF, 2, 0 },
	{ u_divide, VECTOR_DE, 9, 0 },
	{ u_noncanonical, VECTOR_GP, 10, 0 },
	{ u_int_kernel, VECTOR_GP, 0, VECTOR_TRAP_GATE << 3 | 2 },
	{ u_cli, VECTOR_GP, 0, 0 },
	{ u_sti, VECTOR_GP, 0, 0 },
	{ u_hlt, VECTOR_GP, 0, 0 },
	{ u_rdcr3, VECTOR_GP, 0, 0 },
	{ u_invlpg, VECTOR_GP, 0, 0 },
	{ u_lgdt, VECTOR_GP, 0, 0 },
	{ u_swapgs, VECTOR_GP, 0, 0 },
	{ u_rdmsr, VECTOR_GP, 5, 0 },
	{ u_inb, VECTOR_GP, 5, 0 },
	{ u_int_gate, VECTOR_USER_GATE, 2, 0 },
};

static void user_exception(u64 number)
{
	const struct user_case *c = &user_cases[number];
	struct user_context context;

	enter_space();
	CHECK(user_try(&context, c->label, USER_STACK, 0));
	CHECK_EQ(context.out.vector, c->vector);
	/* QEMU up to 9 counts gates of 16 bytes in this error code, not of 8. */
	if (!c->error || context.out.error != ((c->error & ~7) << 1 | 2))
		CHECK_EQ(context.out.error, c->error);
	CHECK_EQ(context.out.rip, USER_ADDRESS(c->label) + c->offset);
	CHECK_EQ(context.out.cs, USER_CS);
	CHECK_EQ(context.out.ss, USER_SS);
	CHECK_EQ(context.out.rsp, USER_STACK_TOP);
	CHECK(context.out.rflags & FLAGS_IF);
	/* An interrupt gate. */
	CHECK(!context.irqs_on);
	CHECK_EQ(vmi.cpu_get_gs_base(), (u64)this_cpu());
	leave_space();
}
#define USER_EXCEPTION(n, what) \
	TEST_OF(user_case_##n, "exception.user." what, user_exception, n, 1, 0, \
		CPU_IRET, CPU_SET_KERNEL_STACK, CPU_SWAPGS)
USER_EXCEPTION(0, "invalid_opcode");
USER_EXCEPTION(1, "breakpoint");
USER_EXCEPTION(2, "overflow");
USER_EXCEPTION(3, "divide");
USER_EXCEPTION(4, "noncanonical");
USER_EXCEPTION(5, "kernel_gate");
USER_EXCEPTION(6, "cli");
USER_EXCEPTION(7, "sti");
USER_EXCEPTION(8, "hlt");
USER_EXCEPTION(9, "read_cr3");
USER_EXCEPTION(10, "invlpg");
USER_EXCEPTION(11, "lgdt");
USER_EXCEPTION(12, "swapgs");
USER_EXCEPTION(13, "rdmsr");
USER_EXCEPTION(14, "in");
USER_EXCEPTION(15, "user_gate");

/* #NM for user code, with CR0.TS. */
TEST(user_nm, "exception.user.task_switched", 1, 0, CPU_SET_CR0)
{
	struct user_context context;

	if (!(layer_features(VMI_SECTION_CPU) & VMI_CPU_TASK_SWITCHED))
		test_skip("the layer keeps CR0.TS only");
	enter_space();
	set_cr0(cpu_cr0() | CR0_TS);
	CHECK_EQ(user_try(&context, u_fp, 0, 0), VECTOR_NM + 1);
	clts();
	CHECK_EQ(user_try(&context, u_fp, 0, 0), 0);
	leave_space();
}

/* iret with TF: exactly one instruction, then #DB. */
TEST(user_step, "cpu.iret.trap_flag", 1, 0, CPU_IRET)
{
	struct user_context context;
	u32 i;

	enter_space();
	user_init(&context, u_steps);
	for (i = 1; i <= 3; i++) {
		context.in.rflags |= FLAGS_TF;
		user_run(&context);
		CHECK_EQ(context.out.vector, VECTOR_DB);
		CHECK_EQ(context.out.rip, USER_ADDRESS(u_steps) + 5 * i);
		CHECK_EQ(context.out.rax, i);
		CHECK(context.out.rflags & FLAGS_TF);
		context.in = context.out;
		context.in.vector = 0;
	}
	context.in.rflags &= ~FLAGS_TF;
	user_run(&context);
	CHECK_EQ(context.out.vector, VECTOR_SYSCALL);
	leave_space();
}

/* iret with AC: unaligned accesses of user code fault. */
TEST(user_ac, "cpu.iret.alignment_check", 1, 0, CPU_IRET)
{
	struct user_context context;

	enter_space();
	user_init(&context, u_unaligned);
	user_run(&context);
	CHECK_EQ(context.out.vector, VECTOR_SYSCALL);
	user_init(&context, u_unaligned);
	context.in.rflags |= FLAGS_AC;
	user_run(&context);
	/* The flag arrives in any case, but software emulation ignores it. */
	if (context.out.vector == VECTOR_SYSCALL) {
		CHECK(context.out.r11 & FLAGS_AC);
	} else {
		CHECK_EQ(context.out.vector, VECTOR_AC);
		CHECK_EQ(context.out.error, 0);
		CHECK(context.out.rflags & FLAGS_AC);
	}
	leave_space();
}

/* cpu.iret loads the flags of its frame, and a system call returns them. */
TEST(user_flags, "cpu.iret.flags", 1, 0, CPU_IRET)
{
	static const u64 flags[] = { 0, FLAGS_CF, FLAGS_ARITHMETIC, FLAGS_DF,
				     FLAGS_ARITHMETIC | FLAGS_DF };
	struct user_context context;
	u64 mask = FLAGS_ARITHMETIC | FLAGS_DF | FLAGS_IF;
	u32 i;

	enter_space();
	for (i = 0; i < ARRAY_SIZE(flags); i++) {
		user_init(&context, u_pushf);
		context.in.rflags |= flags[i];
		user_run(&context);
		CHECK_EQ(context.out.vector, VECTOR_SYSCALL);
		CHECK_EQ(context.out.rax & mask, (flags[i] | FLAGS_IF) & mask);
		CHECK_EQ(context.out.r11 & mask, (flags[i] | FLAGS_IF) & mask);
	}
	leave_space();
}

/*
 * cpu.iret loads the flags that kernels handle specially: with nothing else to do, with a page just
 * touched that only the kernel may access, and with an interrupt pending.
 */
TEST(user_flags_rare, "cpu.iret.rare_flags", 1, 0, CPU_IRET)
{
	u64 rare = FLAGS_NT | FLAGS_ID, gpa = alloc_page(), i;
	struct user_context context;

	enter_space();
	space_set(&space, USER_DATA, gpa | PTE_P | PTE_W, VMI_LEVEL_PT);
	for (i = 0; i < 12; i++) {
		irq_disable();
		user_init(&context, u_pushf);
		context.in.rflags |= i & 1 ? rare : 0;
		context.in.vector = i & 2 ? VECTOR_SYSCALL : 0;
		if (i >= 8)
			CHECK_RESULT(send_ipi(0, 0x5a), 0);
		else if (i >= 4)
			(void)READ_ONCE(*(u64 *)USER_DATA);
		user_run(&context);
		CHECK_EQ(context.out.vector, VECTOR_SYSCALL);
		CHECK_EQ(context.out.rax & rare, context.in.rflags & rare);
		CHECK_EQ(context.out.r11 & rare, context.in.rflags & rare);
	}
	leave_space();
	free_page(gpa);
}

/* User code that jumps into the kernel remains user code, whatever it finds there. */
TEST(user_astray, "exception.user.in_kernel_text", 1, 0, CPU_IRET, CPU_SET_KERNEL_STACK)
{
	struct user_context context;
	u64 to[] = { (u64)k_ud2_at, (u64)k_noncanonical_at }, i;

	enter_space();
	for (i = 0; i < ARRAY_SIZE(to); i++) {
		user_init(&context, u_execute);
		context.in.rdi = to[i];
		context.in.rax = 0x800000000000;
		user_run(&context);
		/* If user code may not execute the kernel's pages, that is the fault. */
		if (context.out.vector == VECTOR_PF)
			CHECK_EQ(context.out.error & (PF_P | PF_U), PF_P | PF_U);
		else
			CHECK_EQ(context.out.vector, i ? VECTOR_GP : VECTOR_UD);
		CHECK_EQ(context.out.rip, to[i]);
		CHECK_EQ(context.out.cs, USER_CS);
		CHECK_EQ(context.out.ss, USER_SS);
		CHECK_EQ(context.out.rsp, USER_STACK_TOP);
		CHECK_EQ(vmi.cpu_get_gs_base(), (u64)this_cpu());
	}
	leave_space();
}

/* A program may switch to its 32-bit code segment. The kernel sees it in the frame. */
TEST(user_compatibility, "exception.user.compatibility", 1, 0, CPU_IRET)
{
	/* ud2; mov $7,%eax; int $0x31 */
	static const u8 code[] = { 0x0f, 0x0b, 0xb8, 7, 0, 0, 0, 0xcd, VECTOR_USER_GATE };
	struct user_context context;
	u64 va, gpa = alloc_page();
	u8 *page = to_linear(gpa);
	u32 low, selector = USER_CS32;

	for (va = 0x10000000; in_hole(va, va + PAGE_SIZE); va += 16 * MIB)
		if (va > 0xf0000000)
			test_skip("no user addresses below 4 GiB");
	low = va + 16;
	memcpy(page, &low, 4);
	memcpy(page + 4, &selector, 4);
	memcpy(page + 16, code, sizeof(code));
	enter_space();
	space_set(&space, va, gpa | PTE_P | PTE_U, VMI_LEVEL_PT);
	user_init(&context, u_compatibility);
	context.in.rdi = va;
	user_run(&context);
	CHECK_EQ(context.out.vector, VECTOR_UD);
	CHECK_EQ(context.out.rip, low);
	CHECK_EQ(context.out.cs, USER_CS32);
	context.in = context.out;
	context.in.vector = 0;
	context.in.rip += 2;
	user_run(&context);
	CHECK_EQ(context.out.vector, VECTOR_USER_GATE);
	CHECK_EQ(context.out.rip, low + sizeof(code));
	CHECK_EQ(context.out.cs, USER_CS32);
	CHECK_EQ((u32)context.out.rax, 7);
	/* After that, 64-bit code is 64-bit code again. */
	CHECK_EQ(user_try(&context, u_ud2, 0, 0), VECTOR_UD + 1);
	CHECK_EQ(context.out.cs, USER_CS);
	leave_space();
	free_page(gpa);
}

/* User code cannot clear the interrupt flag. */
TEST(user_popf, "cpu.iret.user_interrupts_on", 1, 0, CPU_IRET)
{
	enter_space();
	CHECK(user_call(u_popf, 0, 0) & FLAGS_IF);
	leave_space();
}
