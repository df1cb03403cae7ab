// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The kernel makes cpuid fault in a few runs of a program, to learn where the program executes it.
 * This happens at the start of the program only, and is invisible. If the host cannot make cpuid
 * fault, there is nothing to learn. learns=1 (tests/linux_sites.rs) says that the host only claims
 * to make it fault.
 */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include "check.h"
#include "children.h"
#include "copies.h"

#define ARCH_GET_CPUID 0x1011
#define ARCH_SET_CPUID 0x1012

/* Longer than any start, with more switches. */
#define LONG_MS 80
#define MANY 24

static void pass(long ms)
{
	struct timespec begun, now;

	clock_gettime(CLOCK_MONOTONIC, &begun);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000 < ms);
}

static uint32_t largest_leaf(void)
{
	uint32_t a = 0, b, c = 0, d;

	__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	return a;
}

/* Whether an instruction that has not been learnt faults. */
static int shows(void)
{
	long before = counter("cpuid_trapped");

	largest_leaf();
	return counter("cpuid_trapped") != before;
}

/* On a busy host, a sleep may be over before the process is switched. */
int as_sleeper(const char *unused)
{
	struct rusage usage = { .ru_nvcsw = 0 };
	int i;

	(void)unused;
	for (i = 0; i < 100 * MANY && usage.ru_nvcsw < MANY; i++) {
		usleep(1);
		if (getrusage(RUSAGE_SELF, &usage))
			return 2;
	}
	return usage.ru_nvcsw < MANY ? 3 : shows();
}

int as_spinner(const char *unused)
{
	(void)unused;
	pass(LONG_MS);
	getppid();
	return shows();
}

static void *thread(void *shown)
{
	*(int *)shown = shows();
	return NULL;
}

/* A new child is past its start. */
int as_parent(const char *unused)
{
	int status, shown = 1;
	pthread_t id;
	pid_t child = fork();

	(void)unused;
	if (!child)
		_exit(shows());
	if (waitpid(child, &status, 0) != child || status)
		return 1;
	if (pthread_create(&id, NULL, thread, &shown) || pthread_join(id, NULL))
		return 2;
	return shown;
}

/* The value is the one that a program has set, not the one that the kernel uses. */
int as_asker(const char *unused)
{
	int status;
	pid_t child = fork();

	(void)unused;
	if (!child)
		_exit(syscall(SYS_arch_prctl, ARCH_GET_CPUID, 0L) != 1);
	if (waitpid(child, &status, 0) != child || status)
		return 1;
	return syscall(SYS_arch_prctl, ARCH_GET_CPUID, 0L) != 1;
}

/* Where two processes meet that execute the same instructions. */
struct meeting {
	volatile int ready, next, done;
};

static struct meeting *meet(const char *path)
{
	int fd = open(path, O_RDWR);
	void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	close(fd);
	alarm(10);
	return at == MAP_FAILED ? NULL : at;
}

static uint32_t cpuid_at(int i)
{
	return ((uint32_t (*)(uint32_t, uint32_t))(site_cpuids + i * SITE_BYTES))(0, 0);
}

/* Executes each instruction once. */
int as_opener(const char *unused)
{
	int i;

	(void)unused;
	for (i = 0; i < SITE_CPUIDS; i++)
		if (cpuid_at(i) != largest_leaf())
			return 1;
	return 0;
}

/* Executes each instruction for the second time, which replaces it. */
int as_second(const char *path)
{
	struct meeting *m = meet(path);
	int i, wrong = 0;

	if (!m)
		return 2;
	while (!m->ready)
		;
	for (i = 0; i < SITE_CPUIDS; i++) {
		m->next = i + 1;
		wrong += cpuid_at(i) != largest_leaf();
		while (m->done <= i)
			;
	}
	return wrong != 0;
}

static long now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Executes each instruction all the time while it is being replaced. */
int as_looper(const char *path)
{
	struct meeting *m = meet(path);
	int i, wrong = 0;
	long begun;

	if (!m)
		return 2;
	m->ready = 1;
	for (i = 0; i < SITE_CPUIDS; i++) {
		while (m->next <= i)
			;
		begun = now_us();
		while (now_us() - begun < 10)
			;
		while (now_us() - begun < 400)
			wrong += cpuid_at(i) != largest_leaf();
		m->done = i + 1;
	}
	return wrong != 0;
}

static sigjmp_buf back;

static void on_fault(int signal)
{
	siglongjmp(back, signal);
}

