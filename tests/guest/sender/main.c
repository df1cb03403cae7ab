// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * In the place of the agent's program: sends the file that it is asked to pack, which is an archive
 * already. Asked for anything else, it waits for ever: a shell that finds its own programs by
 * /proc/self/exe finds this one.
 */

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	static char buffer[1 << 16];
	ssize_t length;
	int fd;

	if (argc < 3 || strcmp(argv[1], "--pack"))
		for (;;)
			pause();
	fd = open(argv[2], O_RDONLY);
	if (fd < 0) {
		perror(argv[2]);
		return 1;
	}
	while ((length = read(fd, buffer, sizeof(buffer))) > 0)
		if (write(1, buffer, length) != length)
			return 1;
	return length < 0;
}
