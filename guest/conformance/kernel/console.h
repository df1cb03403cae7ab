/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Formatted output over core.console_write. */
#ifndef KERNEL_CONSOLE_H
#define KERNEL_CONSOLE_H

#include "types.h"

/* %s %c %d %u %x, with ll, 0 and a width. Returns the length written. */
size_t format(char *buffer, size_t size, const char *fmt, ...) printf_like(3, 4);
size_t format_args(char *buffer, size_t size, const char *fmt, va_list args);
void print(const char *fmt, ...) printf_like(1, 2);

#endif
