// SPDX-License-Identifier: Apache-2.0 OR MIT
/* sleeps N: sleeps N times for 200 us. */
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv)
{
	const struct timespec pause = { .tv_nsec = 200000 };
	int left = argc > 1 ? atoi(argv[1]) : 0;

	while (left-- > 0)
		nanosleep(&pause, NULL);
	return 0;
}
