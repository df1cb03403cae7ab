// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * nic DEVICE          prints the statistics of ethtool: a name and a number in each line
 * nic DEVICE PAIRS    sets the number of pairs of queues
 */
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* More than any device has. */
#define MOST 64

static struct ifreq request;
static int fd;

static void ask(void *data)
{
	request.ifr_data = data;
	if (ioctl(fd, SIOCETHTOOL, &request)) {
		perror("nic");
		exit(1);
	}
}

static void print(void)
{
	static struct {
		struct ethtool_sset_info head;
		__u32 count;
	} sets = { .head = { .cmd = ETHTOOL_GSSET_INFO, .sset_mask = 1 << ETH_SS_STATS } };
	static struct {
		struct ethtool_gstrings head;
		char text[MOST][ETH_GSTRING_LEN];
	} names = { .head = { .cmd = ETHTOOL_GSTRINGS, .string_set = ETH_SS_STATS } };
	static struct {
		struct ethtool_stats head;
		__u64 values[MOST];
	} stats = { .head = { .cmd = ETHTOOL_GSTATS } };
	__u32 i;

	ask(&sets);
	if (sets.count > MOST)
		exit(2);
	names.head.len = sets.count;
	ask(&names);
	stats.head.n_stats = sets.count;
	ask(&stats);
	for (i = 0; i < sets.count; i++)
		printf("%.32s %llu\n", names.text[i], (unsigned long long)stats.values[i]);
}

int main(int argc, char **argv)
{
	struct ethtool_channels channels = { .cmd = ETHTOOL_GCHANNELS };

	if (argc < 2)
		return 2;
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	strncpy(request.ifr_name, argv[1], IFNAMSIZ - 1);
	if (argc == 2) {
		print();
		return 0;
	}
	ask(&channels);
	channels.cmd = ETHTOOL_SCHANNELS;
	channels.combined_count = atoi(argv[2]);
	ask(&channels);
	return 0;
}
