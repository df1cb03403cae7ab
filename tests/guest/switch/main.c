// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Two processes that wake each other, so that the guest's kernel switches between them all the
 * time:
 *
 * switch serve NAME   answers each byte on an abstract socket, one connection after the other
 * switch once NAME    the same for one connection
 * switch ask NAME N   sends N bytes, each after the answer to the one before
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int serve(int fd)
{
	char byte;

	while (read(fd, &byte, 1) == 1)
		if (write(fd, &byte, 1) != 1)
			return 1;
	return close(fd);
}

static int ask(int fd, long times)
{
	char byte = 0;

	while (times-- > 0)
		if (write(fd, &byte, 1) != 1 || read(fd, &byte, 1) != 1)
			return 1;
	return close(fd);
}

int main(int argc, char **argv)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), peer;
	socklen_t length;

	if (argc < 3 || fd < 0 || strlen(argv[2]) > 32)
		return 2;
	/* Its first byte is 0: a name outside of the file system. */
	strcpy(address.sun_path + 1, argv[2]);
	length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(argv[2]));
	if (!strcmp(argv[1], "ask")) {
		/* The server may have been started at the same time. */
		while (connect(fd, (struct sockaddr *)&address, length))
			usleep(1000);
		return argc > 3 ? ask(fd, atol(argv[3])) : 2;
	}
	if (bind(fd, (struct sockaddr *)&address, length) || listen(fd, 8)) {
		perror("switch");
		return 1;
	}
	do {
		peer = accept(fd, NULL, NULL);
		if (peer < 0 || serve(peer))
			return 1;
	} while (!strcmp(argv[1], "serve"));
	return 0;
}
