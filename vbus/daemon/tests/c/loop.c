// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * loop SOCKET: a client with a loop of its own, on the echo `dev` of the bus
 * `lan`. It checks each function of vbus.h that such a program uses, says
 * "ready", prints the events that come, and ends when its device was removed.
 */
#define _GNU_SOURCE
#include <paravane/vbus.h>

#include <errno.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BATCH 32
#define ROUNDS 200

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);

/* Of this thread. */
static _Thread_local unsigned long allocations;

void *malloc(size_t size)
{
	allocations++;
	return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	allocations++;
	return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
	allocations++;
	return __libc_realloc(memory, size);
}

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "loop.c:%d: %s\n", __LINE__, #condition);                  \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static struct vbus_client *client;
/* What the strict thread has allocated, plus 1. */
static atomic_ulong strict_allocations;
static atomic_int strict_failed;

/* Batches of packets that come back, without a wait. 0: as expected. */
static int exchange(void)
{
	uint8_t packet[256] = { 7 };
	int round, sent, back;
	int64_t len;

	for (round = 0; round < ROUNDS; round++) {
		for (sent = 0; sent < BATCH; sent++)
			if (vbus_post(client, packet, sizeof(packet)) != 1)
				return 1;
		vbus_flush(client);
		for (back = 0; back < BATCH;) {
			len = vbus_receive(client, packet, sizeof(packet));
			if (len == VBUS_NO_PACKET)
				continue;
			if (len != sizeof(packet) || packet[0] != 7)
				return 1;
			back++;
		}
		vbus_watch(client);
		while (vbus_undelivered(client) > 0)
			;
	}
	return 0;
}

/* The kernel ends it when it makes a host call other than read, write and exit. */
static void *strict(void *unused)
{
	unsigned long before;

	(void)unused;
	CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0));
	before = allocations;
	strict_failed = exchange();
	strict_allocations = allocations - before + 1;
	syscall(SYS_exit, 0);
	return NULL;
}

static void paths_are_short(void)
{
	struct timespec pause = { .tv_nsec = 10000000 };
	pthread_t thread;
	int i;

	CHECK(!pthread_create(&thread, NULL, strict, NULL));
	for (i = 0; i < 3000 && !strict_allocations; i++)
		nanosleep(&pause, NULL);
	CHECK(strict_allocations == 1 && !strict_failed);
	/* The library does not learn of its end by the bare call: no thread joins it. */
}

static void one_notification_is_for_many(void)
{
	struct vbus_statistics before, after;
	uint8_t packet[64] = { 1 };
	int i;

	vbus_statistics(client, &before);
	for (i = 0; i < BATCH; i++)
		CHECK(vbus_post(client, packet, sizeof(packet)) == 1);
	vbus_statistics(client, &after);
	CHECK(after.sent == before.sent + BATCH && after.notified == before.notified);
	/* All buffers are in use. */
	for (i = BATCH; vbus_post(client, packet, sizeof(packet)) == 1; i++)
		CHECK(i < 64);
	vbus_flush(client);
	vbus_statistics(client, &after);
	CHECK(after.notified <= before.notified + 1);
	while (i > 0)
		if (vbus_receive(client, packet, sizeof(packet)) >= 0)
			i--;
}

/* Asks for a notification, and sleeps in a poll of its own until it comes. */
static void a_packet_ends_a_sleep(void)
{
	struct pollfd files[2] = { { .events = POLLIN }, { .events = POLLIN } };
	uint8_t packet[64] = { 2 };
	unsigned long before;
	int fds[2], i;

	vbus_fds(client, fds);
	files[0].fd = fds[0];
	files[1].fd = fds[1];
	while (vbus_undelivered(client))
		;
	vbus_watch(client);
	CHECK(vbus_drain(client) == 1);
	before = allocations;
	for (i = 0; i < 100; i++) {
		CHECK(vbus_receive(client, packet, sizeof(packet)) == VBUS_NO_PACKET);
		/* The packets before make it look once more. */
		while (!vbus_rest(client, 0))
			vbus_watch(client);
		CHECK(vbus_send(client, packet, sizeof(packet)) == 1);
		CHECK(poll(files, 2, 20000) > 0 && files[0].revents == POLLIN);
		CHECK(vbus_drain(client) == 1);
		CHECK(!vbus_rest(client, 0));
		vbus_watch(client);
		CHECK(vbus_receive(client, packet, sizeof(packet)) == sizeof(packet));
		while (vbus_undelivered(client))
			;
	}
	CHECK(allocations == before);
}

static void calls_have_results(void)
{
	uint8_t bytes[8];

	/* An echo has none. */
	CHECK(vbus_call(client, 2, NULL, 0, bytes, sizeof(bytes)) == VBUS_REFUSED);
	CHECK(vbus_call(client, 2, NULL, 1, bytes, sizeof(bytes)) == VBUS_INVALID_ARGUMENT);
	CHECK(vbus_call(client, 2, NULL, 0, NULL, 1) == VBUS_INVALID_ARGUMENT);
	CHECK(vbus_post(client, NULL, 1) == VBUS_INVALID_ARGUMENT);
}

