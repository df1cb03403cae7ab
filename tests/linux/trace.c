// SPDX-License-Identifier: Apache-2.0 OR MIT
/* What a debugger does to a process. */
#include "test.h"
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child that stops itself, then runs function. */
static pid_t traced(void (*function)(void))
{
	pid_t child = fork();
	int status;

	if (!child) {
		CHECK(!ptrace(PTRACE_TRACEME, 0, NULL, NULL));
		raise(SIGSTOP);
		function();
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status) &&
	      WSTOPSIG(status) == SIGSTOP);
	return child;
}

static int go_on(pid_t child, int request)
{
	int status;

	CHECK(!ptrace(request, child, NULL, NULL));
	CHECK(waitpid(child, &status, 0) == child);
	return status;
}

void trace_steps(void);
extern const unsigned char trace_steps_start[], trace_steps_end[];
__asm__(".text\n"
	".globl trace_steps, trace_steps_start, trace_steps_end\n"
	"trace_steps:\n"
	"	int3\n"
	"trace_steps_start:\n"
	"	nop\n"
	"	xorl %eax, %eax\n"
	"	movl $10, %ecx\n"
	"1:	incl %eax\n"
	"	loop 1b\n"
	"	pushfq\n"
	"	popq %rdx\n"
	"	movl $39, %eax\n"		/* getpid */
	"	syscall\n"
	"	nop\n"
	"trace_steps_end:\n"
	"	ret\n");

static void single_step(void)
{
	pid_t child = traced(trace_steps);
	struct user_regs_struct regs;
	int status = go_on(child, PTRACE_CONT), steps = 0;

	CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
	CHECK(!ptrace(PTRACE_GETREGS, child, NULL, &regs));
	CHECK(regs.rip == (uintptr_t)trace_steps_start);
	do {
		status = go_on(child, PTRACE_SINGLESTEP);
		CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
		CHECK(!ptrace(PTRACE_GETREGS, child, NULL, &regs));
		steps++;
	} while (regs.rip != (uintptr_t)trace_steps_end && steps < 100);
	/* nop xor mov, ten times two, pushf pop mov, syscall, nop */
	CHECK(steps == 28);
	CHECK(regs.rax == (unsigned long)child);
	status = go_on(child, PTRACE_CONT);
	CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
}

static volatile int calls;

static __attribute__((noinline)) void counted(void)
{
	calls++;
}

static void call_ten_times(void)
{
	int i;

	for (i = 0; i < 10; i++)
		counted();
	_exit(calls);
}

/* A breakpoint in text that all processes of this file share. */
static void breakpoint(void)
{
	pid_t child = traced(call_ten_times);
	struct user_regs_struct regs;
	long text = ptrace(PTRACE_PEEKTEXT, child, (void *)counted, NULL);
	int status, hits = 0;

	CHECK(!ptrace(PTRACE_POKETEXT, child, (void *)counted, (void *)((text & ~0xffL) | 0xcc)));
	for (;;) {
		status = go_on(child, PTRACE_CONT);
		if (WIFEXITED(status))
			break;
		CHECK(WSTOPSIG(status) == SIGTRAP);
		CHECK(!ptrace(PTRACE_GETREGS, child, NULL, &regs));
		CHECK(regs.rip == (uintptr_t)counted + 1);
		hits++;
		regs.rip--;
		CHECK(!ptrace(PTRACE_SETREGS, child, NULL, &regs));
		CHECK(!ptrace(PTRACE_POKETEXT, child, (void *)counted, (void *)text));
		status = go_on(child, PTRACE_SINGLESTEP);
		CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
		CHECK(!ptrace(PTRACE_POKETEXT, child, (void *)counted,
			      (void *)((text & ~0xffL) | 0xcc)));
	}
	CHECK(hits == 10 && WEXITSTATUS(status) == 10);
	/* Ours is as it was. */
	calls = 0;
	counted();
	CHECK(calls == 1 && *(const unsigned char *)counted != 0xcc);
}

static void pause_for_ever(void)
{
	for (;;)
		pause();
}

/* Registers that no return to user mode takes: the process gets a signal, and that is all. */
static void bad_registers(void)
{
	static const struct {
		unsigned long offset, value;
	} bad[] = {
		{ offsetof(struct user_regs_struct, rip), 0x0000800000000000 },
		{ offsetof(struct user_regs_struct, rip), 0x8000000000000000 },
		{ offsetof(struct user_regs_struct, rip), 0 },
		{ offsetof(struct user_regs_struct, cs), 0x2b },
		{ offsetof(struct user_regs_struct, cs), 0xfff3 },
		{ offsetof(struct user_regs_struct, ss), 0x33 },
		{ offsetof(struct user_regs_struct, ss), 0xfff3 },
	};
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		pid_t child = traced(pause_for_ever);
		int status;

		if (ptrace(PTRACE_POKEUSER, child, bad[i].offset, bad[i].value)) {
			kill(child, SIGKILL);
			child_status(child);
			continue;
		}
		status = go_on(child, PTRACE_CONT);
		CHECK(WIFSTOPPED(status) &&
		      (WSTOPSIG(status) == SIGSEGV || WSTOPSIG(status) == SIGBUS));
		status = go_on(child, PTRACE_KILL);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	}
}

static volatile int watched;

static void write_watched(void)
{
	watched = 1;
}

/* Writes of four bytes, by debug register 0. */
#define WATCH 0xd0001UL
#define DEBUG_REGISTER(n) (offsetof(struct user, u_debugreg) + (n) * sizeof(long))

/* A debugger's watchpoint is hit, or cannot be set. */
static void watchpoint(void)
{
	pid_t child = traced(write_watched);
	bool set = !ptrace(PTRACE_POKEUSER, child, DEBUG_REGISTER(0), &watched) &&
		   !ptrace(PTRACE_POKEUSER, child, DEBUG_REGISTER(7), WATCH);
	int status;

	CHECK(set || errno == EOPNOTSUPP);
	/* What a debugger does at its end. */
	if (!set)
		CHECK(!ptrace(PTRACE_POKEUSER, child, DEBUG_REGISTER(7), 0UL));
	status = go_on(child, PTRACE_CONT);
	if (set) {
		CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
		status = go_on(child, PTRACE_CONT);
	}
	CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
}

/* A watchpoint of perf counts the writes, or cannot be set. */
static void counted_writes(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_BREAKPOINT,
		.size = sizeof(attr),
		.bp_type = HW_BREAKPOINT_W,
		.bp_addr = (uintptr_t)&watched,
		.bp_len = HW_BREAKPOINT_LEN_4,
		.exclude_kernel = 1,
		.exclude_hv = 1,
	};
	int fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0), i;
	uint64_t count;

	if (fd < 0)
		return;
	for (i = 0; i < 10; i++)
		watched = i;
	CHECK(read(fd, &count, sizeof(count)) == sizeof(count));
	CHECK(count == 10);
	close(fd);
}

const struct test trace_tests[] = {
	{ "trace.single_step", single_step, false },
	{ "trace.breakpoint", breakpoint, false },
	{ "trace.bad_registers", bad_registers, false },
	{ "trace.watchpoint", watchpoint, false },
	{ "trace.counted_writes", counted_writes, false },
	{ NULL, NULL, false },
};
