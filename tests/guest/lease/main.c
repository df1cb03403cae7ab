// SPDX-License-Identifier: Apache-2.0 OR MIT
/* lease FILE: keeps everybody else waiting who opens the file, until standard input ends. For the host. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int fd = argc > 1 ? open(argv[1], O_RDWR) : -1;
	char byte;

	/* Somebody wants to open it. */
	signal(SIGIO, SIG_IGN);
	if (fd < 0 || fcntl(fd, F_SETLEASE, F_WRLCK)) {
		perror("lease");
		return 1;
	}
	puts("held");
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	return 0;
}