/* The address of a card by a call, whole and cut. */
static void a_switch_is_called(const char *socket)
{
	uint8_t mac[6], found[6] = { 0 }, part[3] = { 0 };
	struct vbus_client *card;

	card = vbus_connect(socket, "lan", "switch", 8, 2048, NULL, 0);
	CHECK(card && vbus_mac(card, mac) == 1);
	CHECK(vbus_call(card, 2, NULL, 0, found, sizeof(found)) == 6);
	CHECK(!memcmp(mac, found, 6));
	CHECK(vbus_call(card, 2, NULL, 0, part, sizeof(part)) == 6);
	CHECK(!memcmp(mac, part, 3));
	CHECK(vbus_pairs(card) == 1);
	vbus_close(card);
	card = vbus_connect_pairs(socket, "lan", "switch", 8, 2048, 4, NULL, 0);
	CHECK(card && vbus_pairs(card) == 4);
	vbus_close(card);
	CHECK(!vbus_connect_pairs(socket, "lan", "switch", 8, 2048, 9, NULL, 0));
	/* A switch says nothing of its link. */
	card = vbus_connect_hearing(socket, "lan", "switch", 8, 2048, NULL, 0);
	CHECK(card && vbus_link(card) == 1);
	vbus_close(card);
	CHECK(!vbus_connect_hearing(socket, "lan", "nothing", 8, 2048, NULL, 0));
	/* An echo has one. */
	CHECK(vbus_pairs(client) == 1);
}

/* Two that share: the short paths allocate nothing, also for packets that are lent. */
static void two_share(const char *socket)
{
	uint8_t packet[1800] = { 0 }, found[1800], to[6];
	struct vbus_client *cards[2];
	struct vbus_event event;
	unsigned long before;
	int64_t len;
	int i, turn;

	for (i = 0; i < 2; i++) {
		cards[i] = vbus_connect_sharing(socket, "lan", "shared", 8, 2048, NULL, 0);
		CHECK(cards[i] && vbus_shares(cards[i]) == 1);
	}
	CHECK(vbus_mac(cards[1], to) == 1 && vbus_mac(cards[0], packet + 6) == 1);
	memcpy(packet, to, 6);
	for (turn = 0; turn < 2 * ROUNDS; turn++) {
		memset(packet + 14, turn, sizeof(packet) - 14);
		before = allocations;
		CHECK(vbus_send(cards[0], packet, sizeof(packet)) == 1);
		while ((len = vbus_receive(cards[1], found, sizeof(found))) == VBUS_NO_PACKET)
			;
		CHECK(allocations == before);
		CHECK(len == sizeof(packet) && !memcmp(packet, found, sizeof(packet)));
		for (i = 0; i < 2; i++)
			while (vbus_event(cards[i], &event) == 1)
				;
		/* vbusd reports the other one soon. */
		if (turn < ROUNDS)
			usleep(1000);
	}
	vbus_close(cards[0]);
	vbus_close(cards[1]);
	cards[0] = vbus_connect_sharing(socket, "lan", "switch", 8, 2048, NULL, 0);
	CHECK(cards[0] && vbus_shares(cards[0]) == 0);
	vbus_close(cards[0]);
	CHECK(vbus_shares(client) == 0);
}

/* With a poll of its own, and in vbus_wait. */
static int events(int by_wait)
{
	struct vbus_event event;
	struct pollfd file = { .events = POLLIN };
	int fds[2], result;

	vbus_fds(client, fds);
	file.fd = fds[1];
	if (by_wait) {
		result = vbus_wait(client, 20000, 0);
		if (result < 0)
			return result;
	} else {
		CHECK(poll(&file, 1, 20000) == 1);
	}
	while ((result = vbus_event(client, &event)) == 1) {
		printf("%u %u %s %s\n", event.kind, event.interface, event.name, event.type);
		fflush(stdout);
	}
	return result;
}

int main(int argc, char **argv)
{
	char why[200] = "";
	struct vbus_event event;
	int result, turn;

	CHECK(argc == 2);
	client = vbus_connect(argv[1], "lan", "dev", 64, 2048, why, sizeof(why));
	if (!client) {
		fprintf(stderr, "loop: %s\n", why);
		return 1;
	}
	CHECK(vbus_set_priority(client, 3) == 1);
	CHECK(vbus_event(client, &event) == 0);
	paths_are_short();
	one_notification_is_for_many();
	a_packet_ends_a_sleep();
	calls_have_results();
	a_switch_is_called(argv[1]);
	two_share(argv[1]);
	puts("ready");
	fflush(stdout);
	for (turn = 0; !(result = events(turn & 1)); turn++)
		;
	CHECK(result == VBUS_LOST);
	result = 0;
	/* Events that came after it are left, and then a wait says the same. */
	for (turn = 0; turn < 10 && result != VBUS_LOST; turn++)
		result = vbus_wait(client, 1000, 0);
	CHECK(result == VBUS_LOST);
	vbus_close(client);
	puts("lost");
	return 0;
}
