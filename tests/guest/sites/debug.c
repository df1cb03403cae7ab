// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Debuggers and other observers. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <ucontext.h>
#include "check.h"

/* mov $110,%eax; syscall; ret */
static const unsigned char original[8] = { 0xb8, SYS_getppid, 0, 0, 0, 0x0f, 0x05, 0xc3 };

static int is_original(pid_t pid, site_fn *site)
{
	long word = ptrace(PTRACE_PEEKTEXT, pid, site, 0);

	return !memcmp(&word, original, sizeof(original));
}

/* A child that calls the site for ever, and ends with an error if it gets a wrong answer. */
static pid_t looping_child(site_fn *site)
{
	pid_t parent = getpid(), child = fork();

	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			if (site(0, 0, 0, 0, 0, 0) != parent)
				_exit(1);
	}
	return child;
}

static void wait_stop(pid_t child, int signal)
{
	int status = 0;

	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == signal);
}

static void poke(pid_t child, char *at, unsigned char byte)
{
	long word = ptrace(PTRACE_PEEKTEXT, child, at, 0);

	*(unsigned char *)&word = byte;
	CHECK(!ptrace(PTRACE_POKETEXT, child, at, word));
}

/* Stops at a breakpoint, then continues over it. */
static void breakpoint(pid_t child, char *at, unsigned char byte)
{
	struct user_regs_struct regs;

	poke(child, at, 0xcc);
	CHECK(!ptrace(PTRACE_CONT, child, 0, 0));
	wait_stop(child, SIGTRAP);
	ptrace(PTRACE_GETREGS, child, 0, &regs);
	CHECK(regs.rip == (uintptr_t)at + 1);
	regs.rip--;
	ptrace(PTRACE_SETREGS, child, 0, &regs);
	poke(child, at, byte);
	CHECK(!ptrace(PTRACE_SINGLESTEP, child, 0, 0));
	wait_stop(child, SIGTRAP);
}

static void attach(void)
{
	pid_t child = looping_child(site_traced);
	struct user_regs_struct regs;
	int i, in_site = 0, status;

	usleep(50000);
	CHECK(!ptrace(PTRACE_ATTACH, child, 0, 0));
	wait_stop(child, SIGSTOP);
	CHECK(is_original(child, site_traced));
	for (i = 0; i < 2000; i++) {
		CHECK(!ptrace(PTRACE_SINGLESTEP, child, 0, 0));
		wait_stop(child, SIGTRAP);
		ptrace(PTRACE_GETREGS, child, 0, &regs);
		if (regs.rip - (uintptr_t)site_traced < 8)
			in_site++;
		if (failures)
			break;
	}
	CHECK(in_site > 100);
	breakpoint(child, (char *)site_traced, original[0]);
	breakpoint(child, (char *)site_traced + 5, original[5]);
	breakpoint(child, (char *)site_traced + 7, original[7]);
	CHECK(!ptrace(PTRACE_CONT, child, 0, 0));
	usleep(20000);
	CHECK(!waitpid(child, &status, WNOHANG));
	kill(child, SIGSTOP);
	wait_stop(child, SIGSTOP);
	CHECK(is_original(child, site_traced));
	CHECK(!ptrace(PTRACE_DETACH, child, 0, 0));
	usleep(20000);
	CHECK(!waitpid(child, &status, WNOHANG));
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
}

/* Every call of a traced child stops twice. */
static void trace_calls(void)
{
	struct user_regs_struct regs;
	int i, calls = 0, status;
	pid_t child;

	heat(site_getppid, 0);
	child = fork();
	if (!child) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		for (i = 0; i < 100; i++)
			if (site_getppid(0, 0, 0, 0, 0, 0) != getppid())
				_exit(1);
		_exit(0);
	}
	wait_stop(child, SIGSTOP);
	CHECK(is_original(child, site_getppid));
	for (;;) {
		ptrace(PTRACE_SYSCALL, child, 0, 0);
		waitpid(child, &status, 0);
		if (!WIFSTOPPED(status))
			break;
		ptrace(PTRACE_GETREGS, child, 0, &regs);
		if (regs.orig_rax == SYS_getppid && regs.rip == (uintptr_t)site_getppid + 7)
			calls++;
	}
	CHECK(!status);
	CHECK(calls == 200);
}

