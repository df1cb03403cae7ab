// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * What copies of this program do for the tests in shared.c, and where their text differs from the
 * file.
 */
#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include "check.h"
#include "copies.h"

unsigned char *text_of(pid_t pid, const char *path)
{
	unsigned long start, offset, found = 0;
	char name[128], line[256];
	FILE *file;

	snprintf(line, sizeof(line), "/proc/%d/maps", pid);
	file = fopen(line, "r");
	while (file && fgets(line, sizeof(line), file))
		if (!found &&
		    sscanf(line, "%lx-%*x r-xp %lx %*s %*u %127s", &start, &offset, name) == 3 &&
		    !strcmp(name, path))
			/* The first part, if the text has several mappings. */
			found = start;
	if (file)
		fclose(file);
	return (unsigned char *)found;
}

struct image image_of(const char *path, pid_t pid)
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

/* Padding that is never executed, except by a thread that just reached a jump there. */
static int is_padding(const unsigned char *bytes)
{
	static const unsigned char nops[] = { 0x90, 0xcc, 0x66, 0x2e, 0x0f, 0x1f, 0x40, 0x44, 0x80,
					      0x84, 0x00 };
	int i;

	for (i = 0; i < 5; i++)
		if (!memchr(nops, bytes[i], sizeof(nops)))
			return 0;
	return 1;
}

/* The bytes of a text that differ from its file's, without jumps in padding. */
static size_t different(const unsigned char *there, const struct image *image)
{
	size_t i, n = 0;

	for (i = 0; i < image->length; i++) {
		const unsigned char *file = image->bytes + image->offset + i;

		if (there[i] == 0xe9 && i + 5 <= image->length && is_padding(file))
			i += 4;
		else
			n += there[i] != *file;
	}
	return n;
}

size_t differences(pid_t pid, const char *path)
{
	struct image image = image_of(path, pid);
	unsigned char *there = malloc(image.length);
	struct iovec local = { there, image.length };
	struct iovec remote = { image.text, image.length };
	size_t n;

	CHECK(image.text);
	if (process_vm_readv(pid, &local, 1, &remote, 1, 0) != (ssize_t)image.length)
		n = image.length;
	else
		n = different(there, &image);
	free(there);
	munmap(image.bytes, image.size);
	return n;
}

/* An act of a copy. */

static int as_crowd(const char *unused)
{
	pid_t parent = getppid();
	int i, wrong = 0;

	(void)unused;
	for (i = 0; i < SITE_CROWD; i++)
		wrong += ((site_fn *)(site_crowd + i * SITE_BYTES))(0, 0, 0, 0, 0, 0) != parent;
	return wrong != 0;
}

/* The sites that each child of as_shell() executes, once; after them that of the shell itself. */
#define FIRST 64
#define EACH 4
#define CHILDREN 20

/*
 * Its mapping is older than its text: it is the first process of its file. Its children, each of
 * which executes a few sites once, no longer trap once it has trapped often itself.
 */
static int as_shell(const char *unused)
{
	long before = 0, traps;
	int i, at, status;
	pid_t child;

	(void)unused;
	for (i = 0; i < 2 * CHILDREN; i++) {
		if (i == CHILDREN)
			before = counter("trapped");
		((site_fn *)(site_crowd + (FIRST + EACH) * SITE_BYTES))(0, 0, 0, 0, 0, 0);
		child = fork();
		if (!child) {
			for (at = FIRST; at < FIRST + EACH; at++)
				((site_fn *)(site_crowd + at * SITE_BYTES))(0, 0, 0, 0, 0, 0);
			_exit(0);
		}
		if (waitpid(child, &status, 0) != child || status)
			return 1;
	}
	traps = counter("trapped") - before;
	if (traps >= CHILDREN * EACH / 2)
		printf("# %ld traps of %d children\n", traps, CHILDREN);
	return traps >= CHILDREN * EACH / 2 ? 2 : 0;
}

/* Calls a site repeatedly. Returns whether it has trapped at most this often. */
static int calls(site_fn *site, int times, long limit)
{
	long before = counter("trapped"), traps;
	pid_t parent = getppid();
	int i;

	for (i = 0; i < times; i++)
		if (site(0, 0, 0, 0, 0, 0) != parent)
			return 1;
	traps = counter("trapped") - before;
	if (traps > limit)
		printf("# %ld traps of %d\n", traps, times);
	return traps > limit ? 2 : 0;
}

static int as_first(const char *unused)
{
	(void)unused;
	return calls(site_first, 256, 64);
}

/* A site that only the registers show is replaced for a process that traps there very often. */
/* On one CPU, because each counts by itself how often a process traps. */
static int as_unproven(const char *unused)
{
	cpu_set_t one;

	(void)unused;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		return 3;
	return calls(site_unproven, 4096, 1024 + 64);
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
		if (sscanf(line, "%lx-%lx %7s %*x %x:%x %lu %127s", &start, &end, permissions,
			   &major_number,
			   &minor_number, &inode, name) != 7)
			continue;
		if ((uintptr_t)as_maps < start || (uintptr_t)as_maps >= end)
			continue;
		found = !strcmp(permissions, "r-xp") && inode == status.st_ino &&
			!strcmp(name, path) &&
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

	if (!different(image.text, &image))
		return 2;
	if (mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC))
		return 3;
	page[0] = page[0];
	/*
	 * Without system calls: after a few traps, this process's own copies are replaced again.
	 * Jumps in padding stay. Instructions of cpuid have such jumps, if they were learnt, and
	 * that depends on how busy the host is.
	 */
	if (different(image.text, &image))
		return 4;
	return as_crowd("");
}

