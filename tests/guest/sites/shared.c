// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Sites that are replaced for everybody who maps a file, and cpuid: what many processes execute once. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include "check.h"

/* After so many all are counted. */
#define OFTEN 24

/* A place of this program's text. */
extern int site_marker(void);

/* A copy's file, and where its text is in it and in a process. */
struct image {
	unsigned char *bytes;
	size_t size, offset, length;
	unsigned char *text;
};

static unsigned char *text_of(pid_t pid, const char *path)
{
	unsigned long start, offset, found = 0;
	char name[128], line[256];
	FILE *file;

	snprintf(line, sizeof(line), "/proc/%d/maps", pid);
	file = fopen(line, "r");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "%lx-%*x r-xp %lx %*s %*u %127s", &start, &offset, name) == 3 &&
		    !strcmp(name, path))
			found = start;
	if (file)
		fclose(file);
	return (unsigned char *)found;
}

static struct image image_of(const char *path, pid_t pid)
{
	struct image image = { 0 };
	const Elf64_Ehdr *elf;
	const Elf64_Phdr *phdr;
	struct stat status;
	int i, fd = open(path, O_RDONLY);

	if (fd < 0 || fstat(fd, &status))
		return image;
	image.size = (size_t)status.st_size;
	image.bytes = mmap(NULL, image.size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	elf = (const void *)image.bytes;
	phdr = (const void *)(image.bytes + elf->e_phoff);
	for (i = 0; i < elf->e_phnum; i++) {
		if (phdr[i].p_type != PT_LOAD || !(phdr[i].p_flags & PF_X))
			continue;
		image.offset = phdr[i].p_offset;
		image.length = phdr[i].p_filesz;
	}
	image.text = text_of(pid, path);
	return image;
}

/* A copy of this program, which nobody has run. */
static const char *copy(const char *name)
{
	static char path[64];
	char buffer[65536];
	int from = open("/sites", O_RDONLY), to;
	ssize_t n;

	snprintf(path, sizeof(path), "/tmp/%s", name);
	unlink(path);
	to = open(path, O_WRONLY | O_CREAT | O_EXCL, 0755);
	while ((n = read(from, buffer, sizeof(buffer))) > 0)
		CHECK(write(to, buffer, (size_t)n) == n);
	CHECK(!n && !close(to));
	close(from);
	return path;
}

static pid_t start(const char *path, const char *what, const char *argument)
{
	pid_t child = fork();

	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(path, path, "as", what, argument, NULL);
		_exit(126);
	}
	return child;
}

static int end_of(pid_t child)
{
	int status = 0;

	CHECK(waitpid(child, &status, 0) == child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int once(const char *path, const char *what, const char *argument)
{
	return end_of(start(path, what, argument));
}

static long traps_once(const char *path, const char *what)
{
	long before = counter("trapped");

	CHECK(once(path, what, "") == 0);
	return counter("trapped") - before;
}

static void often(const char *path, const char *what)
{
	int i;

	for (i = 0; i < OFTEN; i++)
		CHECK(once(path, what, "") == 0);
}

static void once_each(void)
{
	const char *path = copy("once_each");
	long shared = counter("shared"), first = traps_once(path, "nothing"), later;

	often(path, "nothing");
	later = traps_once(path, "nothing");
	/* To execute it and to look is some in any case. */
	if (later > first - 8)
		printf("# %ld, then %ld\n", first, later);
	CHECK(later <= first - 8);
	CHECK(counter("shared") > shared + 3);
}

/* To itself and others it is the file. */
static void looks_like_the_file(void)
{
	const char *path = copy("looks");

	CHECK(once(path, "maps", path) == 0);
	often(path, "crowd");
	CHECK(once(path, "maps", path) == 0);
}

/* How many bytes of a process's text are not the file's. */
static size_t differences(pid_t pid, const char *path)
{
	struct image image = image_of(path, pid);
	unsigned char *there = malloc(image.length);
	struct iovec local = { there, image.length };
	struct iovec remote = { image.text, image.length };
	size_t i, n = 0;

	CHECK(image.text);
	if (process_vm_readv(pid, &local, 1, &remote, 1, 0) != (ssize_t)image.length)
		n = image.length;
	for (i = 0; n != image.length && i < image.length; i++)
		n += there[i] != image.bytes[image.offset + i];
	free(there);
	munmap(image.bytes, image.size);
	return n;
}

static pid_t looping(const char *path)
{
	int ready[2];
	char number[16], byte;
	pid_t child;

	CHECK(!pipe(ready));
	snprintf(number, sizeof(number), "%d", ready[1]);
	child = start(path, "loop", number);
	close(ready[1]);
	CHECK(read(ready[0], &byte, 1) == 1);
	close(ready[0]);
	return child;
}

/* Who attaches sees the file's text; the process goes on, wherever its threads were. */
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
		CHECK(!waitpid(child, &status, WNOHANG));
		kill(child, SIGKILL);
		CHECK(end_of(child) == 128 + SIGKILL);
	}
	/* Others keep what they had. */
	child = looping(path);
	CHECK(differences(child, path) > 0);
	kill(child, SIGKILL);
	end_of(child);
}

