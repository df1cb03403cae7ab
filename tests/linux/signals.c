// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Signals, and the registers that must survive them and switches between programs. */
#include "test.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static volatile int caught;
static volatile int caught_code;

static void on_signal(int signal, void (*handler)(int, siginfo_t *, void *), int flags)
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags };

	CHECK(!sigaction(signal, &action, NULL));
}

/* --- a frame with which no return to user mode is possible --- */

static unsigned long bad_selectors, bad_rip;

static void spoil(int signal, siginfo_t *info, void *context)
{
	greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;

	(void)signal;
	(void)info;
	if (bad_selectors)
		regs[REG_CSGSFS] = (greg_t)bad_selectors;
	if (bad_rip)
		regs[REG_RIP] = (greg_t)bad_rip;
	/* The next one ends the process. */
}

static void bad_frames(void)
{
	/* The selectors of gs and fs lie in between: cs in bits 0-15, ss in bits 48-63. */
	static const struct {
		unsigned long selectors, rip;
	} bad[] = {
		{ 0x002b00000000002b, 0 }, { 0x002b00000000fff3, 0 }, { 0x002b000000000000, 0 },
		{ 0xfff3000000000033, 0 },
		{ 0x0033000000000033, 0 }, { 0, 0x0000800000000000 }, { 0, 0x8000000000000000 },
		{ 0, 0xffffffff81000000 },
	};
	size_t i;
	int status;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		pid_t child = fork();

		if (!child) {
			bad_selectors = bad[i].selectors;
			bad_rip = bad[i].rip;
			on_signal(SIGUSR1, spoil, 0);
			raise(SIGUSR1);
			_exit(99);
		}
		status = child_status(child);
		/* It is no error if the return replaces the stack selector. */
		CHECK((WIFSIGNALED(status) &&
		       (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS)) ||
		      (WEXITSTATUS(status) == 99 && bad[i].selectors >> 48 != 0x2b));
	}
}

/* --- exceptions --- */

static void skip_instruction(int signal, siginfo_t *info, void *context)
{
	greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;

	caught = signal;
	caught_code = info->si_code;
	/*
	 * All instructions below are two bytes long, except int3, after which the address is
	 * already right.
	 */
	if (signal != SIGTRAP)
		regs[REG_RIP] += 2;
}

static void exceptions(void)
{
	static const int signals[] = { SIGILL, SIGFPE, SIGTRAP, SIGSEGV };
	int i;

	for (i = 0; i < 4; i++)
		on_signal(signals[i], skip_instruction, 0);
	for (i = 0; i < 100; i++) {
		caught = 0;
		__asm__ volatile("ud2");
		CHECK(caught == SIGILL && caught_code == ILL_ILLOPN);
		__asm__ volatile("xorl %%ecx, %%ecx\n\tmovl $1, %%eax\n\tcltd\n\tidivl %%ecx" : : :
				 "eax", "ecx", "edx");
		CHECK(caught == SIGFPE && caught_code == FPE_INTDIV);
		__asm__ volatile("int3");
		CHECK(caught == SIGTRAP);
		__asm__ volatile("hlt\n\tnop");
		CHECK(caught == SIGSEGV);
		caught = 0;
		__asm__ volatile("int $0x20");
		CHECK(caught == SIGSEGV);
	}
}

static volatile int steps;

static void count_step(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	CHECK(info->si_code == TRAP_TRACE);
	steps++;
}

static void trap_flag(void)
{
	on_signal(SIGTRAP, count_step, 0);
	__asm__ volatile("pushfq\n\torl $0x100, (%%rsp)\n\tpopfq\n\tnop\n\tnop\n\tnop\n\t"
			 "pushfq\n\tandl $~0x100, (%%rsp)\n\tpopfq" : : : "memory", "cc");
	/* After each instruction that began with the flag set. */
	CHECK(steps == 6);
}

/* --- stacks --- */

static char *alternate;
static volatile int depth;

static void on_alternate(int signal, siginfo_t *info, void *context)
{
	char here;

	(void)info;
	(void)context;
	CHECK(&here >= alternate && &here < alternate + 64 * PAGE);
	caught = signal;
	if (depth-- > 0)
		raise(signal);
}

