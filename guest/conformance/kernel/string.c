// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* The functions that a freestanding compiler expects, and a few for strings. */
#include "types.h"

void *memcpy(void *to, const void *from, size_t length)
{
	void *t = to;

	/* Relies on DF clear, which the ABI promises; touches only to[0..length). */
	asm volatile("rep movsb" : "+D"(t), "+S"(from), "+c"(length) :: "memory");
	return to;
}

void *memset(void *to, int value, size_t length)
{
	void *t = to;

	/* As memcpy: DF is clear. */
	asm volatile("rep stosb" : "+D"(t), "+c"(length) : "a"(value) : "memory");
	return to;
}

void *memmove(void *to, const void *from, size_t length)
{
	u8 *t = to;
	const u8 *f = from;

	if (t <= f || t >= f + length)
		return memcpy(to, from, length);
	while (length--) {
		t[length] = f[length];
		barrier();	/* or the loop becomes a call of memmove */
	}
	return to;
}

int memcmp(const void *a, const void *b, size_t length)
{
	const u8 *x = a, *y = b;

	for (; length; length--, x++, y++)
		if (*x != *y)
			return *x - *y;
	return 0;
}

size_t strlen(const char *s)
{
	size_t n = 0;

	while (s[n]) {
		n++;
		barrier();	/* or the loop becomes a call of strlen */
	}
	return n;
}

int strncmp(const char *a, const char *b, size_t length)
{
	for (; length; length--, a++, b++) {
		if (*a != *b)
			return (u8)*a - (u8)*b;
		if (!*a)
			break;
	}
	return 0;
}

int strcmp(const char *a, const char *b)
{
	return strncmp(a, b, ~(size_t)0);
}

const char *strstr(const char *s, const char *part)
{
	size_t n = strlen(part);

	for (;; s++) {
		if (!strncmp(s, part, n))
			return s;
		if (!*s)
			return NULL;
	}
}
