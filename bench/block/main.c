// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The measuring program of `paravane bench block`. It runs on the host, where its file is in the
 * page cache, and in guests, where it is a disk whose contents are in the page cache of the host.
 *
 * block FILE DO...: does these, and prints a line for each when it is done:
 *   random DEPTH MS   reads 4 KiB at random places, DEPTH at a time, for MS milliseconds:
 *                     "random DEPTH COUNT NS MEDIAN P99": how many in NS, nanoseconds of one
 *   read MS           reads from the beginning to the end, over and over: "read BYTES NS"
 *   write MS          the same for writes. They are not flushed: "write BYTES NS"
 * Before a stream it prints "begin read" or "begin write".
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/aio_abi.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SMALL 4096
/* Streams: bytes of a request, and requests at a time. */
#define LARGE (256 << 10)
#define STREAMS 4
#define DEPTH_MAX 64
/* Samples of which the median and the 99th percentile are taken. */
#define SAMPLES 200000
/* The longest time for one measurement, in milliseconds. */
#define MS_MAX 600000

static int file;
static uint64_t size;
static aio_context_t context;

static void fail(const char *what)
{
	fprintf(stderr, "block: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * UINT64_C(1000000000) + time.tv_nsec;
}

static long number(const char *word, long most)
{
	char *end;
	long value = strtol(word, &end, 10);

	if (*end || value < 1 || value > most) {
		fprintf(stderr, "block: %s: a number from 1 to %ld is expected\n", word, most);
		exit(1);
	}
	return value;
}

/* xorshift64*. */
static uint64_t random_number(void)
{
	static uint64_t state = UINT64_C(0x9e3779b97f4a7c15);

	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * UINT64_C(0x2545f4914f6cdd1d);
}

static int compare(const void *a, const void *b)
{
	const uint32_t *left = a, *right = b;

	return (*left > *right) - (*left < *right);
}

/* What a measurement is of. */
struct kind {
	int operation;
	size_t bytes;
	int depth;
	int random;
};

struct result {
	uint64_t count, ns;
	uint32_t median, p99;
};

static uint64_t place(const struct kind *kind, uint64_t turn)
{
	uint64_t places = size / kind->bytes;

	return (kind->random ? random_number() % places : turn % places) * kind->bytes;
}

/* Keeps `depth` requests under way until `ms` milliseconds are over. */
static struct result measure(const struct kind *kind, long ms)
{
	static uint32_t samples[SAMPLES];
	struct iocb requests[DEPTH_MAX] = {}, *pointers[DEPTH_MAX];
	struct io_event events[DEPTH_MAX];
	uint64_t begun[DEPTH_MAX], start = now(), end = start + ms * UINT64_C(1000000);
	uint64_t turn = 0, time = start;
	struct result result = {};
	int ready[DEPTH_MAX], count = kind->depth, under_way = 0, i;
	char *memory;

	if (posix_memalign((void **)&memory, SMALL, kind->bytes * kind->depth))
		fail("memory");
	memset(memory, 0x5a, kind->bytes * kind->depth);
	for (i = 0; i < count; i++)
		ready[i] = i;
	for (;;) {
		for (i = 0; i < count; i++) {
			int at = ready[i];
			struct iocb *request = &requests[at];

			request->aio_data = at;
			request->aio_lio_opcode = kind->operation;
			request->aio_fildes = file;
			request->aio_buf = (uintptr_t)(memory + at * kind->bytes);
			request->aio_nbytes = kind->bytes;
			request->aio_offset = place(kind, turn++);
			begun[at] = time;
			pointers[i] = request;
		}
		for (i = 0; i < count;) {
			long done = syscall(SYS_io_submit, context, count - i, pointers + i);

			if (done < 1)
				fail("io_submit");
			i += done;
		}
		under_way += count;
		if (!under_way)
			break;
		count = syscall(SYS_io_getevents, context, 1, DEPTH_MAX, events, NULL);
		if (count < 1)
			fail("io_getevents");
		time = now();
		under_way -= count;
		for (i = 0; i < count; i++) {
			uint64_t took = time - begun[events[i].data];

			if (events[i].res != (int64_t)kind->bytes) {
				errno = events[i].res < 0 ? -events[i].res : EIO;
				fail("a request");
			}
			samples[result.count++ % SAMPLES] = took > UINT32_MAX ? UINT32_MAX : took;
			ready[i] = events[i].data;
		}
		if (time >= end)
			count = 0;
	}
	result.ns = time - start;
	free(memory);
	count = result.count < SAMPLES ? result.count : SAMPLES;
	qsort(samples, count, sizeof(*samples), compare);
	result.median = samples[count / 2];
	result.p99 = samples[(uint64_t)count * 99 / 100];
	return result;
}

static void do_random(long depth, long ms)
{
	struct kind kind = { IOCB_CMD_PREAD, SMALL, depth, 1 };
	struct result result = measure(&kind, ms);

	printf("random %ld %" PRIu64 " %" PRIu64 " %" PRIu32 " %" PRIu32 "\n", depth, result.count,
	       result.ns, result.median, result.p99);
}

static void do_stream(const char *name, int operation, long ms)
{
	struct kind kind = { operation, LARGE, STREAMS, 0 };
	struct result result;

	printf("begin %s\n", name);
	result = measure(&kind, ms);
	printf("%s %" PRIu64 " %" PRIu64 "\n", name, result.count * LARGE, result.ns);
}

static void open_file(const char *path)
{
	struct stat status;
	int flags = O_RDWR | O_CLOEXEC;

	if (stat(path, &status))
		fail(path);
	/* Past the page cache of this kernel, unless the file is in it. */
	if (S_ISBLK(status.st_mode))
		flags |= O_DIRECT;
	file = open(path, flags);
	if (file < 0)
		fail(path);
	size = status.st_size;
	if (S_ISBLK(status.st_mode) && ioctl(file, BLKGETSIZE64, &size))
		fail(path);
	if (size < LARGE) {
		fprintf(stderr, "block: %s: too small\n", path);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	int i;

	if (argc < 3) {
		fprintf(stderr, "usage: block FILE (random DEPTH MS|read MS|write MS)...\n");
		return 1;
	}
	/* Who reads the lines measures CPU time between them. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	open_file(argv[1]);
	if (syscall(SYS_io_setup, DEPTH_MAX, &context))
		fail("io_setup");
	for (i = 2; i < argc;) {
		if (!strcmp(argv[i], "random") && i + 2 < argc) {
			do_random(number(argv[i + 1], DEPTH_MAX), number(argv[i + 2], MS_MAX));
			i += 3;
		} else if (!strcmp(argv[i], "read") && i + 1 < argc) {
			do_stream("read", IOCB_CMD_PREAD, number(argv[i + 1], MS_MAX));
			i += 2;
		} else if (!strcmp(argv[i], "write") && i + 1 < argc) {
			do_stream("write", IOCB_CMD_PWRITE, number(argv[i + 1], MS_MAX));
			i += 2;
		} else {
			fprintf(stderr, "block: what is %s?\n", argv[i]);
			return 1;
		}
	}
	return 0;
}
