// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * echo SOCKET BUS DEVICE COUNT: sends COUNT packets to a device of class echo and checks that they
 * come back in order. It continues if vbusd is killed and started again; packets may come twice
 * then.
 */
#include <paravane/vbus.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	uint32_t sent = 0, received = 0, count, number;
	struct vbus_client *client;
	char why[200] = "";
	int64_t len;
	int result;

	if (argc != 5) {
		fprintf(stderr, "usage: echo SOCKET BUS DEVICE COUNT\n");
		return 2;
	}
	count = (uint32_t)strtoul(argv[4], NULL, 10);
	client = vbus_connect(argv[1], argv[2], argv[3], 64, 2048, why, sizeof(why));
	if (!client) {
		fprintf(stderr, "echo: %s\n", why);
		return 1;
	}
	while (received < count) {
		for (; sent < count; sent++) {
			result = vbus_send(client, (const uint8_t *)&sent, sizeof(sent));
			if (result <= 0)
				break;
		}
		while ((len = vbus_receive(client, (uint8_t *)&number, sizeof(number))) >= 0) {
			if (len != sizeof(number) || number > received) {
				fprintf(stderr, "echo: packet %u came, not %u\n", number, received);
				return 1;
			}
			/* One that came twice is older. */
			if (number == received)
				received++;
		}
		if (received == count)
			break;
		result = vbus_wait(client, 5000, 0);
		if (result == VBUS_LOST)
			result = vbus_reconnect(client, 10000);
		if (result <= 0) {
			fprintf(stderr, "echo: %d after %u packets\n", result, received);
			return 1;
		}
	}
	vbus_close(client);
	printf("%u packets came back\n", received);
	return 0;
}
