// SPDX-License-Identifier: Apache-2.0 OR MIT
/* What a system call does from a rewritten site. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include "check.h"

static void getppid_1000(void)
{
	int i;

	for (i = 0; i < 1000; i++)
		getppid();
}

static void libc_getppid(void)
{
	CHECK(traps_of(getppid_1000) < 100);
	CHECK(traps_of(getppid_1000) < 50);
	CHECK(getppid() == 1);
}

static int zero;

static void read_1000(void)
{
	char byte;
	int i;

	for (i = 0; i < 1000; i++) {
		byte = 1;
		CHECK(read(zero, &byte, 1) == 1 && !byte);
	}
}

static void write_1000(void)
{
	int i;

	for (i = 0; i < 1000; i++)
		CHECK(write(zero, "", 1) == 1);
}

static void libc_read_write(void)
{
	zero = open("/dev/zero", O_RDWR);
	CHECK(traps_of(read_1000) < 100);
	CHECK(traps_of(write_1000) < 100);
}

static void *nothing(void *argument)
{
	return argument;
}

/* C libraries use another path here, with cancellation points. */
static void libc_read_write_threads(void)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, nothing, NULL));
	pthread_join(thread, NULL);
	zero = open("/dev/zero", O_RDWR);
	CHECK(traps_of(read_1000) < 100);
	CHECK(traps_of(write_1000) < 100);
}

static void shapes(void)
{
	char page[4] = { 1, 1, 1, 1 };

	zero = open("/dev/zero", O_RDWR);
	heat(site_getppid, 0);
	CHECK(is_jump(site_getppid));
	CHECK(site_getppid(0, 0, 0, 0, 0, 0) == getppid());
	heat(site_futex, 0);
	CHECK(is_jump(site_futex));
	CHECK(site_futex(0, 0, 0, 0, 0, 0) == getppid());
	heat(site_wake, 0);
	CHECK(is_jump((char *)site_wake + 10));
	CHECK(site_wake(0, 0, 0, 0, 0, 0) == getppid());
	heat(site_loaded, 0);
	CHECK(is_jump((char *)site_loaded + 10));
	CHECK(site_loaded(0, 0, 0, 0, 0, 0) == getppid());
	heat(site_moved, 0);
	CHECK(is_jump(site_moved));
	CHECK(site_moved(0, 0, 0, 0, 0, 0) == getppid());
	heat(site_address, 0);
	CHECK(is_jump(site_address));
	CHECK(site_address(0, 0, 0, 0, 0, 0) == getppid());
	heat(site_read, zero);
	CHECK(is_jump(site_read));
	CHECK(site_read(zero, (long)page, 3, 0, 0, 0) == 3 && !page[2] && page[3] == 1);
	CHECK(site_read(-1, (long)page, 1, 0, 0, 0) == -EBADF);
	heat(site_go, 0);
	CHECK(is_jump(site_go_inner + 9));
	CHECK(site_go(0, 0, 0, 0, 0, 0) == getppid());
}

/* Functions of a C library that make calls which can be cancelled. */
static void cancellable(void)
{
	char *map = NULL;
	long state = 0;
	int i;

	for (i = 0; i < 50; i++)
		CHECK(site_single(0, 0, 0, 0, 0, 0, SYS_getppid) == getppid());
	CHECK(is_jump((char *)site_single + 1));
	CHECK(site_single(-1, 0, 0, 0, 0, 0, SYS_close) == -EBADF);
	for (i = 0; i < 50; i++) {
		int fd = open("/sites", O_RDONLY);

		map = (char *)site_cancelled(&state, SYS_mmap, 0, 8192, PROT_READ, MAP_PRIVATE,
					     fd, 4096);
		CHECK((unsigned long)map < -4095UL);
		CHECK(site_cancelled(&state, SYS_munmap, (long)map, 8192, 1, 2, 3, 4) == 0);
		close(fd);
	}
	CHECK(is_jump((char *)site_cancelled + 28));
}

/* All six arguments arrive. */
static void generic(void)
{
	char *map;
	int i;

	for (i = 0; i < 50; i++)
		site_generic(SYS_getppid, 0, 0, 0, 0, 0);
	CHECK(is_jump((char *)site_generic + 18));
	for (i = 0; i < 50; i++) {
		int fd = open("/sites", O_RDONLY);

		map = (char *)syscall(SYS_mmap, 0, 8192, PROT_READ, MAP_PRIVATE, fd, 4096);
		CHECK(map != MAP_FAILED);
		CHECK(syscall(SYS_munmap, map, 8192, 1, 2, 3, 4) == 0);
		close(fd);
	}
	errno = 0;
	CHECK(syscall(SYS_close, -1) == -1 && errno == EBADF);
	CHECK(syscall(100000) == -1 && errno == ENOSYS);
}

