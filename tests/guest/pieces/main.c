// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * pieces HOW: makes the file HOW of 8 MiB in the current folder, 1 MiB by each write:
 *
 *   unaligned	from memory that does not begin where a page does
 *   small	each of 1024 pieces
 *   write-only	from memory that may be written and not read, which a kernel cannot pin
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define MIB (1 << 20)
#define TIMES 8
#define PIECES 1024

static void must(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

int main(int argc, char **argv)
{
	static struct iovec pieces[PIECES];
	const char *how = argc == 2 ? argv[1] : "";
	int write_only = !strcmp(how, "write-only"), fd, i;
	char *memory = mmap(NULL, MIB + 4096, write_only ? PROT_WRITE : PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *begin = strcmp(how, "unaligned") ? memory : memory + 16;
	int count = strcmp(how, "small") ? 1 : PIECES;

	must(memory != MAP_FAILED, "mmap");
	memset(begin, 'x', MIB);
	for (i = 0; i < count; i++) {
		pieces[i].iov_base = begin + MIB / count * i;
		pieces[i].iov_len = MIB / count;
	}
	fd = open(how, O_WRONLY | O_CREAT | O_EXCL, 0644);
	must(fd >= 0, how);
	for (i = 0; i < TIMES; i++)
		must(writev(fd, pieces, count) == MIB, "writev");
	must(!close(fd), "close");
	return 0;
}
