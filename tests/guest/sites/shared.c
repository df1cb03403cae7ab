// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Sites that are rewritten for all processes that map a file, and cpuid: what many processes
 * execute once.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "check.h"
#include "children.h"
#include "copies.h"

static int copy_file(const char *from, const char *to)
{
	char buffer[65536];
	int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_EXCL, 0755);
	ssize_t n;

	while ((n = read(in, buffer, sizeof(buffer))) > 0)
		if (write(out, buffer, (size_t)n) != n)
			break;
	close(in);
	return n || close(out);
}

const char *copy(const char *name)
{
	static char path[64];

	snprintf(path, sizeof(path), "/tmp/%s", name);
	unlink(path);
	CHECK(!copy_file("/sites", path));
	return path;
}

static long traps_once(const char *path, const char *what)
{
	long before = counter("trapped");

	does(path, what, "");
	return counter("trapped") - before;
}

static void once_each(void)
{
	const char *path = copy("once_each");
	long shared = counter("shared"), first = traps_once(path, "nothing"), later;

	often(path, "nothing");
	later = traps_once(path, "nothing");
	/* Executing it and checking it takes some calls in any case. */
	if (later > first - 8)
		printf("# %ld, then %ld\n", first, later);
	CHECK(later <= first - 8);
	CHECK(counter("shared") > shared + 3);
}

static void older_than_its_text(void)
{
	long joined = counter("joined");

	does(copy("shell"), "shell", "");
	CHECK(counter("joined") > joined);
}

/* To itself and to others its text equals the file. */
static void looks_like_the_file(void)
{
	const char *path = copy("looks");

	does(path, "maps", path);
	often(path, "crowd");
	does(path, "maps", path);
}

/*
 * A debugger that attaches sees the file's text. The process continues, wherever its threads were.
 */
static void debugger(void)
{
	const char *path = copy("debugger");
	int i, status;
	pid_t child;

	often(path, "crowd");
	for (i = 0; i < 20; i++) {
		child = looping(path);
		if (!i)
			CHECK(differences(child, path) > 0);
		usleep((unsigned int)(i * 300));
		CHECK(!ptrace(PTRACE_ATTACH, child, 0, 0));
		CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
		CHECK(differences(child, path) == 0 || !i);
		CHECK(!ptrace(PTRACE_DETACH, child, 0, 0));
		usleep(2000);
		runs(child, "detached");
		end(child);
	}
	/* Other processes keep their text. */
	child = looping(path);
	CHECK(differences(child, path) > 0);
	end(child);
}

/* A debugger is killed while it attaches. The process continues, wherever its threads were. */
static void killed_debugger(void)
{
	const char *path = copy("killed");
	pid_t child, tracer;
	int i;

	often(path, "crowd");
	for (i = 0; i < 40; i++) {
		child = looping(path);
		tracer = fork();
		if (!tracer)
			_exit(ptrace(PTRACE_ATTACH, child, 0, 0) != 0);
		usleep((unsigned int)(i * 10));
		kill(tracer, SIGKILL);
		CHECK(waitpid(tracer, NULL, 0) == tracer);
		kill(child, SIGCONT);
		usleep(2000);
		runs(child, "without its debugger");
		end(child);
	}
}

/*
 * A program that writes code reads the file's text: it may translate what it reads, as valgrind
 * does.
 */
static void read_by_one_that_writes_code(void)
{
	const char *path = copy("read");

	often(path, "crowd");
	/* Another program sees the replaced sites. */
	CHECK(once(path, "reader", path) == READ_OTHER);
	does(path, "writer", path);
}

/* Without the page that holds the call stubs. */
static void in_parts(void)
{
	const char *path = copy("in_parts");

	often(path, "crowd");
	does(path, "cut", path);
	does(path, "part", path);
}

/* After a write to the file, the new code runs. */
static void written(void)
{
	static const unsigned char old[] = { 0xb8, 0x2a, 0x17, 0x5a, 0x4d, 0xc3 };
	const char *path = copy("written");
	struct image image = image_of(path, getpid());
	size_t at;
	int fd;

	often(path, "crowd");
	CHECK(once(path, "marker", "") == 0x2a);
	for (at = 0; at < image.size - sizeof(old); at++)
		if (!memcmp(image.bytes + at, old, sizeof(old)))
			break;
	CHECK(at < image.size - sizeof(old));
	fd = open(path, O_WRONLY);
	CHECK(fd >= 0 && pwrite(fd, "\x2b", 1, (off_t)at + 1) == 1);
	/* A file that is open for writing cannot be executed. */
	close(fd);
	CHECK(once(path, "marker", "") == 0x2b);
	often(path, "crowd");
	CHECK(once(path, "marker", "") == 0x2b);
	munmap(image.bytes, image.size);
}