long site_registers(site_fn *site, const uint64_t *before, uint64_t *after);

static void registers(void)
{
	static const uint64_t flags[] = { 0x202, 0x203, 0x246, 0x287, 0xa97, 0xed7 };
	uint64_t before[16], after[18], seed = 88172645463325252ull;
	unsigned int i, n;

	heat(site_getppid, 0);
	for (n = 0; n < 3000; n++) {
		for (i = 0; i < 16; i++) {
			seed ^= seed << 13;
			seed ^= seed >> 7;
			seed ^= seed << 17;
			before[i] = seed;
		}
		before[12] = flags[n % (sizeof(flags) / sizeof(*flags))];
		CHECK(site_registers(site_getppid, before, after) == getppid());
		for (i = 0; i < 12; i++)
			CHECK(after[i] == before[i]);
		CHECK((after[12] & 0xcd5) == (before[12] & 0xcd5));
		CHECK(after[13] == before[13] && after[16] == before[13]);
		CHECK(after[14] == (uint64_t)site_getppid + 7);
		CHECK((after[15] & 0xed5) == (before[12] & 0xed5));
	}
}

/* Jumps to the old syscall instruction, and to the one after it. */
static void jump_inside(void)
{
	site_fn *inside = (site_fn *)((char *)site_getppid + 5);
	long result;
	int i;

	heat(site_getppid, 0);
	CHECK(is_jump(site_getppid));
	for (i = 0; i < 100; i++) {
		asm volatile("call *%1" : "=a"(result) : "r"(inside), "a"(SYS_getpid) : "rcx",
			     "r11", "memory");
		CHECK(result == getpid());
	}
	inside = (site_fn *)((char *)site_read + 2);
	heat(site_read, -1);
	CHECK(is_jump(site_read));
	asm volatile("call *%1" : "=a"(result) : "r"(inside), "a"(SYS_getpid) : "rcx", "r11",
		     "memory");
	CHECK(result == getpid());
}

static volatile int signals;

static void count_signal(int signal)
{
	(void)signal;
	signals++;
}

static void handle(int signal, int flags)
{
	struct sigaction action = { .sa_handler = count_signal, .sa_flags = flags };

	sigaction(signal, &action, NULL);
}

/* An interrupted call is restarted exactly when it should be. */
static void restart(void)
{
	struct itimerval soon = { .it_value = { .tv_usec = 20000 } };
	int ends[2], i;
	pid_t child;
	char byte;

	zero = open("/dev/zero", O_RDWR);
	heat(site_read, zero);
	CHECK(is_jump(site_read));
	CHECK(!pipe(ends));
	for (i = 0; i < 5; i++) {
		signals = 0;
		handle(SIGALRM, SA_RESTART);
		child = fork();
		if (!child) {
			usleep(60000);
			_exit(write(ends[1], "x", 1) != 1);
		}
		setitimer(ITIMER_REAL, &soon, NULL);
		byte = 0;
		CHECK(site_read(ends[0], (long)&byte, 1, 0, 0, 0) == 1 && byte == 'x' &&
		      signals == 1);
		waitpid(child, NULL, 0);
		handle(SIGALRM, 0);
		setitimer(ITIMER_REAL, &soon, NULL);
		CHECK(site_read(ends[0], (long)&byte, 1, 0, 0, 0) == -EINTR && signals == 2);
	}
}

/* A call that is always interrupted is replaced, too. */
static void always_interrupted(void)
{
	struct itimerval soon = { .it_value = { .tv_usec = 2000 } };
	int i;

	signals = 0;
	handle(SIGALRM, 0);
	for (i = 0; i < 30; i++) {
		setitimer(ITIMER_REAL, &soon, NULL);
		CHECK(site_pause(0, 0, 0, 0, 0, 0) == -EINTR);
	}
	CHECK(signals == 30);
	CHECK(is_jump(site_pause));
}

static void handlers(void)
{
	int i;

	handle(SIGUSR1, 0);
	signals = 0;
	for (i = 0; i < 1000; i++)
		CHECK(!kill(getpid(), SIGUSR1));
	CHECK(signals == 1000);
}

