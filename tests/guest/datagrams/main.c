// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * datagrams ADDRESS PORT COUNT [BYTES]: sends COUNT datagrams of 1400 bytes by a socket whose
 * buffer has BYTES bytes, and waits until the card has given all of them back. Ends with 1 if half
 * a minute is short.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/sockios.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static void late(int signal)
{
	(void)signal;
	_exit(1);
}

int main(int argc, char **argv)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in to = { .sin_family = AF_INET };
	char bytes[1400] = { 0 };
	int size = argc > 4 ? atoi(argv[4]) : 0;
	long left;

	if (argc < 4 || fd < 0 || !inet_aton(argv[1], &to.sin_addr))
		return 2;
	if (size && setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)))
		return 2;
	to.sin_port = htons((unsigned short)atoi(argv[2]));
	signal(SIGALRM, late);
	alarm(30);
	for (left = atol(argv[3]); left > 0; left--)
		/* No program listens there. */
		if (sendto(fd, bytes, sizeof(bytes), 0, (struct sockaddr *)&to, sizeof(to)) < 0 &&
		    errno != ECONNREFUSED && errno != ENOBUFS)
			return 3;
	/* Also what was sent last, after which nothing comes that would make anyone look for it. */
	while (!ioctl(fd, SIOCOUTQ, &size) && size)
		usleep(1000);
	return size ? 3 : 0;
}
