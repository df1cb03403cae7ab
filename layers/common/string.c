/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Functions that gcc may call although the code does not. A kernel that links the native layer has
 * its own, so this file is not in native/sources.mk.
 */
#include "types.h"

void *memcpy(void *to, const void *from, size_t size);
void *memset(void *to, int value, size_t size);

void *memcpy(void *to, const void *from, size_t size)
{
	void *start = to;

	/* The direction flag is clear during every call. */
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
	return start;
}

void *memset(void *to, int value, size_t size)
{
	void *start = to;

	/* The direction flag is clear during every call. */
	__asm__ volatile("rep stosb" : "+D"(to), "+c"(size) : "a"(value) : "memory");
	return start;
}
