// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The program of `paravane bench exits` in a guest.
 *
 *   exits NUMBER      makes the mark that ends the boot, then carries out the lines of its input
 *
 * A line is `ROW OPERATIONS`, or `warm ROW OPERATIONS` without marks. Each runs in a process of its
 * own. The answer is that of the other benchmarks' sessions: `bench done STATUS MICROSECONDS` and
 * two lines.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "exits.h"

/* Work that the previous answer has caused in the guest ends in this time. */
#define SETTLE_US 50000

static const struct {
	const char *name;
	void (*run)(void);
} rows[] = {
	{ "idle", row_idle },
	{ "ticks", row_ticks },
	{ "lock", row_lock },
	{ "contend", row_contend },
	{ "ipi", row_ipi },
	{ "flush", row_flush },
	{ "pipe", row_pipe },
	{ "pipe_across", row_pipe_across },
	{ "fork", row_fork },
	{ "hackbench", row_hackbench },
};

uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Why a row has failed: shared with its process. */
static char *why;
#define WHY_SIZE 256

long must(long result, const char *what)
{
	if (result >= 0)
		return result;
	snprintf(why, WHY_SIZE, "%s: %s", what, strerror(errno));
	_exit(1);
}

/* Returns the exit status of the row's process. */
static int carry_out(const char *name)
{
	int status;
	pid_t child;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(*rows) && strcmp(rows[i].name, name); i++)
		;
	if (i == sizeof(rows) / sizeof(*rows) || !operations) {
		snprintf(why, WHY_SIZE, "there is no row %s", name);
		return 2;
	}
	fflush(stdout);
	child = (pid_t)must(fork(), "fork");
	if (!child) {
		usleep(SETTLE_US);
		rows[i].run();
		_exit(0);
	}
	must(waitpid(child, &status, 0), "waitpid");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

int main(int argc, char **argv)
{
	uint32_t number = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 0;
	char line[128], name[64];

	mark_number = number;
	end();
	why = mmap(NULL, WHY_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (why == MAP_FAILED)
		return 1;
	printf("bench ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		int warm = !strncmp(line, "warm ", 5), status;

		mark_number = warm ? 0 : number;
		if (sscanf(line + (warm ? 5 : 0), "%63s %lu", name, &operations) != 2)
			operations = 0;
		status = carry_out(name);
		printf("bench done %d 0\n\n%s\n", status, why);
		fflush(stdout);
	}
	return 0;
}