/* What is written to the file is what runs. */
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
	/* Open for writing it is not executed. */
	close(fd);
	CHECK(once(path, "marker", "") == 0x2b);
	often(path, "crowd");
	CHECK(once(path, "marker", "") == 0x2b);
	munmap(image.bytes, image.size);
}

/* A program may execute what is no instruction to others: that stays what it is. */
static void not_on_a_programs_word(void)
{
	const char *path = copy("hidden");
	long refused = counter("refused_shape");

	often(path, "hidden");
	CHECK(counter("refused_shape") > refused);
	CHECK(once(path, "visible", "") == 0);
}

static void writable(void)
{
	const char *path = copy("writable");

	often(path, "crowd");
	CHECK(once(path, "writable", path) == 0);
}

static void cpuid_is_the_same(void)
{
	const char *path = copy("cpuid");
	int first = once(path, "cpuid", ""), i;
	long shared = counter("shared"), before;

	CHECK(first > 0 && first < 126);
	for (i = 0; i < OFTEN; i++)
		CHECK(once(path, "cpuid", "") == first);
	/* Where it cannot be made to fault, it stays what it is. */
	before = counter("cpuid_trapped");
	if (!before)
		return;
	CHECK(counter("shared") > shared);
	/* Learnt is learnt. */
	CHECK(once(path, "cpuid", "") == first);
	CHECK(counter("cpuid_trapped") == before);
}

/* Sites come while processes execute them, and debuggers come and go. */
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
		if (round % 5 == 4) {
			pid_t victim = loops[round % 3];

			CHECK(!ptrace(PTRACE_ATTACH, victim, 0, 0));
			CHECK(waitpid(victim, &status, 0) == victim && WIFSTOPPED(status));
			CHECK(!ptrace(PTRACE_DETACH, victim, 0, 0));
		}
		for (i = 0; i < 3; i++)
			CHECK(end_of(other[i]) == 0);
	}
	for (i = 0; i < 3; i++) {
		CHECK(!waitpid(loops[i], &status, WNOHANG));
		kill(loops[i], SIGKILL);
		CHECK(end_of(loops[i]) == 128 + SIGKILL);
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

/* Breakpoints by file are hit, also by processes that run already; and from then on nothing is shared. */
static void breakpoint_by_file(void)
{
	const char *path = copy("uprobe"), *events = "/sys/kernel/tracing/uprobe_events";
	struct image image = image_of(path, getpid());
	size_t offset = image.offset + (size_t)((unsigned char *)site_getppid - text_of(getpid(), "/sites"));
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
	CHECK(once(path, "nothing", "") == 0);
	file = fopen("/sys/kernel/tracing/uprobe_profile", "r");
	while (file && fscanf(file, "%63s %63s %ld", word, word, &hits) == 3)
		;
	if (file)
		fclose(file);
	CHECK(hits > 0);
	put("/sys/kernel/tracing/events/sites/one/enable", "0\n");
	put(events, "-:sites/one\n");
	kill(child, SIGKILL);
	CHECK(end_of(child) == 128 + SIGKILL);
	munmap(image.bytes, image.size);
}

/* What a copy does. */

static int as_crowd(const char *unused)
{
	pid_t parent = getppid();
	int i, wrong = 0;

	(void)unused;
	for (i = 0; i < SITE_CROWD; i++)
		wrong += ((site_fn *)(site_crowd + i * SITE_BYTES))(0, 0, 0, 0, 0, 0) != parent;
	return wrong != 0;
}

static int as_maps(const char *path)
{
	FILE *file = fopen("/proc/self/maps", "r");
	unsigned long start, end, inode;
	unsigned int major_number, minor_number;
	char line[256], permissions[8], name[128];
	struct stat status;
	int found = 0;

	if (!file || stat(path, &status))
		return 1;
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx-%lx %7s %*x %x:%x %lu %127s", &start, &end, permissions, &major_number,
			   &minor_number, &inode, name) != 7)
			continue;
		if ((uintptr_t)as_maps < start || (uintptr_t)as_maps >= end)
			continue;
		found = !strcmp(permissions, "r-xp") && inode == status.st_ino && !strcmp(name, path) &&
			makedev(major_number, minor_number) == status.st_dev;
		if (!found)
			printf("# %s", line);
	}
	fclose(file);
	return !found;
}