/* Children have their parents' sites and add their own, which no other process sees. */
static void fork_inherits(void)
{
	pid_t me = getpid(), child, grandchild;
	int status, i;

	heat(site_getppid, 0);
	for (i = 0; i < 20; i++) {
		child = fork();
		if (!child) {
			CHECK(is_jump(site_getppid));
			CHECK(site_getppid(0, 0, 0, 0, 0, 0) == me);
			heat(site_getpid, 0);
			CHECK(is_jump(site_getpid));
			CHECK(site_getpid(0, 0, 0, 0, 0, 0) == getpid());
			grandchild = fork();
			if (!grandchild) {
				heat(site_futex, 0);
				CHECK(site_futex(0, 0, 0, 0, 0, 0) == getppid());
				CHECK(site_getpid(0, 0, 0, 0, 0, 0) == getpid());
				_exit(failures != 0);
			}
			waitpid(grandchild, &status, 0);
			CHECK(!status);
			CHECK(!is_jump(site_futex));
			_exit(failures != 0);
		}
		waitpid(child, &status, 0);
		CHECK(!status);
		CHECK(!is_jump(site_getpid));
	}
	heat(site_getpid, 0);
	CHECK(site_getpid(0, 0, 0, 0, 0, 0) == me);
}

static void vfork_exec(void)
{
	int status, i;
	pid_t child;

	for (i = 0; i < 100; i++) {
		child = vfork();
		if (!child) {
			execl("/sites", "sites", "true", NULL);
			_exit(1);
		}
		CHECK(waitpid(child, &status, 0) == child && !status);
	}
}

static void *crowd(void *argument)
{
	unsigned int i, round, wrong = 0;
	pid_t parent = getppid();

	for (round = 0; round < 40; round++)
		for (i = 0; i < SITE_CROWD; i++)
			wrong += ((site_fn *)(site_crowd + i * SITE_BYTES))(0, 0, 0, 0, 0,
									    0) != parent;
	*(unsigned int *)argument = wrong;
	return NULL;
}

/* Sites are rewritten while other threads run there. */
static void threads(void)
{
	unsigned int wrong[4], i, jumps = 0;
	pthread_t thread[4];

	for (i = 0; i < 4; i++)
		CHECK(!pthread_create(&thread[i], NULL, crowd, &wrong[i]));
	for (i = 0; i < 4; i++) {
		pthread_join(thread[i], NULL);
		CHECK(!wrong[i]);
	}
	for (i = 0; i < SITE_CROWD; i++)
		jumps += is_jump(site_crowd + i * SITE_BYTES);
	CHECK(jumps > SITE_CROWD * 9 / 10);
}

static int blocked_ends[2];

static void *block(void *argument)
{
	char byte = 0;

	*(long *)argument = site_read(blocked_ends[0], (long)&byte, 1, 0, 0, 0);
	return NULL;
}

/* A thread waits in a call while its site is rewritten. */
static void replaced_while_waiting(void)
{
	pthread_t thread;
	long result = 0;

	zero = open("/dev/zero", O_RDWR);
	CHECK(!pipe(blocked_ends));
	CHECK(!pthread_create(&thread, NULL, block, &result));
	usleep(20000);
	CHECK(!is_jump(site_read));
	heat(site_read, zero);
	CHECK(is_jump(site_read));
	CHECK(write(blocked_ends[1], "x", 1) == 1);
	pthread_join(thread, NULL);
	CHECK(result == 1);
}

static volatile int cleaned;

static void clean(void *argument)
{
	(void)argument;
	cleaned = 1;
}

static void *cancelled(void *argument)
{
	char byte;

	pthread_cleanup_push(clean, NULL);
	while (read(blocked_ends[0], &byte, 1) >= 0)
		;
	pthread_cleanup_pop(0);
	return argument;
}

/* Unwinding starts at the return address of the call. */
static void cancellation(void)
{
	pthread_t thread;
	void *result;

	CHECK(!pipe(blocked_ends));
	CHECK(!pthread_create(&thread, NULL, nothing, NULL));
	pthread_join(thread, NULL);
	zero = open("/dev/zero", O_RDWR);
	read_1000();
	CHECK(!pthread_create(&thread, NULL, cancelled, NULL));
	usleep(20000);
	CHECK(!pthread_cancel(thread));
	CHECK(!pthread_join(thread, &result));
	CHECK(result == PTHREAD_CANCELED && cleaned);
}

const struct test basic_tests[] = {
	{ "libc_getppid", libc_getppid },
	{ "libc_read_write", libc_read_write },
	{ "libc_read_write_threads", libc_read_write_threads },
	{ "shapes", shapes },
	{ "generic", generic },
	{ "cancellable", cancellable },
	{ "registers", registers },
	{ "jump_inside", jump_inside },
	{ "restart", restart },
	{ "always_interrupted", always_interrupted },
	{ "handlers", handlers },
	{ "fork_inherits", fork_inherits },
	{ "vfork_exec", vfork_exec },
	{ "threads", threads },
	{ "replaced_while_waiting", replaced_while_waiting },
	{ "cancellation", cancellation },
	{ NULL, NULL },
};
