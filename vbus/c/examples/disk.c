// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * disk SOCKET BUS DEVICE: writes every sector of a disk on the bus, flushes, and checks that all of
 * it comes back.
 */
#include <paravane/vbus.h>

#include <stdio.h>
#include <string.h>

#define SECTOR 512
#define PART 100

int main(int argc, char **argv)
{
	static uint8_t wanted[PART * SECTOR], found[PART * SECTOR];
	struct vbus_disk *disk;
	char why[200] = "";
	uint64_t at, left;
	size_t len;

	if (argc != 4) {
		fprintf(stderr, "usage: disk SOCKET BUS DEVICE\n");
		return 2;
	}
	disk = vbus_disk_open(argv[1], argv[2], argv[3], 10000, why, sizeof(why));
	if (!disk) {
		fprintf(stderr, "disk: %s\n", why);
		return 1;
	}
	memset(wanted, 0xc3, sizeof(wanted));
	for (at = 0; at < vbus_disk_sectors(disk); at += PART) {
		left = vbus_disk_sectors(disk) - at;
		len = (left < PART ? left : PART) * SECTOR;
		if (vbus_disk_write(disk, at, wanted, len) != 1 || vbus_disk_flush(disk) != 1 ||
		    vbus_disk_read(disk, at, found, len) != 1 || memcmp(wanted, found, len)) {
			fprintf(stderr, "disk: sectors from %llu on\n", (unsigned long long)at);
			return 1;
		}
	}
	vbus_disk_close(disk);
	printf("%llu sectors\n", (unsigned long long)at);
	return 0;
}
