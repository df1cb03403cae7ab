// SPDX-License-Identifier: Apache-2.0 OR MIT
/* lease FILE: delays every open of the file until standard input ends. Runs on the host. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int fd = argc > 1 ? open(argv[1], O_RDWR) : -1;
	char byte;

	/* Another process opens the file. */
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
