// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Replaces the agent's program. Sends the file that it is asked to pack, which already is an
 * archive. For any other request it waits for ever: a shell that finds its own programs through
 * /proc/self/exe finds this program.
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