static void forced_write(void)
{
	volatile unsigned char *bytes = (volatile unsigned char *)site_forced;
	int fd = open("/proc/self/mem", O_RDWR);

	heat(site_forced, 0);
	CHECK(is_jump(site_forced));
	CHECK(pwrite(fd, "\x27", 1, (off_t)(uintptr_t)site_forced + 1) == 1);
	CHECK(bytes[0] == 0xb8 && bytes[1] == SYS_getpid);
	CHECK(site_forced(0, 0, 0, 0, 0, 0) == getpid());
	heat(site_forced, 0);
	CHECK(site_forced(0, 0, 0, 0, 0, 0) == getpid());
}

/* A core dump has the same text as the file. */
static void core_dump(void)
{
	struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
	int fd, status, i, found = 0;
	unsigned char bytes[8];
	Elf64_Phdr segment;
	Elf64_Ehdr header;
	pid_t child;

	fd = open("/proc/sys/kernel/core_pattern", O_WRONLY);
	CHECK(write(fd, "/tmp/core", 9) == 9);
	close(fd);
	child = fork();
	if (!child) {
		setrlimit(RLIMIT_CORE, &unlimited);
		heat(site_core, 0);
		if (!is_jump(site_core))
			_exit(1);
		abort();
	}
	waitpid(child, &status, 0);
	CHECK(WIFSIGNALED(status) && WCOREDUMP(status));
	fd = open("/tmp/core", O_RDONLY);
	if (fd < 0)
		fd = open("/tmp/core.1", O_RDONLY);
	CHECK(pread(fd, &header, sizeof(header), 0) == sizeof(header));
	for (i = 0; i < header.e_phnum; i++) {
		pread(fd, &segment, sizeof(segment), (off_t)(header.e_phoff + i * sizeof(segment)));
		if (segment.p_type != PT_LOAD ||
		    (uintptr_t)site_core - segment.p_vaddr >= segment.p_filesz)
			continue;
		pread(fd, bytes, 8,
		      (off_t)(segment.p_offset + (uintptr_t)site_core - segment.p_vaddr));
		CHECK(!memcmp(bytes, original, sizeof(original)));
		found = 1;
	}
	CHECK(found);
}

static volatile uintptr_t trapped_at;
static volatile int trapped_nr;

static void sigsys(int signal, siginfo_t *info, void *context)
{
	ucontext_t *c = context;

	(void)signal;
	trapped_at = (uintptr_t)info->si_call_addr;
	trapped_nr = info->si_syscall;
	c->uc_mcontext.gregs[REG_RAX] = 4242;
}

static void seccomp_sees_site(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { 4, filter };
	struct sigaction action = { .sa_sigaction = sigsys, .sa_flags = SA_SIGINFO };

	heat(site_getppid, 0);
	CHECK(is_jump(site_getppid));
	sigaction(SIGSYS, &action, NULL);
	CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
	CHECK(site_getppid(0, 0, 0, 0, 0, 0) == 4242);
	CHECK(trapped_nr == SYS_getppid && trapped_at == (uintptr_t)site_getppid + 7);
}

static volatile int steps;

static void sigtrap(int signal)
{
	(void)signal;
	steps++;
}

long site_step_over(site_fn *site);

/* A program that single-steps itself. */
static void self_step(void)
{
	struct sigaction action = { .sa_handler = sigtrap };
	int i;

	sigaction(SIGTRAP, &action, NULL);
	heat(site_step, 0);
	CHECK(is_jump(site_step));
	for (i = 0; i < 10; i++) {
		steps = 0;
		CHECK(site_step_over(site_step) == getppid());
		CHECK(steps >= 5);
	}
}

const struct test debug_tests[] = {
	{ "attach", attach },
	{ "trace_calls", trace_calls },
	{ "forced_write", forced_write },
	{ "core_dump", core_dump },
	{ "seccomp_sees_site", seccomp_sees_site },
	{ "self_step", self_step },
	{ NULL, NULL },
};
