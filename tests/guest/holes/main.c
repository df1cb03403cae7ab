// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * holes list FILE: prints where the file has data, by SEEK_DATA and SEEK_HOLE: "START-END ...".
 * holes make FILE: makes one of 8 MiB with data at 1 MiB and at 3 MiB.
 * holes map FILE TEXT: writes a text at 5 MiB through a shared mapping, prints where the file then
 * has data, and only then has the text written to the disk.
 * Static: it runs in guests and on the host.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB (1L << 20)
#define SIZE (8 * MIB)

static void fail(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

static int opened(const char *name, int flags)
{
	int fd = open(name, flags, 0644);

	if (fd < 0)
		fail(name);
	return fd;
}

static void list(const char *name)
{
	int fd = opened(name, O_RDONLY);
	off_t end = 0, data;

	while ((data = lseek(fd, end, SEEK_DATA)) >= 0) {
		end = lseek(fd, data, SEEK_HOLE);
		if (end <= data)
			fail("SEEK_HOLE");
		printf("%ld-%ld ", (long)data, (long)end);
	}
	if (errno != ENXIO)
		fail("SEEK_DATA");
	puts("");
	close(fd);
}

static void make(const char *name)
{
	static char block[65536];
	int fd = opened(name, O_WRONLY | O_CREAT | O_TRUNC);

	memset(block, 'x', sizeof(block));
	if (ftruncate(fd, SIZE) || pwrite(fd, block, sizeof(block), MIB) < 0 ||
	    pwrite(fd, block, sizeof(block), 3 * MIB) < 0)
		fail(name);
	close(fd);
}

static void map(const char *name, const char *text)
{
	int fd = opened(name, O_RDWR);
	char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (map == MAP_FAILED)
		fail("mmap");
	close(fd);
	strcpy(map + 5 * MIB, text);
	list(name);
	if (msync(map, SIZE, MS_SYNC))
		fail("msync");
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "list"))
		list(argv[2]);
	else if (argc == 3 && !strcmp(argv[1], "make"))
		make(argv[2]);
	else if (argc == 4 && !strcmp(argv[1], "map"))
		map(argv[2], argv[3]);
	else
		return 2;
	return 0;
}
