// SPDX-License-Identifier: Apache-2.0 OR MIT
/* What a program can do to its text. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include "check.h"

#define PAGE 4096
/* The offset of the site in its page. */
#define OFFSET 64

/* A file with one site of this number. */
static int code_file(const char *path, unsigned char number)
{
	const unsigned char code[] = { 0xb8, number, 0, 0, 0, 0x0f, 0x05, 0xc3 };
	static char page[PAGE];
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0755);

	memset(page, 0xcc, sizeof(page));
	memcpy(page + OFFSET, code, sizeof(code));
	CHECK(write(fd, page, sizeof(page)) == sizeof(page));
	close(fd);
	return open(path, O_RDONLY);
}

static site_fn *map_code(int fd, void *at)
{
	void *map = mmap(at, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | (at ? MAP_FIXED : 0), fd,
			 0);

	CHECK(map != MAP_FAILED);
	return (site_fn *)((char *)map + OFFSET);
}

static void *page_of(site_fn *site)
{
	return (void *)((uintptr_t)site & -PAGE);
}

static void original_on_disk(void)
{
	unsigned char byte = 0;
	int fd;

	fd = code_file("/tmp/original", SYS_getppid);
	heat(map_code(fd, NULL), 0);
	CHECK(pread(fd, &byte, 1, OFFSET) == 1 && byte == 0xb8);
	/* Another mapping of the same page maps the rewritten page. */
	CHECK(!is_jump(map_code(fd, NULL)));
}

/* A library is unmapped, and another one is mapped at the same address. */
static void address_reused(void)
{
	int first = code_file("/tmp/first", SYS_getppid),
		second = code_file("/tmp/second", SYS_getpid), i;
	site_fn *site = map_code(first, NULL);

	for (i = 0; i < 10; i++) {
		heat(site, 0);
		CHECK(site(0, 0, 0, 0, 0, 0) == getppid());
		munmap(page_of(site), PAGE);
		map_code(i & 1 ? first : second, page_of(site));
		CHECK(!is_jump(site));
		heat(site, 0);
		CHECK(site(0, 0, 0, 0, 0, 0) == (i & 1 ? getppid() : getpid()));
		munmap(page_of(site), PAGE);
		map_code(first, page_of(site));
	}
}

static void dropped(void)
{
	site_fn *site = map_code(code_file("/tmp/dropped", SYS_getppid), NULL);
	int i;

	heat(site, 0);
	CHECK(is_jump(site));
	CHECK(!madvise(page_of(site), PAGE, MADV_DONTNEED));
	CHECK(!is_jump(site));
	for (i = 0; i < 3000; i++)
		CHECK(site(0, 0, 0, 0, 0, 0) == getppid());
	CHECK(is_jump(site));
	CHECK(counter("claimed_again") > 0);
}

static void moved(void)
{
	int fd = code_file("/tmp/moved", SYS_getppid);
	site_fn *site = map_code(fd, NULL), *there;
	char *map;

	heat(site, 0);
	CHECK(is_jump(site));
	map = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(mremap(page_of(site), PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, map) == map);
	there = (site_fn *)(map + OFFSET);
	CHECK(!is_jump(there));
	heat(there, 0);
	CHECK(there(0, 0, 0, 0, 0, 0) == getppid());
}

/* A program that modifies its own text finds its own bytes. */
static void made_writable(void)
{
	volatile unsigned char *bytes = (volatile unsigned char *)site_writable;

	heat(site_writable, 0);
	CHECK(is_jump(site_writable));
	CHECK(!mprotect(site_page_start, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC));
	CHECK(bytes[0] == 0xb8 && bytes[1] == SYS_getppid);
	bytes[1] = SYS_getpid;
	CHECK(site_writable(0, 0, 0, 0, 0, 0) == getpid());
	CHECK(!mprotect(site_page_start, PAGE, PROT_READ | PROT_EXEC));
	heat(site_writable, 0);
	CHECK(site_writable(0, 0, 0, 0, 0, 0) == getpid());
	CHECK(!is_jump(site_writable));
}

static void shared_refused(void)
{
	int fd = code_file("/tmp/shared", SYS_getppid);
	char *map = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
	site_fn *site = (site_fn *)(map + OFFSET);

	heat(site, 0);
	CHECK(!is_jump(site));
	CHECK(site(0, 0, 0, 0, 0, 0) == getppid());
	map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE, fd, 0);
	site = (site_fn *)(map + OFFSET);
	heat(site, 0);
	CHECK(!is_jump(site));
	*(volatile char *)map = 1;
	CHECK(!mprotect(map, PAGE, PROT_READ | PROT_EXEC));
	heat(site, 0);
	CHECK(!is_jump(site));
}

/* A site in the last bytes of a page. */
static void across_pages(void)
{
	const unsigned char code[] = { 0xb8, SYS_getppid, 0, 0, 0, 0x0f, 0x05, 0xc3 };
	int fd = open("/tmp/across", O_RDWR | O_CREAT, 0755), i;
	unsigned char *map;

	CHECK(!ftruncate(fd, 2 * PAGE));
	for (i = 1; i < 8; i++) {
		CHECK(pwrite(fd, code, sizeof(code), PAGE - i) == sizeof(code));
		map = mmap(NULL, 2 * PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
		heat((site_fn *)(map + PAGE - i), 0);
		CHECK(((site_fn *)(map + PAGE - i))(0, 0, 0, 0, 0, 0) == getppid());
		CHECK(is_jump(map + PAGE - i) == (i == 7));
		munmap(map, 2 * PAGE);
	}
}

static void many_areas(void)
{
	int fd = code_file("/tmp/many", SYS_getppid), i;
	/* Far from each other. */
	const uintptr_t at[] = { 0x10000000, 0x400000000, 0x10000000000, 0x20000000000,
				 0x3f0000000000 };

	for (i = 0; i < 5; i++) {
		site_fn *site = map_code(fd, (void *)at[i]);

		heat(site, 0);
		CHECK(is_jump(site));
		CHECK(site(0, 0, 0, 0, 0, 0) == getppid());
	}
}

static void off(void)
{
	pid_t child;
	int status;

	heat(site_getppid, 0);
	CHECK(is_jump(site_getppid));
	CHECK(!syscall(SYS_arch_prctl, 0x4f01, 0));
	CHECK(!is_jump(site_getppid));
	heat(site_off, 0);
	CHECK(!is_jump(site_off));
	child = fork();
	if (!child) {
		heat(site_off, 0);
		_exit(is_jump(site_off));
	}
	waitpid(child, &status, 0);
	CHECK(!status);
	CHECK(syscall(SYS_arch_prctl, 0x4f01, 2) == -1 && errno == EINVAL);
}

static void no_write(void)
{
	char byte = 0;
	struct iovec from = { &byte, 1 }, to = { (void *)site_getppid, 1 };

	heat(site_getppid, 0);
	CHECK(process_vm_writev(getpid(), &from, 1, &to, 1, 0) == -1);
	CHECK(is_jump(site_getppid));
}

const struct test memory_tests[] = {
	{ "original_on_disk", original_on_disk },
	{ "address_reused", address_reused },
	{ "dropped", dropped },
	{ "moved", moved },
	{ "made_writable", made_writable },
	{ "shared_refused", shared_refused },
	{ "across_pages", across_pages },
	{ "many_areas", many_areas },
	{ "off", off },
	{ "no_write", no_write },
	{ NULL, NULL },
};
