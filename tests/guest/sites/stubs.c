// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Signals that come while a thread executes the stub of a replaced site. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>
#include "check.h"

#define SIGNALS 3000
#define RANGES_MAX 8

extern char etext[];

/* Where stubs of this process lie. */
static struct {
	uintptr_t start, end;
} ranges[RANGES_MAX];
static int range_count;

static uintptr_t at_site;
static volatile long seen, in_site, in_stub;

static void where(int signal, siginfo_t *info, void *context)
{
	const ucontext_t *c = context;
	uintptr_t ip = (uintptr_t)c->uc_mcontext.gregs[REG_RIP];
	int i;

	(void)signal;
	(void)info;
	seen++;
	in_site += ip - at_site < 7;
	for (i = 0; i < range_count; i++)
		in_stub += ip >= ranges[i].start && ip < ranges[i].end;
}

/* Stubs of a process lie in mappings of their own, those of a text after its last byte. */
static void find_stubs(void)
{
	FILE *file = fopen("/proc/self/maps", "r");
	unsigned long start, end;
	char line[512];

	ranges[0].start = (uintptr_t)etext;
	ranges[0].end = ((uintptr_t)etext + 4095) & ~4095UL;
	range_count = 1;
	while (file && fgets(line, sizeof(line), file) && range_count < RANGES_MAX)
		if (strstr(line, "[syscalls]") && sscanf(line, "%lx-%lx", &start, &end) == 2) {
			ranges[range_count].start = start;
			ranges[range_count++].end = end;
		}
	if (file)
		fclose(file);
}

/* Calls a replaced site while signals come. Returns whether they found the thread at the site. */
static int found_at_site(site_fn *site, long argument, long expected)
{
	struct itimerval timer = {
		.it_interval = { .tv_usec = 150 }, .it_value = { .tv_usec = 1 },
	};
	struct sigaction action = { .sa_sigaction = where, .sa_flags = SA_SIGINFO | SA_RESTART };
	long wrong = 0;

	heat(site, argument);
	if (!is_jump(site)) {
		printf("# the site was not replaced\n");
		return 0;
	}
	find_stubs();
	at_site = (uintptr_t)site;
	seen = in_site = in_stub = 0;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
	while (seen < SIGNALS)
		wrong += site(argument, 0, 0, 0, 0, 0) != expected;
	timer.it_interval.tv_usec = 0;
	timer.it_value.tv_usec = 0;
	setitimer(ITIMER_REAL, &timer, NULL);
	if (wrong || in_stub || !in_site)
		printf("# %ld wrong results; of %ld signals, %ld in a stub, %ld at the site\n",
		       wrong, seen, in_stub, in_site);
	return !wrong && !in_stub && in_site;
}

int signalled(void)
{
	int zero = open("/dev/zero", O_RDWR), result = 0;

	/* A jump to the stub, and one to a jump in padding. */
	if (!found_at_site(site_getppid, 0, getppid()))
		result |= 1;
	if (!found_at_site(site_read, zero, 0))
		result |= 2;
	close(zero);
	return result;
}

static void found_in_own_code(void)
{
	CHECK(signalled() == 0);
}

const struct test stub_tests[] = {
	{ "signals_find_own_code", found_in_own_code },
	{ NULL, NULL },
};
