// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* The end of a machine that cannot go on. */
#include "host/fatal.h"
#include "host/doorbell.h"
#include "host/futex.h"
#include "state/state.h"

/* Appends text, and a value in hexadecimal, to the message for the monitor. */
static u32 message_add(u32 n, const char *text, u64 value)
{
	static const char digits[] = "0123456789abcdef";
	u8 *out = shared->s.message;
	int shift;

	while (n < 200 && *text)
		out[n++] = (u8)*text++;
	out[n++] = ' ';
	out[n++] = '0';
	out[n++] = 'x';
	for (shift = 60; shift >= 0; shift -= 4)
		if (value >> shift || !shift)
			out[n++] = (u8)digits[value >> shift & 15];
	out[n] = 0;
	return n;
}

static noreturn void give_up(void)
{
	static u32 never;
	u32 old = PHV_VM_RUNNING;

	__atomic_compare_exchange_n(&shared->s.vm_state, &old, PHV_VM_FATAL, false,
				    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
	doorbell_ring();
	/* The monitor kills all processes. Until then no guest code runs here. */
	for (;;)
		futex_wait(&never, 0, U64_MAX);
}

noreturn void fatal(const char *message, u64 value)
{
	message_add(0, message, value);
	give_up();
}

noreturn void fatal_at(const char *message, u64 value, u64 rip)
{
	message_add(message_add(0, message, value), ", at", rip);
	give_up();
}
