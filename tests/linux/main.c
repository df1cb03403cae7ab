// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Runs the tests, each in a process of its own, and prints TAP. As the first process of a machine
 * it also mounts what the tests need, and ends the machine.
 */
#include "test.h"
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Seconds for one test. Far more than any test needs, for hosts that are busy. */
#define TIME_LIMIT 60

char own_path[256];
int last_code;
void *last_address;
static sigjmp_buf back;

void failed(const char *file, int line, const char *what)
{
	const char *name = strrchr(file, '/');

	printf("# %s:%d: %s (errno %d)\n", name ? name + 1 : file, line, what, errno);
	fflush(stdout);
	_exit(1);
}

void skip(const char *why)
{
	printf("# skipped: %s\n", why);
	fflush(stdout);
	_exit(SKIPPED);
}

static void jump_back(int signal, siginfo_t *info, void *context)
{
	(void)context;
	last_code = info->si_code;
	last_address = info->si_addr;
	siglongjmp(back, signal);
}

static int attempt(void (*access)(const volatile void *, unsigned char),
		   const volatile void *address,
		   unsigned char value)
{
	static const int signals[] = { SIGSEGV, SIGBUS, SIGILL };
	struct sigaction action = { .sa_sigaction = jump_back,
				    .sa_flags = SA_SIGINFO | SA_ONSTACK }, old[3];
	int i, signal;

	for (i = 0; i < 3; i++)
		sigaction(signals[i], &action, &old[i]);
	signal = sigsetjmp(back, 1);
	if (!signal)
		access(address, value);
	for (i = 0; i < 3; i++)
		sigaction(signals[i], &old[i], NULL);
	return signal;
}

static void read_byte(const volatile void *address, unsigned char value)
{
	(void)value;
	(void)*(const volatile unsigned char *)address;
}

static void write_byte(const volatile void *address, unsigned char value)
{
	*(volatile unsigned char *)(uintptr_t)address = value;
}

static void call(const volatile void *address, unsigned char value)
{
	(void)value;
	((void (*)(void))(uintptr_t)address)();
}

int try_read(const volatile void *address)
{
	return attempt(read_byte, address, 0);
}

int try_write(volatile void *address, unsigned char value)
{
	return attempt(write_byte, address, value);
}

int try_call(const void *address)
{
	return attempt(call, address, 0);
}

void *memory_at(void *hint, size_t size, int flags)
{
	void *m = mmap(hint, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1,
		       0);

	CHECK(m != MAP_FAILED);
	return m;
}

void *memory(size_t size)
{
	return memory_at(NULL, size, 0);
}

void pattern_write(void *start, size_t size, uint64_t owner)
{
	size_t i;

	for (i = 0; i < size; i += PAGE)
		*(volatile uint64_t *)((char *)start + i) = owner * 0x9e3779b97f4a7c15 ^ i;
}

void pattern_check(const void *start, size_t size, uint64_t owner)
{
	size_t i;

	for (i = 0; i < size; i += PAGE)
		CHECK(*(const volatile uint64_t *)((const char *)start +
						   i) == (owner * 0x9e3779b97f4a7c15 ^ i));
}

int child_status(pid_t child)
{
	int status;

	CHECK(child > 0);
	CHECK(waitpid(child, &status, 0) == child);
	return status;
}

void child_good(pid_t child)
{
	int status = child_status(child);

	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

long proc_number(const char *file, const char *name)
{
	char line[256];
	long value = -1;
	FILE *f = fopen(file, "r");

	if (!f)
		return -1;
	while (value < 0 && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, strlen(name)))
			value = strtol(line + strlen(name), NULL, 10);
	fclose(f);
	return value;
}

void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT, 0644);

	CHECK(fd >= 0);
	CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

void read_file(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY);
	ssize_t n;

	CHECK(fd >= 0);
	n = read(fd, text, size - 1);
	CHECK(n >= 0);
	text[n] = 0;
	close(fd);
}