/* A program that has asked for faults gets them as signals. */
int as_refuser(const char *unused)
{
	(void)unused;
	/* This processor does not have the feature. */
	if (syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0L))
		return 0;
	if (syscall(SYS_arch_prctl, ARCH_GET_CPUID, 0L))
		return 1;
	signal(SIGSEGV, on_fault);
	if (!sigsetjmp(back, 1)) {
		largest_leaf();
		return 2;
	}
	/* Also after a while, and in a child. */
	pass(LONG_MS);
	return syscall(SYS_arch_prctl, ARCH_GET_CPUID, 0L) ? 3 : 0;
}

struct runs {
	long all, cut;
};

/* Of several runs of a new program: those that may learn, and those that a bound has ended. */
static struct runs runs_of(const char *what)
{
	const char *path;
	struct runs runs;
	int i;

	/* This run may learn, too. */
	pass(LONG_MS);
	path = copy(what);
	runs = (struct runs){ counter("cpuid_runs"), counter("cpuid_runs_cut") };
	CHECK(runs.all >= 0 && runs.cut >= 0);
	for (i = 0; i < OFTEN; i++) {
		int code = once(path, what, "");

		if (code)
			printf("# run %d of %s: %d\n", i, what, code);
		CHECK(!code);
	}
	runs.all = counter("cpuid_runs") - runs.all;
	runs.cut = counter("cpuid_runs_cut") - runs.cut;
	printf("# %s: %ld runs to learn from, %ld of them cut\n", what, runs.all, runs.cut);
	CHECK(runs.all > 0 || !getenv("learns"));
	return runs;
}

static void a_few_runs(void)
{
	struct runs runs = runs_of("nothing");

	CHECK(runs.all < OFTEN / 2);
	CHECK(runs.cut < runs.all || !runs.all);
}

static void not_for_many_switches(void)
{
	struct runs runs = runs_of("sleeper");

	/* If instructions do fault, there may be enough of them before. */
	CHECK(runs.cut == runs.all || !getenv("learns"));
}

static void not_for_long(void)
{
	struct runs runs = runs_of("spinner");

	/* If instructions do fault, there may be enough of them before. */
	CHECK(runs.cut == runs.all || !getenv("learns"));
}

static void not_by_children(void)
{
	runs_of("parent");
}

static void not_to_be_seen(void)
{
	runs_of("asker");
}

static int set_learning(int on)
{
	FILE *file = fopen("/sys/module/vmi/parameters/cpuid", "w");
	int bad = !file || fprintf(file, "%d\n", on) < 0;

	return (file && fclose(file)) || bad;
}

static void not_where_it_is_off(void)
{
	const char *path = copy("off");
	long runs;
	int i;

	pass(LONG_MS);
	CHECK(!set_learning(0));
	runs = counter("cpuid_runs");
	for (i = 0; i < OFTEN; i++)
		CHECK(!once(path, "nothing", ""));
	CHECK(counter("cpuid_runs") == runs);
	CHECK(!set_learning(1));
}

static void not_in_place_of_what_was_asked_for(void)
{
	/* The host only claims that. */
	if (!getenv("learns"))
		runs_of("refuser");
}

/* The runs of a program from which on its cpuid instructions fault. */
#define RUNS_BEFORE 3

/* A process finds the instruction replaced that has just faulted in it. */
static void replaced_while_it_faults(void)
{
	static const char *const acts[] = { "second", "looper" };
	const char *path = copy("raced"), *meeting = "/tmp/meeting";
	int i, status, fd = open(meeting, O_RDWR | O_CREAT | O_TRUNC, 0600);
	pid_t child[2];

	/* Both wait for each other all the time. */
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		return;
	CHECK(fd >= 0 && !ftruncate(fd, 4096));
	close(fd);
	for (i = 0; i < RUNS_BEFORE; i++)
		CHECK(!once(path, "nothing", ""));
	CHECK(!once(path, "opener", ""));
	for (i = 0; i < 2; i++) {
		child[i] = fork();
		if (!child[i])
			_exit(once(path, acts[i], meeting));
	}
	for (i = 0; i < 2; i++) {
		CHECK(waitpid(child[i], &status, 0) == child[i]);
		if (status)
			printf("# the %s ended with %#x\n", acts[i], status);
		CHECK(!status);
	}
}

const struct test learning_tests[] = {
	{ "replaced_while_it_faults", replaced_while_it_faults },
	{ "learns_from_a_few_runs", a_few_runs },
	{ "learns_not_for_many_switches", not_for_many_switches },
	{ "learns_not_for_long", not_for_long },
	{ "learns_not_by_children", not_by_children },
	{ "learns_not_to_be_seen", not_to_be_seen },
	{ "learns_not_where_it_is_off", not_where_it_is_off },
	{ "learns_not_in_place_of_what_was_asked_for", not_in_place_of_what_was_asked_for },
	{ NULL, NULL },
};
