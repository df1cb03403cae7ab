// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Addresses that belong to the kernel: its image in the hole of the user range, the direct map and
 * what else is above the user range, and the upper half. A program can neither map them nor make
 * the kernel access them for it.
 */
#include "test.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define USER_START 0x10000UL
#define HOLE_START 0x70000000UL
#define HOLE_END 0x7fe00000UL

static const uintptr_t in_hole[] = {
	HOLE_START, HOLE_START + PAGE, 0x7a000000, 0x7b000000, 0x7c345000, 0x7f000000,
	HOLE_END - PAGE,
};

static const uintptr_t elsewhere[] = {
	0x7b0000000000, 0x7b0000100000, 0x7c0000000000, 0x7d0000000000, 0x7dfffffff000,
	0x7e8000000000, 0x7ffffffff000,
	0xffff800000000000, 0xffffffff81000000, 0xfffffffffffff000,
};

/* Up to the end of the user range. */
static const uintptr_t in_range[] = {
	0x400000000000, 0x4fffffffe000, 0x500000000000, 0x600000000000, 0x7a0000000000,
};

static void map_far(void)
{
	size_t i;

	for (i = 0; i < sizeof(in_range) / sizeof(in_range[0]); i++) {
		char *at = (char *)in_range[i];

		CHECK(mmap(at, 2 * PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == at);
		at[PAGE - 1] = 1;
		at[PAGE] = 2;
		CHECK(at[PAGE - 1] == 1 && at[PAGE] == 2 && !at[0]);
		CHECK(munmap(at, 2 * PAGE) == 0);
		CHECK(try_write(at, 1) == SIGSEGV);
	}
}

static void map_there(void)
{
	size_t i;
	char *m;

	for (i = 0; i < sizeof(in_hole) / sizeof(in_hole[0]); i++) {
		void *at = (void *)in_hole[i];

		CHECK(mmap(at, PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED);
		CHECK(mmap(at, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
			   -1, 0) == MAP_FAILED);
		/* A hint is only a hint. */
		m = memory_at(at, PAGE, 0);
		CHECK((uintptr_t)m < HOLE_START || (uintptr_t)m >= HOLE_END);
		CHECK(mremap(m, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED);
		CHECK(try_write(m, 1) == 0);
		/* Nothing there belongs to a program. */
		munmap(at, PAGE);
		CHECK(mprotect(at, PAGE, PROT_READ | PROT_WRITE) == -1);
		CHECK(madvise(at, PAGE, MADV_DONTNEED) == -1);
	}
	/* Over one of its bounds. */
	CHECK(mmap((void *)(HOLE_START - 4 * PAGE), 8 * PAGE, PROT_READ,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	      MAP_FAILED);
	CHECK(mmap((void *)(HOLE_END - PAGE), 2 * PAGE, PROT_READ,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	      MAP_FAILED);
	CHECK(mmap((void *)(HOLE_START - MIB), HOLE_END - HOLE_START + 2 * MIB, PROT_READ,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED);
	/* There is room beside it. */
	CHECK(memory_at((void *)HOLE_END, MIB, MAP_FIXED) == (void *)HOLE_END);
	memset((void *)HOLE_END, 1, MIB);
	/* A mapping below does not grow into it. */
	m = memory_at((void *)(HOLE_START - 16 * PAGE), PAGE, MAP_FIXED);
	CHECK(mremap(m, PAGE, 32 * PAGE, 0) == MAP_FAILED);
	for (i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++)
		CHECK(mmap((void *)elsewhere[i], PAGE, PROT_READ,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
		      MAP_FAILED);
}

static void least_address(const char *value)
{
	int file = open("/proc/sys/vm/mmap_min_addr", O_WRONLY);

	CHECK(file >= 0 && write(file, value, strlen(value)) == (ssize_t)strlen(value));
	close(file);
}

/*
 * Addresses that no program may use are denied to root, too, whatever it sets the minimum address
 * to.
 */
static void below_all(void)
{
	static const uintptr_t below[] = { 0, PAGE, USER_START - PAGE };
	int rights = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
	char *m = memory(PAGE);
	size_t i, least;

	for (least = 0; least < 2; least++) {
		least_address(least ? "65536" : "0");
		for (i = 0; i < sizeof(below) / sizeof(below[0]); i++) {
			void *at = (void *)below[i];

			CHECK(mmap(at, PAGE, rights, flags | MAP_FIXED, -1, 0) == MAP_FAILED &&
			      errno == EPERM);
			CHECK(mmap(at, 32 * PAGE, rights, flags | MAP_FIXED_NOREPLACE, -1,
				   0) == MAP_FAILED && errno == EPERM);
			CHECK(mremap(m, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
				     at) == MAP_FAILED && errno == EPERM);
			CHECK((uintptr_t)memory_at(at, PAGE, 0) >= USER_START);
			CHECK(try_read(at) == SIGSEGV && last_code == SEGV_MAPERR);
		}
		/* A mapping at the lowest page does not grow. */
		CHECK(memory_at((void *)USER_START, PAGE,
				MAP_FIXED | MAP_GROWSDOWN) == (void *)USER_START);
		CHECK(try_write((void *)USER_START, 1) == 0);
		CHECK(try_write((void *)(USER_START - 8), 1) == SIGSEGV);
		CHECK(munmap((void *)USER_START, PAGE) == 0);
	}
}

/*
 * System calls that write through a pointer by put_user, by copy_to_user, and in ways that may be
 * open-coded.
 */
static void kernel_writes(void *at)
{
	struct iovec iov = { at, 16 };
	char c = 1;
	int pipes[2], zero = open("/dev/zero", O_RDONLY);

	CHECK(!pipe(pipes) && write(pipes[1], "0123456789abcdef", 16) == 16);
	CHECK(read(pipes[0], at, 8) == -1 && errno == EFAULT);
	CHECK(readv(pipes[0], &iov, 1) == -1 && errno == EFAULT);
	if (zero >= 0)
		CHECK(read(zero, at, 16) == -1 && errno == EFAULT);
	CHECK(write(pipes[1], at, 8) == -1 && errno == EFAULT);
	CHECK(writev(pipes[1], &iov, 1) == -1 && errno == EFAULT);
	CHECK(syscall(SYS_clock_gettime, CLOCK_REALTIME, at) == -1 && errno == EFAULT);
	CHECK(syscall(SYS_clock_nanosleep, CLOCK_REALTIME, 0, at, NULL) == -1 && errno == EFAULT);
	CHECK(syscall(SYS_getcpu, at, NULL, NULL) == -1 && errno == EFAULT);
	CHECK(syscall(SYS_pipe2, at, 0) == -1 && errno == EFAULT);
	CHECK(syscall(SYS_getrlimit, RLIMIT_STACK, at) == -1 && errno == EFAULT);
	CHECK(syscall(SYS_wait4, -1, at, 0, at) == -1);
	CHECK(syscall(SYS_rt_sigaction, SIGUSR1, NULL, at, 8) == -1 && errno == EFAULT);
	CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, at, 8) == -1 && errno == EFAULT);
	CHECK(syscall(SYS_futex, at,
		      0 /* FUTEX_WAIT */, 0, NULL, NULL, 0) == -1 &&
	      (errno == EFAULT || errno == EAGAIN));
	CHECK(errno == EFAULT);
	CHECK(syscall(SYS_newfstatat, AT_FDCWD, at, at, 0) == -1 && errno == EFAULT);
	CHECK(syscall(SYS_execve, at, NULL, NULL) == -1 && errno == EFAULT);
	CHECK(syscall(SYS_sysinfo, at) == -1 && errno == EFAULT);
	CHECK(syscall(SYS_uname, at) == -1 && errno == EFAULT);
	CHECK(syscall(SYS_getdents64, zero, at, 16) == -1);
	CHECK(syscall(SYS_sched_getaffinity, 0, 128, at) == -1 && errno == EFAULT);
	CHECK(syscall(SYS_rseq, at, 32, 0, 0) == -1);
	CHECK(c == 1);
	close(pipes[0]);
	close(pipes[1]);
	close(zero);
}

static void kernel_pointers(void)
{
	size_t i;

	for (i = 0; i < sizeof(in_hole) / sizeof(in_hole[0]); i++)
		kernel_writes((void *)(in_hole[i] + 64));
	for (i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++)
		kernel_writes((void *)(elsewhere[i] + 64));
	/* The words before it belong to the guard. */
	kernel_writes((void *)(HOLE_START - 8));
}

/*
 * Maps pieces of this size until there is no room, below and above, from both ends: none overlaps
 * the hole.
 */
static void fill_up(size_t size, int flags)
{
	unsigned long start, end;
	char line[512];
	FILE *maps;

	while (mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1,
		    0) != MAP_FAILED)
		;
	maps = fopen("/proc/self/maps", "r");
	CHECK(maps);
	while (fgets(line, sizeof(line), maps)) {
		CHECK(sscanf(line, "%lx-%lx", &start, &end) == 2);
		CHECK(end <= HOLE_START || start >= HOLE_END);
	}
	fclose(maps);
}

static void full_address_space(void)
{
	int i, status;
	pid_t child;

	for (i = 0; i < 4; i++) {
		child = (pid_t)fork();
		CHECK(child >= 0);
		if (!child) {
			/* Once it is full from above, the kernel searches from below, too. */
			fill_up(i & 1 ? 3UL << 30 : 1UL << 30, 0);
			if (i & 2)
				fill_up(16 * MIB, MAP_32BIT);
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child);
		CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
	}
}

const struct test hole_tests[] = {
	{ "hole.below", below_all, true },
	{ "hole.far", map_far, true },
	{ "hole.full", full_address_space, true },
	{ "hole.mappings", map_there, true },
	{ "hole.pointers", kernel_pointers, true },
	{ NULL, NULL, false },
};
