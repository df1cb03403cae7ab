// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * flood ADDRESS PORT COUNT PAUSE: sends COUNT datagrams as fast as it can and never sleeps, so
 * that the card always has frames but while this program is stopped. Prints how many times more
 * than PAUSE ns were between two attempts to send.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

/* Attempts for one datagram. */
#define ATTEMPTS 100000000UL

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

int main(int argc, char **argv)
{
	static char data[1400];
	struct sockaddr_in there = { .sin_family = AF_INET };
	unsigned long count, sent = 0, pauses = 0, attempts = 0;
	uint64_t pause, last, time;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (argc != 5 || fd < 0 || inet_pton(AF_INET, argv[1], &there.sin_addr) != 1)
		return 2;
	there.sin_port = htons((uint16_t)atoi(argv[2]));
	count = strtoul(argv[3], NULL, 10);
	pause = strtoull(argv[4], NULL, 10);
	if (connect(fd, (struct sockaddr *)&there, sizeof(there)))
		return 2;
	last = now();
	while (sent < count && ++attempts < ATTEMPTS) {
		if (send(fd, data, sizeof(data), MSG_DONTWAIT) == sizeof(data))
			sent++;
		else if (errno != EAGAIN && errno != ENOBUFS && errno != ECONNREFUSED)
			return 1;
		time = now();
		pauses += time - last > pause;
		last = time;
	}
	printf("%lu %lu\n", sent, pauses);
	return 0;
}