static int overflow(int levels)
{
	volatile char frame[4096];

	frame[0] = (char)levels;
	return levels ? overflow(levels - 1) + frame[0] : 0;
}

static void out_of_stack(int signal, siginfo_t *info, void *context)
{
	(void)info;
	(void)context;
	_exit(signal == SIGSEGV ? 7 : 8);
}

static void alternate_stack(void)
{
	stack_t stack = { .ss_size = 64 * PAGE };
	pid_t child;

	alternate = memory(64 * PAGE);
	stack.ss_sp = alternate;
	CHECK(!sigaltstack(&stack, NULL));
	on_signal(SIGUSR1, on_alternate, SA_ONSTACK | SA_NODEFER);
	for (depth = 0; depth < 8;) {
		int wanted = depth + 1;

		caught = 0;
		raise(SIGUSR1);
		CHECK(caught == SIGUSR1);
		depth = wanted;
	}
	/*
	 * Endless recursion: the stack grows to its limit, then there is a signal, which needs
	 * another stack.
	 */
	child = fork();
	if (!child) {
		on_signal(SIGSEGV, out_of_stack, SA_ONSTACK);
		/* More than the limit of the stack in any test. */
		_exit(overflow(1 << 24) & 1);
	}
	CHECK(WEXITSTATUS(child_status(child)) == 7);
}

/* --- vector registers --- */

static int level;	/* 16, 32 or 64 bytes in a register */

/*
 * Gives all registers a value, runs the function and compares them. Returns 0 if they are the same.
 */
static int with_registers(unsigned char value, void (*function)(void))
{
	static __thread unsigned char before[32 * 64] __attribute__((aligned(64))),
		after[32 * 64] __attribute__((aligned(64)));
	int count = level == 64 ? 32 : 16;
	size_t i;

	for (i = 0; i < sizeof(before); i++)
		before[i] = (unsigned char)(value + i * 7 + (i >> 8));
#define EACH16(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) \
	X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define EACH_HIGH(X) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23) \
	X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31)
#define LOAD_X(n) "movdqa 64*" #n "(%0), %%xmm" #n "\n\t"
#define SAVE_X(n) "movdqa %%xmm" #n ", 64*" #n "(%1)\n\t"
#define LOAD_Y(n) "vmovdqa 64*" #n "(%0), %%ymm" #n "\n\t"
#define SAVE_Y(n) "vmovdqa %%ymm" #n ", 64*" #n "(%1)\n\t"
#define LOAD_Z(n) "vmovdqa64 64*" #n "(%0), %%zmm" #n "\n\t"
#define SAVE_Z(n) "vmovdqa64 %%zmm" #n ", 64*" #n "(%1)\n\t"
	/*
	 * The called function preserves rbx, r12 and r13. The stack is aligned for it, below the
	 * red zone.
	 */
#define ALL(load, save)										\
	__asm__ volatile("movq %%rsp, %%r13\n\tsubq $256, %%rsp\n\tandq $-64, %%rsp\n\t"	\
			 load "call *%2\n\t" save "movq %%r13, %%rsp"				\
			 : : "b"(before), "r"(after_pointer), "r"(function_pointer)		\
			 : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r13",	\
			   "memory", "cc")
	{
		register unsigned char *after_pointer __asm__("r12") = after;
		register void (*function_pointer)(void) __asm__("r14") = function;

		if (level == 64)
			ALL(EACH16(LOAD_Z) EACH_HIGH(LOAD_Z), EACH16(SAVE_Z) EACH_HIGH(SAVE_Z));
		else if (level == 32)
			ALL(EACH16(LOAD_Y), EACH16(SAVE_Y));
		else
			ALL(EACH16(LOAD_X), EACH16(SAVE_X));
	}
	for (i = 0; i < (size_t)count; i++)
		if (memcmp(before + i * 64, after + i * 64, (size_t)level))
			return -1;
	return 0;
}

/* Functions that use no vector register themselves: plain system calls. */
static long call0(long number)
{
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "0"(number) : "rcx", "r11", "memory");
	return result;
}

static void yield(void)
{
	call0(24);
}

static pid_t self;

static void kill_self(void)
{
	long result = 62;

	__asm__ volatile("syscall" : "+a"(result) : "D"(self), "S"(SIGUSR1) : "rcx", "r11",
			 "memory");
}

static volatile char *touched;

