// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The measuring program of `paravane bench net`: the same file on the host and in a guest.
 *
 *   net serve PORT                      listens, prints "ready", and serves until it is killed
 *   net client ADDRESS PORT WHAT N...   measures, for each pair of WHAT and N:
 *     trip N    round trips of one byte: prints "trip MEDIAN P99 MEAN", in ns
 *     send N    a stream to the server for N ms: prints "begin send", then "send BYTES NS"
 *     receive N the same from the server
 *
 * The first byte of a connection says what the client wants. At the end of a stream to the server
 * the server answers with the number of bytes that it has got: what is still under way in buffers
 * does not count as sent before it has arrived.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Bytes of one write or read of a stream. */
#define CHUNK (128 << 10)
/* The longest time for one connection, in seconds. */
#define PATIENCE 120
/* The most round trips of one measurement. */
#define TRIPS_MAX 1000000UL
/* Pauses of 10 ms between attempts to connect: a guest's network may still be starting. */
#define ATTEMPTS 500

static char chunk[CHUNK];

static void die(const char *what)
{
	fprintf(stderr, "net: %s: %s\n", what, strerror(errno));
	exit(1);
}

static long must(long result, const char *what)
{
	if (result < 0)
		die(what);
	return result;
}

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static unsigned long number(const char *text, unsigned long most)
{
	char *end;
	unsigned long value;

	errno = 0;
	value = strtoul(text, &end, 10);
	if (errno || *end || end == text || !value || value > most) {
		fprintf(stderr, "net: `%s` is no number from 1 to %lu\n", text, most);
		exit(2);
	}
	return value;
}

static void no_delay(int fd)
{
	int on = 1;

	must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), "TCP_NODELAY");
}

static void put(int fd, const void *bytes, size_t length)
{
	const char *next = bytes;

	while (length) {
		ssize_t put = must(write(fd, next, length), "write");

		next += put;
		length -= (size_t)put;
	}
}

static void get(int fd, void *bytes, size_t length)
{
	char *next = bytes;

	while (length) {
		ssize_t got = must(read(fd, next, length), "read");

		if (!got) {
			fprintf(stderr, "net: the other side has closed the connection\n");
			exit(1);
		}
		next += got;
		length -= (size_t)got;
	}
}

/* In a process of its own, which the alarm ends if the client disappears. */
static void serve_connection(int fd)
{
	uint64_t bytes = 0;
	ssize_t got;
	char what;

	alarm(PATIENCE);
	no_delay(fd);
	get(fd, &what, 1);
	switch (what) {
	case 't':
		while (read(fd, &what, 1) == 1)
			put(fd, &what, 1);
		break;
	case 's':
		while ((got = must(read(fd, chunk, CHUNK), "read")) > 0)
			bytes += (uint64_t)got;
		put(fd, &bytes, sizeof(bytes));
		break;
	case 'r':
		/* Until the client closes. */
		while (write(fd, chunk, CHUNK) > 0)
			;
		break;
	}
	exit(0);
}

/* Never returns. */
static void serve(const char *port)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	int listener = (int)must(socket(AF_INET, SOCK_STREAM, 0), "socket");
	int on = 1;

	address.sin_port = htons((uint16_t)number(port, 65535));
	must(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), "SO_REUSEADDR");
	must(bind(listener, (struct sockaddr *)&address, sizeof(address)), "bind");
	must(listen(listener, 16), "listen");
	signal(SIGCHLD, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	puts("ready");
	fflush(stdout);
	for (;;) {
		int fd = (int)must(accept(listener, NULL, NULL), "accept");

		if (!must(fork(), "fork"))
			serve_connection(fd);
		close(fd);
	}
}

static int connect_to(const struct sockaddr_in *address, char what)
{
	int fd = -1, i;

	for (i = 0; i < ATTEMPTS; i++) {
		fd = (int)must(socket(AF_INET, SOCK_STREAM, 0), "socket");
		if (!connect(fd, (const struct sockaddr *)address, sizeof(*address)))
			break;
		close(fd);
		fd = -1;
		usleep(10000);
	}
	must(fd, "connect");
	alarm(PATIENCE);
	no_delay(fd);
	put(fd, &what, 1);
	return fd;
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void trips(const struct sockaddr_in *address, unsigned long count)
{
	unsigned long warm = count / 10 + 1, i;
	uint64_t *times = calloc(count, sizeof(*times)), sum = 0;
	int fd = connect_to(address, 't');
	char byte = 0;

	if (!times)
		die("memory");
	for (i = 0; i < warm + count; i++) {
		uint64_t begun = now();

		put(fd, &byte, 1);
		get(fd, &byte, 1);
		if (i >= warm)
			times[i - warm] = now() - begun;
	}
	for (i = 0; i < count; i++)
		sum += times[i];
	qsort(times, count, sizeof(*times), by_size);
	printf("trip %lu %lu %lu\n", (unsigned long)times[count / 2],
	       (unsigned long)times[count - 1 - count / 100], (unsigned long)(sum / count));
	close(fd);
	free(times);
}

static void begin(const char *what)
{
	printf("begin %s\n", what);
	fflush(stdout);
}

static void send_stream(const struct sockaddr_in *address, unsigned long ms)
{
	int fd = connect_to(address, 's');
	uint64_t begun, end, bytes;

	begin("send");
	begun = now();
	end = begun + ms * 1000000;
	while (now() < end)
		put(fd, chunk, CHUNK);
	must(shutdown(fd, SHUT_WR), "shutdown");
	get(fd, &bytes, sizeof(bytes));
	printf("send %lu %lu\n", (unsigned long)bytes, (unsigned long)(now() - begun));
	close(fd);
}

static void receive_stream(const struct sockaddr_in *address, unsigned long ms)
{
	int fd = connect_to(address, 'r');
	uint64_t begun, end, bytes = 0;

	begin("receive");
	begun = now();
	end = begun + ms * 1000000;
	while (now() < end) {
		ssize_t got = must(read(fd, chunk, CHUNK), "read");

		if (!got) {
			fprintf(stderr, "net: the server has closed the connection\n");
			exit(1);
		}
		bytes += (uint64_t)got;
	}
	printf("receive %lu %lu\n", (unsigned long)bytes, (unsigned long)(now() - begun));
	close(fd);
}

static int client(char **words)
{
	struct sockaddr_in address = { .sin_family = AF_INET };

	if (inet_pton(AF_INET, words[0], &address.sin_addr) != 1) {
		fprintf(stderr, "net: `%s` is no address\n", words[0]);
		return 2;
	}
	address.sin_port = htons((uint16_t)number(words[1], 65535));
	for (words += 2; words[0] && words[1]; words += 2) {
		if (!strcmp(words[0], "trip")) {
			trips(&address, number(words[1], TRIPS_MAX));
		} else if (!strcmp(words[0], "send")) {
			send_stream(&address, number(words[1], PATIENCE * 500UL));
		} else if (!strcmp(words[0], "receive")) {
			receive_stream(&address, number(words[1], PATIENCE * 500UL));
		} else {
			fprintf(stderr, "net: there is no %s\n", words[0]);
			return 2;
		}
		if (fflush(stdout))
			return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "serve"))
		serve(argv[2]);
	if (argc >= 6 && !(argc % 2) && !strcmp(argv[1], "client"))
		return client(argv + 2);
	fprintf(stderr, "usage: net serve PORT\n"
			"       net client ADDRESS PORT (trip|send|receive N)...\n");
	return 2;
}
