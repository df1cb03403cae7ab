// SPDX-License-Identifier: Apache-2.0 OR MIT
/* udp PORT: sends each datagram back to its sender, in capitals. */

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	static char data[65536];
	struct sockaddr_in own = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	own.sin_port = htons(argc > 1 ? atoi(argv[1]) : 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&own, sizeof(own))) {
		perror("udp");
		return 1;
	}
	for (;;) {
		struct sockaddr_in who;
		socklen_t size = sizeof(who);
		ssize_t length = recvfrom(fd, data, sizeof(data), 0, (struct sockaddr *)&who,
					  &size);

		if (length < 0)
			continue;
		for (ssize_t i = 0; i < length; i++)
			data[i] = toupper((unsigned char)data[i]);
		sendto(fd, data, length, 0, (struct sockaddr *)&who, size);
	}
}
