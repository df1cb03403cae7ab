// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * contents FILE SEED STEPS: changes and reads a file in every way and size, and compares what is
 * read with what was written. Says where they differ first. Static: it runs in guests and on the
 * host.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST (12UL << 20)
#define PAGE 4096UL

static unsigned char model[MOST + PAGE];
static unsigned char buffer[MOST + PAGE];
static unsigned long size;
static unsigned long state;

static unsigned long below(unsigned long limit)
{
	state = state * 6364136223846793005UL + 1442695040888963407UL;
	return limit ? (state >> 20) % limit : 0;
}

/* Small and large ones, with and without whole pages. */
static unsigned long some_length(void)
{
	static const unsigned long most[] = { 200, 3 * PAGE, 64 << 10, 600 << 10, 3 << 20 };
	unsigned long length = 1 + below(most[below(5)]);

	return below(2) ? length : (length + PAGE - 1) / PAGE * PAGE;
}

static unsigned long some_place(unsigned long limit)
{
	unsigned long at = below(limit + 1);

	return below(2) ? at : at / PAGE * PAGE;
}

static void fail(const char *what, unsigned long at, unsigned long length)
{
	printf("%s: %lu bytes at %lu of %lu\n", what, length, at, size);
	exit(1);
}

static void compare(const char *what, const unsigned char *seen, unsigned long at,
		    unsigned long length)
{
	for (unsigned long i = 0; i < length; i++)
		if (seen[i] != model[at + i])
			fail(what, at + i, length);
}

static void write_at(int fd, unsigned long at, unsigned long length)
{
	unsigned char *from = buffer + below(PAGE);

	if (at + length > MOST)
		return;
	if (at > size)
		memset(model + size, 0, at - size);
	for (unsigned long i = 0; i < length; i++)
		from[i] = (unsigned char)(state >> 32) + i * 7 + i / 251;
	if (pwrite(fd, from, length, (off_t)at) != (ssize_t)length)
		fail("write", at, length);
	memcpy(model + at, from, length);
	if (at + length > size)
		size = at + length;
}

static void read_at(int fd, unsigned long at, unsigned long length)
{
	unsigned char *to = buffer + below(PAGE);
	unsigned long there = at < size ? size - at : 0;
	ssize_t done;

	if (length > MOST)
		length = MOST;
	if (there > length)
		there = length;
	done = pread(fd, to, length, (off_t)at);
	if (done != (ssize_t)there)
		fail("length of a read", at, length);
	compare("read", to, at, there);
}

static void map_at(int fd, unsigned long at, unsigned long length)
{
	unsigned char *seen;

	at = at / PAGE * PAGE;
	if (at >= size)
		return;
	if (at + length > size)
		length = size - at;
	seen = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)at);
	if (seen == MAP_FAILED)
		fail("mmap", at, length);
	compare("map", seen, at, length);
	for (unsigned long i = below(length); i < length && below(8); i += 1 + below(3 * PAGE))
		seen[i] = model[at + i] = (unsigned char)state;
	if (below(2) && msync(seen, length, MS_SYNC))
		fail("msync", at, length);
	munmap(seen, length);
}

int main(int argc, char **argv)
{
	unsigned long steps = argc == 4 ? strtoul(argv[3], NULL, 0) : 0;
	int fd = argc == 4 ? open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0644) : -1;

	if (fd < 0) {
		perror("contents");
		return 2;
	}
	state = strtoul(argv[2], NULL, 0);
	while (steps--) {
		unsigned long length = some_length();

		switch (below(12)) {
		case 0:
			write_at(fd, some_place(size + (64 << 10)), length);
			break;
		case 1:
		case 2:
		case 3:
			write_at(fd, size, length);
			break;
		case 4:
		case 5:
		case 6:
		case 7:
			read_at(fd, some_place(size), length);
			break;
		case 8:
			map_at(fd, some_place(size), length);
			break;
		case 9:
			if (below(4))
				break;
			size = some_place(size);
			if (ftruncate(fd, (off_t)size))
				fail("truncate", size, 0);
			break;
		case 10:
			fsync(fd);
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
			break;
		default:
			close(fd);
			fd = open(argv[1], O_RDWR);
			if (fd < 0)
				fail("open", 0, 0);
		}
	}
	read_at(fd, 0, MOST);
	close(fd);
	return 0;
}
