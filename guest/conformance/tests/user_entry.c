// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Entering user mode and returning: registers, stacks, system calls. */
#include "harness.h"
#include "test.h"
#include "user_mode.h"

#define VECTOR_A 0x55

enum { BY_IRET, BY_SYSRET };

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

static void random_context(struct user_context *context, const char *label,
			   u64 way, u64 *seed)
{
	u64 *words = (u64 *)&context->in;
	u32 i;

	user_init(context, label);
	for (i = 0; i < REGS_VECTOR / 8; i++)
		words[i] = random64(seed);
	context->in.rflags |= random64(seed) & FLAGS_ARITHMETIC;
	context->in.vector = way == BY_SYSRET ? VECTOR_SYSCALL : 0;
}

#define SAME(name) CHECK_EQ(context.out.name, context.in.name)

/* All registers go to user mode and come back through a gate. */
static void registers(u64 way)
{
	struct user_context context;
	u64 seed = 4711;
	u32 i;

	enter_space();
	for (i = 0; i < 200; i++) {
		random_context(&context, u_int_gate, way, &seed);
		user_run(&context);
		CHECK_EQ(context.out.vector, VECTOR_USER_GATE);
		CHECK_EQ(context.out.rip, USER_ADDRESS(u_int_gate) + 2);
		SAME(rax);
		SAME(rbx);
		SAME(rdx);
		SAME(rsi);
		SAME(rdi);
		SAME(rbp);
		SAME(rsp);
		SAME(r8);
		SAME(r9);
		SAME(r10);
		SAME(r12);
		SAME(r13);
		SAME(r14);
		SAME(r15);
		SAME(rflags);
		SAME(cs);
		SAME(ss);
		/* sysret takes rip and flags from these two. */
		CHECK_EQ(context.out.rcx, way == BY_SYSRET ? context.in.rip :
			 context.in.rcx);
		CHECK_EQ(context.out.r11, way == BY_SYSRET ? context.in.rflags :
			 context.in.r11);
	}
	leave_space();
}
TEST_OF(registers_iret, "cpu.iret.user_registers", registers, BY_IRET, 1, 0, CPU_IRET);
TEST_OF(registers_sysret, "cpu.sysret.user_registers", registers, BY_SYSRET, 1, 0,
	CPU_SYSRET);

/* User registers through the syscall instruction, with its rcx and r11. */
static void syscalls(u64 way)
{
	struct user_context context;
	u64 seed = 815;
	u32 i;

	enter_space();
	for (i = 0; i < 200; i++) {
		random_context(&context, u_nop, way, &seed);
		user_run(&context);
		CHECK_EQ(context.out.vector, VECTOR_SYSCALL);
		CHECK_EQ(context.out.rip, USER_ADDRESS(u_nop) + 2);
		SAME(rax);
		SAME(rbx);
		SAME(rdx);
		SAME(rsi);
		SAME(rdi);
		SAME(rbp);
		SAME(rsp);
		SAME(r8);
		SAME(r9);
		SAME(r10);
		SAME(r12);
		SAME(r13);
		SAME(r14);
		SAME(r15);
		CHECK_EQ(context.out.rcx, USER_ADDRESS(u_nop) + 2);
		CHECK_EQ(context.out.r11, context.in.rflags);
		/* SFMASK clears it. */
		CHECK(!context.irqs_on);
	}
	leave_space();
}
TEST_OF(syscalls_iret, "cpu.iret.then_syscall", syscalls, BY_IRET, 1, 0, CPU_IRET,
	CPU_WRITE_MSR);
TEST_OF(syscalls_sysret, "cpu.sysret.then_syscall", syscalls, BY_SYSRET, 1, 0,
	CPU_SYSRET, CPU_WRITE_MSR);

/* The kernel must find DF clear (its own memcpy relies on it), user code its own value. */
TEST(syscall_df, "cpu.sysret.masked_flags", 1, 0, CPU_SYSRET, CPU_WRITE_MSR)
{
	struct user_context context;

	enter_space();
	CHECK_EQ(user_try(&context, u_std, 0, 0), 0);
	CHECK(context.out.r11 & FLAGS_DF);
	leave_space();
}

