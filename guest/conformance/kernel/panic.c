// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "panic.h"
#include "calls.h"
#include "console.h"
#include "machine.h"
#include "site.h"

#define DEBUG_EXIT_PORT	0xf4	/* QEMU's isa-debug-exit */
#define EXIT_PASSED	0x10
#define EXIT_FAILED	0x11

noreturn void finish(bool passed)
{
	irq_disable();
	if (machine.pvh)
		vmi.cpu_port_out(DEBUG_EXIT_PORT, 1,
				 passed ? EXIT_PASSED : EXIT_FAILED);
	vmi.core_shutdown(passed ? 0 : 1);
	for (;;)
		;
}

noreturn void panic(const char *fmt, ...)
{
	char text[256];
	va_list args;

	irq_disable();
	va_start(args, fmt);
	format_args(text, sizeof(text), fmt, args);
	va_end(args);
	print("Bail out! %s\n", text);
	finish(false);
}