static void touch_pages(void)
{
	int i;

	for (i = 0; i < 16; i++)
		touched[(size_t)i * PAGE] = 1;
}

static void find_level(void)
{
	__builtin_cpu_init();
	level = __builtin_cpu_supports("avx512f") ? 64 : __builtin_cpu_supports("avx2") ? 32 : 16;
}

static void *hold_registers(void *argument)
{
	int i;

	for (i = 0; i < 4000; i++)
		if (with_registers((unsigned char)((uintptr_t)argument + (uintptr_t)i), yield))
			return "registers changed";
	return NULL;
}

static void vector_switches(void)
{
	pthread_t threads[2];
	pid_t children[3];
	void *complaint;
	int i;

	find_level();
	for (i = 0; i < 3; i++) {
		children[i] = fork();
		if (!children[i])
			_exit(hold_registers((void *)(uintptr_t)(i * 50 + 1)) != NULL);
	}
	for (i = 0; i < 2; i++)
		CHECK(!pthread_create(&threads[i], NULL, hold_registers,
				      (void *)(uintptr_t)(i * 31 + 7)));
	CHECK(!hold_registers((void *)200));
	for (i = 0; i < 2; i++)
		CHECK(!pthread_join(threads[i], &complaint) && !complaint);
	for (i = 0; i < 3; i++)
		child_good(children[i]);
}

static void clobber(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)info;
	(void)context;
	caught++;
	if (level == 64)
		__asm__ volatile("vpxorq %%zmm16, %%zmm16, %%zmm16\n\t"
				 "vpternlogd $0xff, %%zmm3, %%zmm3, %%zmm3" : : :
				 "xmm3");
	__asm__ volatile("pxor %%xmm0, %%xmm0\n\tpcmpeqd %%xmm15, %%xmm15" : : : "xmm0", "xmm15");
}

static void vector_signals(void)
{
	int i;

	find_level();
	self = getpid();
	on_signal(SIGUSR1, clobber, 0);
	for (i = 0; i < 2000; i++)
		CHECK(!with_registers((unsigned char)i, kill_self));
	CHECK(caught == 2000);
	/* Faults, too. */
	for (i = 0; i < 200; i++) {
		touched = memory(16 * PAGE);
		CHECK(!with_registers((unsigned char)i, touch_pages));
		CHECK(!munmap((void *)(uintptr_t)touched, 16 * PAGE));
	}
}

/* --- interrupts during a computation --- */

static void tick(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)info;
	(void)context;
	caught++;
}

/* Sums in registers, flags and the red zone. The result is the same whatever interrupts it. */
static uint64_t compute(void)
{
	uint64_t sum = 0;

	__asm__ volatile("movabsq $6364136223846793005, %%rdx\n\t"
			 "movl $2000000, %%ecx\n\t"
			 "movq $0, -8(%%rsp)\n\t"
			 "movl $1, %%eax\n"
			 "1:	addq %%rax, -8(%%rsp)\n\t"
			 "imulq %%rdx, %%rax\n\t"
			 "stc\n\t"
			 "adcq $1442695041, %%rax\n\t"
			 "rolq $13, %%rax\n\t"
			 "decl %%ecx\n\t"
			 "jnz 1b\n\t"
			 "movq -8(%%rsp), %0" : "=r"(sum) : : "rax", "rcx", "rdx", "memory", "cc");
	return sum;
}

static void timer_ticks(void)
{
	struct itimerval timer = { { 0, 1000 }, { 0, 1000 } };
	uint64_t good = compute();
	double end;

	on_signal(SIGALRM, tick, SA_RESTART);
	alarm(0);
	CHECK(!setitimer(ITIMER_REAL, &timer, NULL));
	for (end = seconds() + 1.5; seconds() < end;)
		CHECK(compute() == good);
	CHECK(caught > 5);
}

const struct test signal_tests[] = {
	{ "signal.bad_frames", bad_frames, false },
	{ "signal.exceptions", exceptions, false },
	{ "signal.trap_flag", trap_flag, false },
	{ "signal.alternate_stack", alternate_stack, false },
	{ "signal.vector_switches", vector_switches, false },
	{ "signal.vector_signals", vector_signals, false },
	{ "signal.timer_ticks", timer_ticks, false },
	{ NULL, NULL, false },
};
