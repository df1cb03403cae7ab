// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The first process of a machine with a layer: makes two CPUs work, and prints what the kernel says
 * of the layer and what the layer has counted, which tests/outsider tells in registers of its own.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The registers of tests/outsider/outsider.h. */
#define MSR 0x4f757400
#define STATS "/sys/kernel/debug/vmi/stats"

/* Prints the lines of a file, each after a word. */
static void print_file(const char *word, const char *path)
{
	char line[4096];
	FILE *file = fopen(path, "r");

	if (!file) {
		perror(path);
		return;
	}
	while (fgets(line, sizeof(line), file))
		printf("%s %s", word, line);
	fclose(file);
}

/* Lines of the kernel's log about the layer, and its warnings. */
static void print_log(void)
{
	char text[8192];
	ssize_t size;
	int log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK);

	while ((size = read(log, text, sizeof(text) - 1)) > 0) {
		text[size] = 0;
		if (strstr(text, "VMI:") || strstr(text, "WARNING:") || strstr(text, "BUG:"))
			printf("log %s", strchr(text, ';') ? strchr(text, ';') + 1 : text);
	}
}

static void print_counts(int cpu)
{
	static const char *const names[] = { "irq_disable", "irq_flag", "get_cr3", "set_cr3",
					     "apic_id" };
	char path[64];
	uint64_t count;
	int file;

	snprintf(path, sizeof(path), "/dev/cpu/%d/msr", cpu);
	file = open(path, O_RDONLY);
	for (int i = 0; i < 5; i++) {
		if (pread(file, &count, 8, MSR + i) == 8)
			printf("count %d %s %llu\n", cpu, names[i], (unsigned long long)count);
		else
			perror(path);
	}
}

static void work(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		perror("sched_setaffinity");
	for (int i = 0; i < 100; i++) {
		pid_t child = fork();

		if (!child)
			_exit(i & 0x7f);
		int status;

		if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != (i & 0x7f))
			printf("the child %d of CPU %d failed\n", i, cpu);
		usleep(100);
	}
}

int main(void)
{
	mount("dev", "/dev", "devtmpfs", 0, NULL);
	mkdir("/sys", 0755);
	mount("sys", "/sys", "sysfs", 0, NULL);
	mount("debug", "/sys/kernel/debug", "debugfs", 0, NULL);
	for (int cpu = 0; cpu < 2; cpu++)
		work(cpu);
	print_log();
	print_file("sites", "/sys/kernel/debug/vmi/calls");
	if (!access(STATS, F_OK)) {
		int file;

		print_file("stat", STATS);
		file = open(STATS, O_WRONLY);
		if (write(file, "0", 1) != 1)
			perror(STATS);
		close(file);
		print_file("reset", STATS);
	}
	for (int cpu = 0; cpu < sysconf(_SC_NPROCESSORS_ONLN); cpu++)
		print_counts(cpu);
	printf("done\n");
	fflush(stdout);
	reboot(RB_POWER_OFF);
	return 1;
}
