// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The kernel makes cpuid fault in a few runs of a program, to learn where the program executes it.
 * This happens at the start of the program only, and is invisible. If the host cannot make cpuid
 * fault, there is nothing to learn. learns=1 (tests/linux_sites.rs) tells that the host claims to
 * and does not.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include "check.h"
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

static void execute_cpuid(void)
{
	uint32_t a = 0, b, c = 0, d;

	__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
}

/* Whether an instruction that has not been learnt faults. */
static int shows(void)
{
	long before = counter("cpuid_trapped");

	execute_cpuid();
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

/* The value is what a program has asked for, not what the kernel does. */
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
		execute_cpuid();
		return 2;
	}
	/* Also after a while, and in a child. */
	pass(LONG_MS);
	return syscall(SYS_arch_prctl, ARCH_GET_CPUID, 0L) ? 3 : 0;
}

struct runs {
	long all, cut;
};

/* Of so many runs of a new program: those that may learn, and those that a bound has ended. */
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

const struct test learning_tests[] = {
	{ "learns_from_a_few_runs", a_few_runs },
	{ "learns_not_for_many_switches", not_for_many_switches },
	{ "learns_not_for_long", not_for_long },
	{ "learns_not_by_children", not_by_children },
	{ "learns_not_to_be_seen", not_to_be_seen },
	{ "learns_not_where_it_is_off", not_where_it_is_off },
	{ "learns_not_in_place_of_what_was_asked_for", not_in_place_of_what_was_asked_for },
	{ NULL, NULL },
};