/* A program's own changes to shared instructions affect only that program. */
static void not_by_forged_registers(void)
{
	const char *path = copy("forged");
	int i;

	for (i = 0; i < OFTEN; i++)
		does(path, "forge", "");
	/* The kernel only estimates how often, if the sites are as many as here. */
	for (i = 0; i < 8; i++) {
		often(path, "crowd");
		if (!once(path, "jumped", ""))
			return;
	}
	does(path, "jumped", "");
}

/* Mappings and files are released: their file system can be unmounted. */
static void unmounted(void)
{
	static const char *const folders[] = { "/tmp/low", "/tmp/lower", "/tmp/over" };
	char path[64];
	size_t i;

	for (i = 0; i < sizeof(folders) / sizeof(*folders); i++)
		CHECK(!mkdir(folders[i], 0755));
	CHECK(!mount("low", "/tmp/low", "tmpfs", 0, NULL));
	CHECK(!copy_file(copy("layered"), "/tmp/low/layered"));
	CHECK(!mount("over", "/tmp/over", "overlay", MS_RDONLY, "lowerdir=/tmp/low:/tmp/lower"));
	strcpy(path, "/tmp/over/layered");
	often(path, "crowd");
	does(path, "shared", path);
	CHECK(!umount("/tmp/over"));
	CHECK(!umount("/tmp/low"));
}

/* Whether the kernel shows that a site of this file was refused for this reason. */
static int refused(const char *name, const char *why)
{
	FILE *file = fopen("/sys/kernel/debug/vmi/refused_sites", "r");
	char line[256], where[64], program[64], reason[64];
	unsigned long offset;
	int number, times, found = 0;

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "%63s %lx %d %63s %d %63s", where, &offset, &number, program,
			   &times, reason) == 6 &&
		    !strcmp(where, name) && !strcmp(program, name) && !strcmp(reason, why))
			found = number == SYS_getppid && times > 0;
	if (file)
		fclose(file);
	return found;
}

/*
 * A program may execute bytes that are not an instruction to other programs. Those stay unchanged.
 */
static void not_on_a_programs_word(void)
{
	long before = counter("refused_proof");
	const char *path;
	int tries = 0;

	/* The kernel's count of traps in a file is an estimate: others may take the place. */
	do {
		path = copy("hidden");
		often(path, "hidden");
	} while (counter("refused_proof") == before && ++tries < 4);
	CHECK(counter("refused_proof") > before);
	CHECK(refused("hidden", "refused_proof"));
	does(path, "visible", "");
}

static void near_a_page_s_beginning(void)
{
	const char *path = copy("first");

	often(path, "crowd");
	does(path, "shared", path);
	does(path, "first", "");
}

/* A process that traps very often at a site that its text cannot have gets it for itself. */
static void not_proven(void)
{
	const char *path = copy("unproven");
	long claimed;

	often(path, "crowd");
	does(path, "shared", path);
	claimed = counter("claimed");
	does(path, "unproven", "");
	CHECK(counter("claimed") > claimed);
	does(path, "crowd", "");
}

static void signals_find_own_code(void)
{
	const char *path = copy("signalled");

	often(path, "crowd");
	does(path, "shared", path);
	does(path, "signalled", "");
}

static void writable(void)
{
	const char *path = copy("writable");

	often(path, "crowd");
	does(path, "writable", path);
}

static void cpuid_is_the_same(void)
{
	const char *path = copy("cpuid");
	int first = once(path, "cpuid", ""), i;
	long shared = counter("shared"), before;

	CHECK(first > 0 && first < 126);
	for (i = 0; i < OFTEN; i++)
		CHECK(once(path, "cpuid", "") == first);
	/* If the host cannot make it fault, it stays unchanged. */
	before = counter("cpuid_trapped");
	if (!before)
		return;
	CHECK(counter("shared") > shared);
	/* Learnt sites stay learnt. Of estimated ones, some may have to be learnt twice. */
	for (i = 0; i < 4 * OFTEN; i++) {
		before = counter("cpuid_trapped");
		CHECK(once(path, "cpuid", "") == first);
		if (counter("cpuid_trapped") == before)
			return;
	}
	CHECK(!"it traps for ever");
}