/* A system call keeps rsp, whatever it is: not an address, or one of the kernel's. */
TEST(syscall_stack, "cpu.write_msr.syscall_stack", 1, 0, CPU_WRITE_MSR)
{
	static u64 kernels[64];
	const u64 stacks[] = {
		0, 8, (u64)(kernels + 48), 0x8000000000001000, 0x0000800000000000, ~0ULL, ~15ULL,
	};
	struct user_context context;
	u32 i, j;

	enter_space();
	for (i = 0; i < ARRAY_SIZE(stacks); i++) {
		CHECK_EQ(user_try(&context, u_stack, stacks[i], 4711), 0);
		CHECK_EQ(context.out.rsp, stacks[i]);
		for (j = 0; j < ARRAY_SIZE(kernels); j++)
			CHECK_EQ(kernels[j], 0);
	}
	leave_space();
}

/* The alignment check is a program's own: it disturbs nothing else. */
TEST(alignment_check_fill, "cpu.iret.alignment_check_fill", 1, 0, CPU_IRET)
{
	u64 gpa = alloc_page();
	u32 i;

	enter_space();
	for (i = 0; i < 10; i++) {
		space_set(&space, USER_DATA, gpa | PTE_P | PTE_W | PTE_U, VMI_LEVEL_PT);
		*(u64 *)to_linear(gpa) = i;
		CHECK_EQ(user_call(u_aligned_load, USER_DATA, 0), i);
		space_set(&space, USER_DATA, 0, VMI_LEVEL_PT);
		vmi.mmu_flush_tlb(VMI_FLUSH_ALL);
	}
	leave_space();
	free_page(gpa);
}

/*
 * The kernel has not enabled this feature, so the instruction is undefined. A layer that cannot
 * make it so must at least not let a program take memory from the kernel with it.
 */
TEST(protection_keys, "cpu.iret.protection_keys", 1, 0, CPU_IRET)
{
	u64 gpa = alloc_page();
	struct user_context context;
	u32 i, result;

	enter_space();
	space_set(&space, USER_DATA, gpa | PTE_P | PTE_W | PTE_U, VMI_LEVEL_PT);
	*(u64 *)to_linear(gpa) = 4711;
	for (i = 0; i < 10; i++) {
		result = user_try(&context, i & 1 ? u_wrpkru : u_wrpkru_load, USER_DATA, 0);
		CHECK(result == 0 || result == VECTOR_UD + 1);
		if (result == 0 && !(i & 1))
			CHECK_EQ(context.out.rax, 4711);
		CHECK_EQ(user_call(u_load, USER_DATA, 0), 4711);
	}
	leave_space();
	free_page(gpa);
}

/* sysret through the layer's entry: otherwise the same. */
TEST(syscall_many, "cpu.sysret.many", 1, 0, CPU_SYSRET, CPU_SWAPGS)
{
	struct user_context context;
	u64 i;

	enter_space();
	user_init(&context, u_add);
	for (i = 0; i < 5000; i++) {
		context.in.vector = VECTOR_SYSCALL;
		context.in.rip = USER_ADDRESS(u_add);
		context.in.rdi = i;
		context.in.rsi = i * 2;
		user_run(&context);
		CHECK_EQ(context.out.rax, i * 3);
	}
	leave_space();
}

/* An entry from user mode uses the stack that was set last. */
static void kernel_stack(u64 lazy)
{
	struct percpu *cpu = this_cpu();

	enter_space();
	if (lazy)
		CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_CPU), 0);
	vmi.cpu_set_kernel_stack(&cpu->tss, (u64)cpu->stack + 2048);
	if (lazy)
		CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_NONE), 0);
	/* user_run() sets its own: its return is the proof. */
	CHECK_EQ(user_call(u_add, 2, 3), 5);
	CHECK_EQ(user_call(u_add, 5, 3), 8);
	leave_space();
}
TEST_OF(kernel_stack_now, "cpu.set_kernel_stack.used", kernel_stack, 0, 1, 0,
	CPU_SET_KERNEL_STACK);
TEST_OF(kernel_stack_lazy, "cpu.set_kernel_stack.used_lazy", kernel_stack, 1, 1, 0,
	CPU_SET_KERNEL_STACK, MMU_SET_LAZY_MODE);

