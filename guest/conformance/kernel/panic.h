/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The end of the machine. */
#ifndef KERNEL_PANIC_H
#define KERNEL_PANIC_H

#include "types.h"

/* Ends the machine and reports to the host whether the tests passed. */
noreturn void finish(bool passed);
/* Prints why the kernel cannot continue and ends the machine as failed. */
noreturn void panic(const char *fmt, ...) printf_like(1, 2);

#endif
