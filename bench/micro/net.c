// SPDX-License-Identifier: Apache-2.0 OR MIT
/* A byte over TCP to another process of this machine, and one back. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "micro.h"

static int connection;

static void no_delay(int fd)
{
	int on = 1;

	must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), "TCP_NODELAY");
}

static void tcp_batch(unsigned long operations)
{
	char byte = 0;

	while (operations--)
		if (write(connection, &byte, 1) != 1 || read(connection, &byte, 1) != 1)
			must(-1, "the connection");
}

double tcp_round_trip(void)
{
	struct sockaddr_in address;
	socklen_t length = sizeof(address);
	int listener = (int)must(socket(AF_INET, SOCK_STREAM, 0), "socket");
	pid_t child;
	double ns;
	char byte;

	memset(&address, 0, sizeof(address));
	address.sin_family = AF_INET;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	must(bind(listener, (struct sockaddr *)&address, sizeof(address)), "bind");
	must(listen(listener, 1), "listen");
	must(getsockname(listener, (struct sockaddr *)&address, &length), "getsockname");
	child = (pid_t)must(fork(), "fork");
	if (!child) {
		connection = (int)must(accept(listener, NULL, NULL), "accept");
		no_delay(connection);
		while (read(connection, &byte, 1) == 1)
			if (write(connection, &byte, 1) != 1)
				break;
		_exit(0);
	}
	connection = (int)must(socket(AF_INET, SOCK_STREAM, 0), "socket");
	must(connect(connection, (struct sockaddr *)&address, sizeof(address)), "connect");
	no_delay(connection);
	ns = timed(tcp_batch);
	close(connection);
	must(waitpid(child, NULL, 0), "waitpid");
	return ns;
}