/* The end of the text is unmapped. The code that jumped there remains. */
static int as_cut(const char *path)
{
	struct image image = image_of(path, getpid());
	unsigned char *last = image.text + (image.length & ~4095UL);

	if (!memcmp(image.text, image.bytes + image.offset, image.length))
		return 2;
	if ((unsigned char *)(site_crowd + SITE_CROWD * SITE_BYTES) > last)
		return 3;
	if (mprotect(last, 4096, PROT_NONE))
		return 4;
	/* The C library's exit code is there. */
	_exit(as_crowd(""));
}

/* Maps a page of it separately. */
static int as_part(const char *path)
{
	struct image image = image_of(path, getpid());
	size_t at = (size_t)((unsigned char *)site_crowd - image.text + 4095) & ~4095UL;
	int fd = open(path, O_RDONLY);
	unsigned char *page = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd,
				   (off_t)((image.offset & ~4095UL) + at));

	if (page == MAP_FAILED || at + 4096 > image.length)
		return 2;
	return memcmp(page, image.bytes + (image.offset & ~4095UL) + at, 4096) ? 3 : 0;
}

/*
 * A hash of all that cpuid returns, except what depends on the processor that ran it. Nothing else
 * may change.
 */
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
				uint64_t words[4] = { leaf | 0xabcd00000000UL, ~0UL,
						      subleaf | 0x123400000000UL, ~0UL };

				__asm__ volatile("std; stc; pushf; pop %[before]; "
						 "mov %[a], %%rax; mov %[c], %%rcx; "
						 "movl $1, %k[some]; "
						 "cpuid; pushf; pop %[after]; cld"
						 : [before] "=&r"(before), [after] "=&r"(after),
						   [some] "=&r"(some), "=&a"(words[0]),
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
				if (leaf == 0xb || leaf == 0x1f || leaf == 0x80000026)
					words[3] = 0;
				/* AMD: the number of the processor, of its core and of its node. */
				if (leaf == 0x8000001e)
					words[0] = words[1] = words[2] = 0;
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

#define FORGED (site_crowd + 100 * SITE_BYTES)

/* The syscall instruction of the site, with a number that the site never loads. */
static int as_forge(const char *unused)
{
	long result;

	(void)unused;
	__asm__ volatile("call *%[at]"
			 : "=a"(result)
			 : "a"(SYS_getuid), [at] "r"(FORGED + 5)
			 : "rcx", "r11", "memory");
	return result != (long)getuid();
}

static int as_jumped(const char *unused)
{
	(void)unused;
	return !is_jump(FORGED);
}

static int as_shared(const char *path)
{
	return differences(getpid(), path) == 0;
}

static int as_visible(const char *unused)
{
	(void)unused;
	return ((site_fn *)site_hidden)(0, 0, 0, 0, 0, 0) != (long)0xc3050f0000006eb8UL;
}

/* Maps the file like a loader of programs. Returns 0 if it reads there what is in the file. */
static int as_reader(const char *path)
{
	struct image image = image_of(path, getpid());
	int fd = open(path, O_RDONLY), differs;
	void *mapped = mmap(NULL, image.size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);

	close(fd);
	if (mapped == MAP_FAILED)
		return 1;
	differs = memcmp(mapped, image.bytes, image.size);
	munmap(mapped, image.size);
	return differs ? READ_OTHER : 0;
}

static int as_writer(const char *path)
{
	const int prot = PROT_READ | PROT_WRITE | PROT_EXEC;
	void *code = mmap(NULL, 4096, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (code == MAP_FAILED)
		return 1;
	/* Also when the memory for code is unmapped. */
	return as_reader(path) || munmap(code, 4096) || as_reader(path);
}

static const struct {
	const char *name;
	int (*act)(const char *);
} acts[] = {
	{ "crowd", as_crowd },
	{ "shell", as_shell },
	{ "first", as_first },
	{ "unproven", as_unproven },
	{ "maps", as_maps },
	{ "loop", as_loop },
	{ "writable", as_writable },
	{ "cut", as_cut },
	{ "part", as_part },
	{ "hidden", as_hidden },
	{ "forge", as_forge },
	{ "jumped", as_jumped },
	{ "shared", as_shared },
	{ "visible", as_visible },
	{ "cpuid", as_cpuid },
	{ "sleeper", as_sleeper },
	{ "opener", as_opener },
	{ "second", as_second },
	{ "looper", as_looper },
	{ "spinner", as_spinner },
	{ "parent", as_parent },
	{ "asker", as_asker },
	{ "refuser", as_refuser },
	{ "reader", as_reader },
	{ "writer", as_writer },
};

int act_as(const char *what, const char *argument)
{
	size_t i;

	if (!strcmp(what, "nothing"))
		return site_getppid(0, 0, 0, 0, 0, 0) != getppid();
	if (!strcmp(what, "signalled"))
		return signalled();
	if (!strcmp(what, "marker"))
		return site_marker() & 0xff;
	for (i = 0; i < sizeof(acts) / sizeof(*acts); i++)
		if (!strcmp(what, acts[i].name))
			return acts[i].act(argument);
	return 125;
}
