// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "clock.h"
#include "calls.h"
#include "check.h"
#include "machine.h"
#include "site.h"

#define PATIENCE_MOST 100

static u64 deadline;

u64 now(void)
{
	struct vmi_times times;

	vmi.time_read(&times);
	return times.real;
}

void delay_ns(u64 ns)
{
	u64 end = now() + ns;

	while (now() < end)
		pause();
}

u64 patient(u64 ns)
{
	u64 times = option_number("patience");

	return ns * (times < 1 ? 1 : MIN(times, PATIENCE_MOST));
}

void set_deadline(u64 ns_from_now)
{
	WRITE_ONCE(deadline, now() + patient(ns_from_now));
}

void watch(const char *what)
{
	if (test_failed())
		test_abandon();
	if (now() > READ_ONCE(deadline))
		test_fail("waiting", 0, "too late: %s", what);
}

bool spin_until(bool (*condition)(void *), void *argument, u64 ns)
{
	u64 end = now() + ns;

	while (!condition(argument)) {
		if (now() > end)
			return condition(argument);
		pause();
	}
	return true;
}
