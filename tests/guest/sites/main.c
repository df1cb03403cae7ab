// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Rewritten system-call sites, as a program sees them. A guest's first process, which runs all
 * tests and powers the machine off with 0 if all passed. Prints TAP.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "check.h"

int failures;
const char *current_test;

long counter(const char *name)
{
	FILE *file = fopen("/sys/kernel/debug/vmi/sites", "r");
	char word[64];
	long value, found = -1;

	while (file && fscanf(file, "%63s %ld", word, &value) == 2)
		if (!strcmp(word, name))
			found = value;
	if (file)
		fclose(file);
	return found;
}

long traps_of(void (*act)(void))
{
	long before = counter("trapped");

	CHECK(before >= 0);
	act();
	/* Reading the figure takes a few calls, too. */
	return counter("trapped") - before;
}

int is_jump(const void *site)
{
	const volatile unsigned char *bytes = site;

	return bytes[0] == 0xe9 || bytes[0] == 0xeb;
}

void heat(site_fn *site, long a)
{
	int i;

	for (i = 0; i < 50; i++)
		site(a, 0, 0, 0, 0, 0);
}

static int run(const struct test *tests, int number, const char *filter)
{
	int status;
	pid_t child;

	for (; tests->name; tests++) {
		if (filter && !strstr(tests->name, filter))
			continue;
		fflush(stdout);
		/* Each test has a process of its own, so its text equals the file. */
		child = fork();
		if (!child) {
			if (access("/sites", X_OK) == 0)
				execl("/sites", "sites", "run", tests->name, NULL);
			_exit(126);
		}
		if (waitpid(child, &status, 0) != child || !WIFEXITED(status) ||
		    WEXITSTATUS(status)) {
			printf("not ok %d - %s (status %#x)\n", ++number, tests->name, status);
			failures++;
		} else {
			printf("ok %d - %s\n", ++number, tests->name);
		}
	}
	return number;
}

static const struct test *const all[] = {
	basic_tests, memory_tests, debug_tests, stub_tests, shared_tests, learning_tests,
	last_tests,
};
/*
 * The tests from here on are about many processes. Those before are about one process's own sites.
 */
#define TOGETHER 4

static int run_one(const char *name)
{
	const struct test *test;
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(*all); i++)
		for (test = all[i]; test->name; test++) {
			if (strcmp(test->name, name))
				continue;
			current_test = name;
			alarm(60);
			test->run();
			return failures != 0;
		}
	return 125;
}

int main(int argc, char **argv)
{
	const char *filter = getenv("filter");
	int number = 0, fd;
	FILE *file;
	size_t i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3 && !strcmp(argv[1], "run"))
		return run_one(argv[2]);
	if (argc == 4 && !strcmp(argv[1], "as"))
		return act_as(argv[2], argv[3]);
	if (argc == 2 && !strcmp(argv[1], "true"))
		return 0;
	mount("dev", "/dev", "devtmpfs", 0, NULL);
	mount("proc", "/proc", "proc", 0, NULL);
	mount("sys", "/sys", "sysfs", 0, NULL);
	mount("debug", "/sys/kernel/debug", "debugfs", 0, NULL);
	fd = open("/dev/console", O_RDWR);
	dup2(fd, 0);
	dup2(fd, 1);
	dup2(fd, 2);
	mkdir("/tmp", 0777);
	for (i = 0; i < sizeof(all) / sizeof(*all); i++) {
		file = fopen("/sys/module/vmi/parameters/shared_sites", "w");
		if (!file || fprintf(file, "%d\n", i >= TOGETHER) < 0 || fclose(file))
			failures++;
		number = run(all[i], number, filter);
	}
	file = fopen("/sys/kernel/debug/vmi/sites", "r");
	while (file && (fd = fgetc(file)) != EOF)
		putchar(fd == '\n' ? ' ' : fd);
	printf("\n1..%d\n", number);
	file = fopen("/sys/module/vmi/parameters/exit_status", "w");
	if (file) {
		fprintf(file, "%d\n", failures || !number);
		fclose(file);
	}
	reboot(RB_POWER_OFF);
}
