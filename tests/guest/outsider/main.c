// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The first process of a machine with a layer: makes two CPUs work, and prints what the kernel says
 * of the layer and the layer's counts, which tests/outsider shows in registers of its own. With
 * that layer it also has the wall clock moved, and time stolen. Where locks wait in the layer, it
 * has two CPUs contend for one.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The registers of tests/outsider/outsider.h. */
#define MSR 0x4f757400
#define MOVE_CLOCK (MSR + 0x10)
#define STEAL (MSR + 0x11)
#define STATS "/sys/kernel/debug/vmi/stats"
#define LOCKS "/sys/kernel/debug/vmi/locks"
#define VCPUS "/sys/kernel/debug/vmi/vcpus"

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
					     "eoi", "flush_space", "wallclock", "set_alarm",
					     "apic_id", "stays" };
	char path[64];
	uint64_t count;
	int file;

	snprintf(path, sizeof(path), "/dev/cpu/%d/msr", cpu);
	file = open(path, O_RDONLY);
	for (int i = 0; i < 10; i++) {
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

/* How long two CPUs contend, ms. */
#define CONTEND 1500

static atomic_bool enough;

/* Takes the lock of the process's table of files again and again. */
static void *take_lock(void *unused)
{
	long times = 0;

	(void)unused;
	while (!atomic_load_explicit(&enough, memory_order_relaxed)) {
		if (close(dup(0)))
			perror("close");
		times++;
	}
	return (void *)times;
}

/* Two threads, and how often each took the lock. A waiter that nothing wakes ends neither. */
static void contend(void)
{
	pthread_t threads[2];
	void *times;

	for (int i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, take_lock, NULL))
			perror("pthread_create");
	usleep(CONTEND * 1000);
	atomic_store(&enough, true);
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], &times);
		printf("contended %ld\n", (long)times);
	}
}

static int set_register(unsigned int msr, uint64_t value)
{
	int file = open("/dev/cpu/0/msr", O_WRONLY);
	int result = pwrite(file, &value, 8, msr) == 8 ? 0 : -1;

	close(file);
	return result;
}

/* The kernel's clock sources and clock events; then time passes by the layer's clock. */
static void clocks(void)
{
	static const char current[] = "/sys/devices/system/clocksource/clocksource0/"
				      "current_clocksource";
	struct timespec start, end;
	int file;

	print_file("device", "/sys/devices/system/clockevents/clockevent0/current_device");
	file = open(current, O_WRONLY);
	/* The kernel takes any name, and goes on with the best clock if there is no such one. */
	if (write(file, "vmi", 3) != 3)
		perror(current);
	close(file);
	print_file("source", current);
	clock_gettime(CLOCK_MONOTONIC, &start);
	usleep(200000);
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("slept %lld ms\n", (long long)((end.tv_sec - start.tv_sec) * 1000 +
					      (end.tv_nsec - start.tv_nsec) / 1000000));
	file = open(current, O_WRONLY);
	if (write(file, "tsc", 3) != 3)
		perror(current);
	close(file);
}

static int64_t seconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec;
}

/* The eighth number of /proc/stat, in ms. */
static uint64_t stolen_ms(void)
{
	unsigned long long ticks = 0;
	FILE *file = fopen("/proc/stat", "r");

	if (fscanf(file, "cpu %*u %*u %*u %*u %*u %*u %*u %llu", &ticks) != 1)
		printf("/proc/stat has another form\n");
	fclose(file);
	return ticks * 1000 / sysconf(_SC_CLK_TCK);
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000ULL + now.tv_nsec / 1000000;
}

static void spin(int64_t time)
{
	for (int64_t end = seconds(CLOCK_MONOTONIC) + time; seconds(CLOCK_MONOTONIC) < end;)
		;
}

/* The hypervisor's clock jumps by an hour: how far does the machine's? */
static void move_clock(void)
{
	int64_t before = seconds(CLOCK_REALTIME) - seconds(CLOCK_MONOTONIC), moved = 0;

	if (set_register(MOVE_CLOCK, 3600))
		perror("the clock does not move");
	for (int i = 0; i < 100 && moved < 3000; i++) {
		usleep(100000);
		moved = seconds(CLOCK_REALTIME) - seconds(CLOCK_MONOTONIC) - before;
	}
	printf("moved %lld\n", (long long)moved);
}

/* A quarter of the time is stolen from now on: how much of it does the kernel account? */
static void steal(void)
{
	uint64_t start, stolen;

	printf("stolen before %llu\n", (unsigned long long)stolen_ms());
	if (set_register(STEAL, 1))
		perror("nothing is stolen");
	/* The kernel notices it first. */
	spin(4);
	start = now_ms();
	stolen = stolen_ms();
	spin(4);
	printf("stolen %llu of %llu ms\n", (unsigned long long)(stolen_ms() - stolen),
	       (unsigned long long)(now_ms() - start));
}

int main(void)
{
	mount("dev", "/dev", "devtmpfs", 0, NULL);
	mkdir("/proc", 0755);
	mount("proc", "/proc", "proc", 0, NULL);
	mkdir("/sys", 0755);
	mount("sys", "/sys", "sysfs", 0, NULL);
	mount("debug", "/sys/kernel/debug", "debugfs", 0, NULL);
	for (int cpu = 0; cpu < 2 && cpu < sysconf(_SC_NPROCESSORS_ONLN); cpu++)
		work(cpu);
	print_log();
	clocks();
	print_file("sites", "/sys/kernel/debug/vmi/calls");
	if (!access(LOCKS, F_OK)) {
		contend();
		print_file("lock", LOCKS);
	}
	if (!access(VCPUS, F_OK))
		print_file("vcpu", VCPUS);
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
	if (!access("/sys/kernel/debug/vmi/calls", F_OK) && !set_register(MOVE_CLOCK, 0)) {
		move_clock();
		steal();
	}
	printf("done\n");
	fflush(stdout);
	reboot(RB_POWER_OFF);
	return 1;
}
