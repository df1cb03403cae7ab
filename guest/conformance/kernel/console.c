// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "console.h"
#include "calls.h"
#include "lock.h"

#define LINE_SIZE 512

static struct spinlock lock;

struct output {
	char *at, *end;
};

static void put(struct output *out, char c)
{
	if (out->at < out->end)
		*out->at++ = c;
}

static void put_number(struct output *out, u64 value, unsigned int base,
		       int width, char pad)
{
	char digits[24];
	int n = 0;

	do {
		digits[n++] = "0123456789abcdef"[value % base];
		value /= base;
	} while (value);
	while (width-- > n)
		put(out, pad);
	while (n)
		put(out, digits[--n]);
}

static void put_string(struct output *out, const char *s, int width)
{
	for (; *s; s++, width--)
		put(out, *s);
	while (width-- > 0)
		put(out, ' ');
}

size_t format_args(char *buffer, size_t size, const char *fmt, va_list args)
{
	struct output out = { buffer, buffer + size - 1 };

	for (; *fmt; fmt++) {
		bool is_long = false;
		char pad = ' ';
		int width = 0;
		s64 value;

		if (*fmt != '%') {
			put(&out, *fmt);
			continue;
		}
		fmt++;
		if (*fmt == '0')
			pad = '0';
		for (; *fmt >= '0' && *fmt <= '9'; fmt++)
			width = width * 10 + *fmt - '0';
		for (; *fmt == 'l'; fmt++)
			is_long = true;
		switch (*fmt) {
		case 's':
			put_string(&out, va_arg(args, const char *), width);
			break;
		case 'c':
			put(&out, va_arg(args, int));
			break;
		case 'd':
			value = is_long ? va_arg(args, s64) : va_arg(args, int);
			if (value < 0)
				put(&out, '-');
			put_number(&out, value < 0 ? -(u64)value : (u64)value,
				   10, width, pad);
			break;
		case 'u':
			put_number(&out, is_long ? va_arg(args, u64) :
				   va_arg(args, u32), 10, width, pad);
			break;
		case 'x':
			put_number(&out, is_long ? va_arg(args, u64) :
				   va_arg(args, u32), 16, width, pad);
			break;
		default:
			put(&out, *fmt);
		}
	}
	*out.at = 0;
	return out.at - buffer;
}

size_t format(char *buffer, size_t size, const char *fmt, ...)
{
	va_list args;
	size_t n;

	va_start(args, fmt);
	n = format_args(buffer, size, fmt, args);
	va_end(args);
	return n;
}

void print(const char *fmt, ...)
{
	char line[LINE_SIZE];
	va_list args;
	size_t n;

	va_start(args, fmt);
	n = format_args(line, sizeof(line), fmt, args);
	va_end(args);
	/* Without a layer's console, or the machine's own, there is nowhere. */
	if (!vmi.core_console_write)
		return;
	spin_lock(&lock);
	vmi.core_console_write(line, n);
	spin_unlock(&lock);
}