/* For files that not every kernel has. */
static void set_if_there(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0)
		return;
	if (write(fd, text, strlen(text)) < 0)
		printf("# cannot write %s to %s\n", text, path);
	close(fd);
}

/* Uses a compressed block device as swap space, if the kernel has one. */
static void swap_on(void)
{
	static char page[PAGE] = { 0 };
	uint32_t *info = (uint32_t *)(page + 1024);
	int fd;

	set_if_there("/sys/block/zram0/disksize", "64M");
	fd = open("/dev/zram0", O_WRONLY);
	if (fd < 0)
		return;
	info[0] = 1;					/* version */
	info[1] = 64 * MIB / PAGE - 1;			/* last page */
	memcpy(page + PAGE - 10, "SWAPSPACE2", 10);
	if (write(fd, page, PAGE) != (ssize_t)PAGE || close(fd) || swapon("/dev/zram0", 0))
		printf("# no swap: errno %d\n", errno);
}

static void machine_begin(void)
{
	mkdir("/proc", 0755);
	mkdir("/sys", 0755);
	mkdir("/dev", 0755);
	mkdir("/tmp", 0755);
	mount("proc", "/proc", "proc", 0, NULL);
	mount("sysfs", "/sys", "sysfs", 0, NULL);
	mount("dev", "/dev", "devtmpfs", 0, NULL);
	mount("tmp", "/tmp", "tmpfs", 0, NULL);
	/* Do not log faults: the tests make many of them. */
	set_if_there("/proc/sys/debug/exception-trace", "0");
	swap_on();
}

static void machine_end(bool good)
{
	set_if_there("/sys/module/vmi/parameters/exit_status", good ? "0" : "1");
	sync();
	reboot(RB_POWER_OFF);
}

static int run(const struct test *test, int number)
{
	double start = seconds();
	int status;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child) {
		alarm(TIME_LIMIT);
		setpgid(0, 0);
		test->run();
		fflush(stdout);
		_exit(0);
	}
	status = child_status(child);
	/* The processes that the test left. */
	kill(-child, SIGKILL);
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
		printf("ok %d - %s # SKIP\n", number, test->name);
	else
		printf("%s %d - %s # %.0f ms, status %#x\n", status ? "not ok" : "ok", number,
		       test->name,
		       (seconds() - start) * 1e3, (unsigned int)status);
	return WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED ? 0 : status;
}

static const struct test *const groups[] = {
	memory_tests, sharing_tests, hole_tests, process_tests, trace_tests, signal_tests,
	feature_tests, bpf_tests,
	network_tests,
};

int main(int count, char **words)
{
	bool machine = getpid() == 1;
	int number = 0, bad = 0;
	const char *filter;
	size_t g;

	/* Executed by a test of exec: executes itself again, and reports success at the end. */
	if (count == 3 && !strcmp(words[1], "--exec")) {
		int left = atoi(words[2]);
		char text[16];

		if (!left)
			return 42;
		snprintf(text, sizeof(text), "%d", left - 1);
		execl(words[0], words[0], "--exec", text, NULL);
		return 1;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (machine) {
		machine_begin();
		strcpy(own_path, "/init");
	} else if (readlink("/proc/self/exe", own_path, sizeof(own_path) - 1) < 0) {
		return 1;
	}
	filter = machine ? getenv("FILTER") : words[1];
	printf("TAP version 14\n");
	for (g = 0; g < sizeof(groups) / sizeof(groups[0]); g++) {
		const struct test *t;

		for (t = groups[g]; t->name; t++) {
			if ((t->machine_only && !machine) || (filter && !strstr(t->name, filter)))
				continue;
			bad += run(t, ++number) != 0;
		}
	}
	printf("1..%d\n# %d passed, %d failed\n", number, number - bad, bad);
	if (machine)
		machine_end(!bad);
	return bad != 0;
}
