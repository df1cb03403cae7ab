/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Short names and volatile accesses for layer code. */
#ifndef LAYER_TYPES_H
#define LAYER_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <paravane/vmi.h>

#include "faults.h"

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;
typedef unsigned __int128 u128;

#define U64_MAX (~0ULL)
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* One access of exactly the object's size: the compiler does not split, merge or repeat it. */
#define READ_ONCE(x) (*(const volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, v) (*(volatile __typeof__(x) *)&(x) = (v))

/* Keeps the compiler from moving memory accesses. The processor orders its own stores. */
#define barrier() __asm__ volatile("" : : : "memory")

static inline void *to_pointer(u64 address)
{
	return (void *)address;
}

#endif