static void *loop(void *parent)
{
	for (;;)
		if (as_crowd("") || site_getppid(0, 0, 0, 0, 0, 0) != (long)parent)
			_exit(1);
}

static int as_loop(const char *number)
{
	pthread_t threads[2];
	int i;

	for (i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, loop, (void *)(long)getppid()))
			return 2;
	usleep(1000);
	if (write(atoi(number), "", 1) != 1)
		return 3;
	loop((void *)(long)getppid());
	return 0;
}

static int as_writable(const char *path)
{
	struct image image = image_of(path, getpid());
	unsigned char *page = (unsigned char *)((uintptr_t)site_crowd & ~4095UL);

	if (!memcmp(image.text, image.bytes + image.offset, image.length))
		return 2;
	if (mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC))
		return 3;
	page[0] = page[0];
	return memcmp(image.text, image.bytes + image.offset, image.length) ? 4 : as_crowd("");
}

/* A number for all that cpuid says but where it was executed; and nothing else changes. */
static int as_cpuid(const char *unused)
{
	uint32_t leaf, subleaf, limit, bases[] = { 0, 0x80000000 };
	uint64_t hash = 14695981039346656037UL;
	size_t i, w;

	(void)unused;
	for (i = 0; i < 2; i++) {
		limit = 0;
		for (leaf = bases[i]; leaf <= bases[i] + limit; leaf++)
			for (subleaf = 0; subleaf < 8; subleaf++) {
				uint64_t before, after, some;
				uint64_t words[4] = { leaf | 0xabcd00000000UL, ~0UL, subleaf | 0x123400000000UL, ~0UL };

				__asm__ volatile("std; stc; pushf; pop %[before]; mov %[a], %%rax; mov %[c], %%rcx; movl $1, %k[some]; "
						 "cpuid; pushf; pop %[after]; cld"
						 : [before] "=&r"(before), [after] "=&r"(after), [some] "=&r"(some), "=&a"(words[0]),
						   "+&b"(words[1]), "=&c"(words[2]), "+&d"(words[3])
						 : [a] "r"(words[0]), [c] "r"(words[2])
						 : "cc");
				if (before != after)
					return 0;
				if (leaf == 0 || leaf == 0x80000000)
					limit = (uint32_t)words[0] - bases[i];
				if (limit > 0x40)
					return 0;
				if (leaf == 1)
					words[1] &= 0xffffff;
				if (leaf == 0xb || leaf == 0x1f)
					words[3] = 0;
				for (w = 0; w < 4; w++) {
					if (words[w] >> 32)
						return 0;
					hash = (hash ^ words[w]) * 1099511628211UL;
				}
			}
	}
	return (int)(hash % 124) + 1;
}

extern char site_hidden[];

static int as_hidden(const char *unused)
{
	(void)unused;
	return ((site_fn *)(site_hidden + 2))(0, 0, 0, 0, 0, 0) != getppid();
}

static int as_visible(const char *unused)
{
	(void)unused;
	return ((site_fn *)site_hidden)(0, 0, 0, 0, 0, 0) != (long)0xc3050f0000006eb8UL;
}

static const struct {
	const char *name;
	int (*act)(const char *);
} acts[] = {
	{ "crowd", as_crowd },
	{ "maps", as_maps },
	{ "loop", as_loop },
	{ "writable", as_writable },
	{ "hidden", as_hidden },
	{ "visible", as_visible },
	{ "cpuid", as_cpuid },
};

int act_as(const char *what, const char *argument)
{
	size_t i;

	if (!strcmp(what, "nothing"))
		return site_getppid(0, 0, 0, 0, 0, 0) != getppid();
	if (!strcmp(what, "marker"))
		return site_marker() & 0xff;
	for (i = 0; i < sizeof(acts) / sizeof(*acts); i++)
		if (!strcmp(what, acts[i].name))
			return acts[i].act(argument);
	return 125;
}

const struct test shared_tests[] = {
	{ "once_each", once_each },
	{ "looks_like_the_file", looks_like_the_file },
	{ "debugger", debugger },
	{ "written", written },
	{ "not_on_a_programs_word", not_on_a_programs_word },
	{ "writable_text", writable },
	{ "cpuid_is_the_same", cpuid_is_the_same },
	{ "under_fire", under_fire },
	/* Last: it ends the sharing. */
	{ "breakpoint_by_file", breakpoint_by_file },
	{ NULL, NULL },
};
