/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Basic types and helpers, for every C file of the guest. */
#ifndef KERNEL_TYPES_H
#define KERNEL_TYPES_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <paravane/vmi.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;

#define KIB		1024ull
#define MIB		(1024 * KIB)
#define GIB		(1024 * MIB)
#define PAGE_SIZE	4096ull
#define LARGE_SIZE	(2 * MIB)
#define NS_PER_US	1000ull
#define NS_PER_MS	1000000ull
#define NS_PER_S	1000000000ull

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define ALIGN_UP(x, a)	(((x) + (a) - 1) & ~((a) - 1))
#define ALIGN_DOWN(x, a) ((x) & ~((a) - 1))
#define STRING_(x)	#x
#define STRING(x)	STRING_(x)
#define MIN(a, b)	((a) < (b) ? (a) : (b))
#define MAX(a, b)	((a) > (b) ? (a) : (b))
#define noreturn	__attribute__((noreturn))
#define printf_like(f, a) __attribute__((format(printf, f, a)))

/* For memory that other vCPUs, interrupts or the layer change. */
#define READ_ONCE(x)	(*(const volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, v) (*(volatile __typeof__(x) *)&(x) = (v))

static inline void barrier(void)
{
	/* No instruction: the compiler must not move memory accesses across. */
	asm volatile("" ::: "memory");
}

#define atomic_load(p)		__atomic_load_n(p, __ATOMIC_SEQ_CST)
#define atomic_store(p, v)	__atomic_store_n(p, v, __ATOMIC_SEQ_CST)
#define atomic_add(p, v)	__atomic_add_fetch(p, v, __ATOMIC_SEQ_CST)
#define atomic_swap(p, v)	__atomic_exchange_n(p, v, __ATOMIC_SEQ_CST)

void *memcpy(void *to, const void *from, size_t length);
void *memset(void *to, int value, size_t length);
int memcmp(const void *a, const void *b, size_t length);
void *memmove(void *to, const void *from, size_t length);
size_t strlen(const char *s);
int strcmp(const char *a, const char *b);
int strncmp(const char *a, const char *b, size_t length);
const char *strstr(const char *s, const char *part);

#endif
