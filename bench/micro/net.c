// SPDX-License-Identifier: Apache-2.0 OR MIT
/* TCP within this machine: a byte to another process and back, and waiting for many connections. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include "micro.h"

/* Descriptors that select() checks. */
#define SELECTED 100

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

/* On a port that the kernel chooses and that is stored in the address. */
static int listen_at(struct sockaddr_in *address)
{
	socklen_t length = sizeof(*address);
	int listener = (int)must(socket(AF_INET, SOCK_STREAM, 0), "socket");

	memset(address, 0, sizeof(*address));
	address->sin_family = AF_INET;
	address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	must(bind(listener, (struct sockaddr *)address, sizeof(*address)), "bind");
	must(listen(listener, 1), "listen");
	must(getsockname(listener, (struct sockaddr *)address, &length), "getsockname");
	return listener;
}

static void connect_to(const struct sockaddr_in *address)
{
	connection = (int)must(socket(AF_INET, SOCK_STREAM, 0), "socket");
	must(connect(connection, (const struct sockaddr *)address, sizeof(*address)), "connect");
}

double tcp_round_trip(void)
{
	struct sockaddr_in address;
	int listener = listen_at(&address);
	pid_t child;
	double ns;
	char byte;

	child = (pid_t)must(fork(), "fork");
	if (!child) {
		connection = (int)must(accept(listener, NULL, NULL), "accept");
		no_delay(connection);
		while (read(connection, &byte, 1) == 1)
			if (write(connection, &byte, 1) != 1)
				break;
		_exit(0);
	}
	connect_to(&address);
	no_delay(connection);
	ns = timed(tcp_batch);
	close(connection);
	must(waitpid(child, NULL, 0), "waitpid");
	return ns;
}

static fd_set watched;
static int highest;

static void select_batch(unsigned long operations)
{
	while (operations--) {
		struct timeval at_once = { 0, 0 };
		fd_set set = watched;

		if (select(highest + 1, &set, NULL, NULL, &at_once))
			must(-1, "select");
	}
}

/* None of them has data. */
double select_tcp(void)
{
	struct sockaddr_in address;
	int i;

	listen_at(&address);
	connect_to(&address);
	FD_ZERO(&watched);
	for (i = 0; i < SELECTED; i++) {
		highest = (int)must(dup(connection), "dup");
		FD_SET(highest, &watched);
	}
	return timed(select_batch);
}