static u64 handler_stack, from_user;

static void note_stack(struct regs *regs)
{
	handler_stack = (u64)regs;
	from_user = regs->cs;
	/* Let the program continue. */
	*(volatile u8 *)USER_DATA = 1;
}

/* An interrupt in user code: on the kernel stack, and back. */
TEST(user_interrupted, "cpu.set_kernel_stack.interrupt", 1, 0,
     CPU_SET_KERNEL_STACK, TIME_SET_ALARM)
{
	u64 gpa = alloc_page(), stack;
	struct user_context context;

	set_irq_handler(VECTOR_A, note_stack);
	enter_space();
	space_set(&space, USER_DATA, gpa | PTE_P | PTE_W | PTE_U, VMI_LEVEL_PT);
	handler_stack = 0;
	CHECK_RESULT(vmi.time_set_alarm(VMI_TIME_REAL, now() + NS_PER_MS, 0,
					VECTOR_A), 0);
	CHECK_EQ(user_try(&context, u_spin, USER_DATA, 0), 0);
	stack = this_cpu()->kernel_rsp;
	CHECK_EQ(from_user, USER_CS);
	/* Directly below the stack that was set. */
	CHECK_EQ(handler_stack, stack - REGS_SIZE);
	leave_space();
	free_page(gpa);
}

/* Pending when user mode is entered: delivered there at once, though it was masked before. */
TEST(user_pending, "cpu.iret.pending_interrupt", 1, 0, CPU_IRET, CPU_IRQ_DISABLE)
{
	u64 gpa = alloc_page(), before = irq_count(0, VECTOR_A);

	set_irq_handler(VECTOR_A, note_stack);
	enter_space();
	space_set(&space, USER_DATA, gpa | PTE_P | PTE_W | PTE_U, VMI_LEVEL_PT);
	irq_disable();
	CHECK_RESULT(send_ipi(0, VECTOR_A), 0);
	CHECK_EQ(irq_count(0, VECTOR_A), before);
	user_call(u_spin, USER_DATA, 0);
	CHECK_EQ(irq_count(0, VECTOR_A), before + 1);
	CHECK_EQ(from_user, USER_CS);
	leave_space();
	free_page(gpa);
}

/* Vector registers survive the way to user mode and back. */
static void vectors(u64 label)
{
	static struct fpu_state before, after;
	struct user_context context;
	enum fpu_level level = fpu_level();
	u32 i;

	enter_space();
	for (i = 1; i <= 20; i++) {
		fpu_fill(&before, i * 77);
		user_init(&context, (const char *)label);
		fpu_load(&before, level);
		user_run(&context);
		fpu_store(&after, level);
		fpu_compare(&before, &after, "after user mode");
	}
	leave_space();
}
TEST_OF(vectors_syscall, "cpu.iret.fpu_syscall", vectors, (u64)u_nop, 1, 0, CPU_IRET);
TEST_OF(vectors_gate, "cpu.iret.fpu_gate", vectors, (u64)u_int_gate, 1, 0, CPU_IRET);

/* The kernel finds what user code puts into them. */
TEST(vectors_out, "cpu.iret.fpu_out", 1, 0, CPU_IRET, CPU_SYSRET)
{
	static struct fpu_state state, after;
	u64 gpa = alloc_page();
	u8 *page = to_linear(gpa);
	u32 i;

	enter_space();
	space_set(&space, USER_DATA, gpa | PTE_P | PTE_W | PTE_U, VMI_LEVEL_PT);
	fpu_fill(&state, 5);
	memcpy(page, state.fx + 160, 256);
	*(u32 *)(page + 256) = 0x3f80;
	user_call(u_load_xmm, USER_DATA, 0);
	fpu_store(&after, FPU_SSE);
	CHECK(!memcmp(after.fx + 160, state.fx + 160, 256));
	CHECK_EQ(*(u32 *)(after.fx + 24), 0x3f80);
	for (i = 0; i < 2; i++) {
		fpu_load(&state, FPU_SSE);
		CHECK_EQ(user_call(u_x87, 0, 0), state.fx[0] | state.fx[1] << 8);
	}
	leave_space();
	free_page(gpa);
}
