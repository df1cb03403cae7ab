// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The measuring program of `paravane bench micro`, the same file on the host and as a guest's
 * /init.
 *
 *   micro ROW...      prints "micro ROW NS" for each: nanoseconds for one operation
 *   micro true        does nothing: fork_exec executes it
 *
 * As /init it takes the rows from the variable micro, separated by commas, and powers the machine
 * off with its exit status as the machine's. Its directory contains itself as `micro`, a shell as
 * `sh`, and its own main file for the row compile.
 */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "micro.h"

static int zero, null;

static void getppid_batch(unsigned long operations)
{
	while (operations--)
		getppid();
}

static double null_call(void)
{
	return timed(getppid_batch);
}

static void write_batch(unsigned long operations)
{
	while (operations--)
		if (write(null, "", 1) != 1)
			must(-1, "write");
}

static double write_byte(void)
{
	null = (int)must(open("/dev/null", O_WRONLY), "/dev/null");
	return timed(write_batch);
}

static void read_batch(unsigned long operations)
{
	char byte;

	while (operations--)
		if (read(zero, &byte, 1) != 1)
			must(-1, "read");
}

static double read_byte(void)
{
	zero = (int)must(open("/dev/zero", O_RDONLY), "/dev/zero");
	return timed(read_batch);
}

static void stat_batch(unsigned long operations)
{
	struct stat status;

	while (operations--)
		must(stat("/dev/null", &status), "stat");
}

static double stat_file(void)
{
	return timed(stat_batch);
}

static void clock_batch(unsigned long operations)
{
	struct timespec t;

	while (operations--)
		must(clock_gettime(CLOCK_MONOTONIC, &t), "clock_gettime");
}

/* By the vDSO: the C library calls it in static programs, too, if the kernel has one. */
static double clock_read(void)
{
	errno = ENOENT;
	must(getauxval(AT_SYSINFO_EHDR) ? 0 : -1, "vDSO");
	return timed(clock_batch);
}

static void open_batch(unsigned long operations)
{
	while (operations--)
		close((int)must(open("/dev/null", O_RDONLY), "/dev/null"));
}

static double open_close(void)
{
	return timed(open_batch);
}

static void handler(int signal)
{
	(void)signal;
}

static void install_batch(unsigned long operations)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_handler = handler;
	while (operations--)
		must(sigaction(SIGUSR1, &action, NULL), "sigaction");
}

static double signal_install(void)
{
	return timed(install_batch);
}

static void signal_batch(unsigned long operations)
{
	pid_t self = getpid();

	while (operations--)
		kill(self, SIGUSR1);
}

/* A signal to itself, handled and returned from. */
static double signal_handler(void)
{
	must(signal(SIGUSR1, handler) == SIG_ERR ? -1 : 0, "signal");
	return timed(signal_batch);
}

static double until_here;

/*
 * Instructions from the machine's start to this program. Only as a guest's first process, with
 * COUNTER.
 */
static double boot(void)
{
	return until_here;
}

static const struct {
	const char *name;
	double (*measure)(void);
} rows[] = {
	{ "boot", boot },
	{ "getppid", null_call },
	{ "write", write_byte },
	{ "read", read_byte },
	{ "stat", stat_file },
	{ "clock_gettime", clock_read },
	{ "open_close", open_close },
	{ "select_tcp", select_tcp },
	{ "signal_install", signal_install },
	{ "signal_handler", signal_handler },
	{ "divide_by_zero", divide_by_zero },
	{ "protection_fault", protection_fault },
	{ "file_fault", file_fault },
	{ "anonymous_fault", anonymous_fault },
	{ "cow_fault", cow_fault },
	{ "mmap_munmap", mmap_munmap },
	{ "pipe_switch", pipe_switch },
	{ "ring_switch", ring_switch },
	{ "fork_exit", fork_exit },
	{ "fork_exec", fork_exec },
	{ "shell", shell },
	{ "compile", compile },
	{ "hackbench", hackbench },
	{ "tcp_round_trip", tcp_round_trip },
};

static int measure(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		if (strcmp(rows[i].name, name))
			continue;
		printf("micro %s %.3f\n", name, rows[i].measure());
		return fflush(stdout) ? 1 : 0;
	}
	fprintf(stderr, "micro: there is no row %s\n", name);
	return 2;
}

static void loopback_up(void)
{
	struct ifreq request;
	int fd = (int)must(socket(AF_INET, SOCK_DGRAM, 0), "socket");

	memset(&request, 0, sizeof(request));
	strcpy(request.ifr_name, "lo");
	request.ifr_flags = IFF_UP;
	must(ioctl(fd, SIOCSIFFLAGS, &request), "lo");
	close(fd);
}

/* Halted time contains no instructions. Precise to a hundredth of a second, like /proc/uptime. */
static double since_start(void)
{
	double counted = (double)ticks(), uptime, idle;
	FILE *file;

	must(mkdir("/proc", 0755) && errno != EEXIST ? -1 : 0, "/proc");
	must(mount("proc", "/proc", "proc", 0, NULL), "/proc");
	file = fopen("/proc/uptime", "r");
	if (!file || fscanf(file, "%lf %lf", &uptime, &idle) != 2)
		must(-1, "/proc/uptime");
	fclose(file);
	return counted - idle * 1e9;
}

/* A guest's first process: an error in a row must not end the machine with a panic. */
static void init(void)
{
	char *list = getenv("micro"), *name;
	int status = 0, fd;
	pid_t child;
	FILE *file;

	must(mount("dev", "/dev", "devtmpfs", 0, NULL), "/dev");
	must(mount("sys", "/sys", "sysfs", 0, NULL), "/sys");
	fd = open("/dev/console", O_RDWR);
	if (fd >= 0) {
		dup2(fd, 0);
		dup2(fd, 1);
		dup2(fd, 2);
	}
	if (getenv(COUNTER))
		until_here = since_start();
	loopback_up();
	for (name = strtok(list ? list : "", ","); name && !status; name = strtok(NULL, ",")) {
		child = (pid_t)must(fork(), "fork");
		if (!child)
			exit(measure(name));
		must(waitpid(child, &status, 0), "waitpid");
		status = WIFEXITED(status) ? WEXITSTATUS(status) : 255;
	}
	file = fopen("/sys/module/vmi/parameters/exit_status", "w");
	if (file) {
		fprintf(file, "%d\n", status);
		fclose(file);
	}
	reboot(RB_POWER_OFF);
}

int main(int argc, char **argv)
{
	int i, result = 0;

	if (argc > 1 && !strcmp(argv[1], "true"))
		return 0;
	if (getpid() == 1 && getenv("micro"))
		init();
	for (i = 1; i < argc && !result; i++)
		result = measure(argv[i]);
	return result;
}