/* New sites appear while processes execute them, and debuggers attach and detach. */
static void under_fire(void)
{
	const char *path = copy("fire");
	pid_t loops[3], other[3];
	int round, i, status;

	for (i = 0; i < 3; i++)
		loops[i] = looping(path);
	for (round = 0; round < 30; round++) {
		for (i = 0; i < 3; i++)
			other[i] = start(path, "crowd", "");
		/* Another text takes its place. */
		CHECK(!chmod(path, round & 1 ? 0755 : 0700));
		if (round % 5 == 4) {
			pid_t victim = loops[round % 3];

			CHECK(!ptrace(PTRACE_ATTACH, victim, 0, 0));
			CHECK(waitpid(victim, &status, 0) == victim && WIFSTOPPED(status));
			CHECK(!ptrace(PTRACE_DETACH, victim, 0, 0));
		}
		for (i = 0; i < 3; i++) {
			int code = end_of(other[i]);

			if (code)
				printf("# round %d: a process has ended with %d\n", round, code);
			CHECK(code == 0);
		}
	}
	for (i = 0; i < 3; i++) {
		runs(loops[i], "after the rounds");
		end(loops[i]);
	}
}

static int put(const char *path, const char *format, ...)
{
	va_list list;
	int fd = open(path, O_WRONLY | O_APPEND), result;

	va_start(list, format);
	result = fd < 0 ? -1 : vdprintf(fd, format, list);
	va_end(list);
	close(fd);
	return result;
}

/*
 * Breakpoints by file are hit, also by processes that run already. From then on nothing is shared.
 */
static void breakpoint_by_file(void)
{
	const char *path = copy("uprobe"), *events = "/sys/kernel/tracing/uprobe_events";
	struct image image = image_of(path, getpid());
	size_t offset = image.offset +
		(size_t)((unsigned char *)site_getppid - text_of(getpid(), "/sites"));
	char word[64];
	long hits = -1;
	pid_t child;
	FILE *file;

	mkdir("/sys/kernel/tracing", 0755);
	mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL);
	often(path, "crowd");
	child = looping(path);
	CHECK(differences(child, path) > 0);
	CHECK(put(events, "p:sites/one %s:%#zx\n", path, offset) > 0);
	CHECK(put("/sys/kernel/tracing/events/sites/one/enable", "1\n") > 0);
	usleep(100000);
	runs(child, "with a breakpoint");
	does(path, "nothing", "");
	file = fopen("/sys/kernel/tracing/uprobe_profile", "r");
	while (file && fscanf(file, "%63s %63s %ld", word, word, &hits) == 3)
		;
	if (file)
		fclose(file);
	CHECK(hits > 0);
	put("/sys/kernel/tracing/events/sites/one/enable", "0\n");
	runs(child, "without it");
	put(events, "-:sites/one\n");
	end(child);
	munmap(image.bytes, image.size);
}

const struct test shared_tests[] = {
	{ "once_each", once_each },
	{ "older_than_its_text", older_than_its_text },
	{ "looks_like_the_file", looks_like_the_file },
	{ "debugger", debugger },
	{ "killed_debugger", killed_debugger },
	{ "read_by_one_that_writes_code", read_by_one_that_writes_code },
	{ "in_parts", in_parts },
	{ "written", written },
	{ "not_on_a_programs_word", not_on_a_programs_word },
	{ "near_a_page_s_beginning", near_a_page_s_beginning },
	{ "not_proven", not_proven },
	{ "not_by_forged_registers", not_by_forged_registers },
	{ "unmounted", unmounted },
	{ "signals_find_own_code_together", signals_find_own_code },
	{ "writable_text", writable },
	{ "cpuid_is_the_same", cpuid_is_the_same },
	{ "under_fire", under_fire },
	{ NULL, NULL },
};

/* This ends the sharing. */
const struct test last_tests[] = {
	{ "breakpoint_by_file", breakpoint_by_file },
	{ NULL, NULL },
};
