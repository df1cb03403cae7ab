/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Instructions and flags of the processor. */
#ifndef PROCESS_CPU_H
#define PROCESS_CPU_H

#include "common/types.h"

#define FLAG_ZF 0x40ULL
#define FLAG_TF 0x100ULL
#define FLAG_IF 0x200ULL
#define FLAG_NT 0x4000ULL
#define FLAG_RF 0x10000ULL
#define FLAG_AC 0x40000ULL
#define FLAG_ID 0x200000ULL
/* Flags that user code may have: cpu.iret takes all of them, cpu.sysret all but RF. */
#define FLAGS_IRET 0x254dd5ULL
#define FLAGS_SYSRET (FLAGS_IRET & ~FLAG_RF)

static inline u64 rdfsbase(void)
{
	u64 base;

	__asm__ volatile("rdfsbase %0" : "=r"(base));
	return base;
}

static inline void wrfsbase(u64 base)
{
	__asm__ volatile("wrfsbase %0" : : "r"(base));
}

static inline u64 rdgsbase(void)
{
	u64 base;

	__asm__ volatile("rdgsbase %0" : "=r"(base));
	return base;
}

static inline void wrgsbase(u64 base)
{
	__asm__ volatile("wrgsbase %0" : : "r"(base));
}

/*
 * Selectors that user code sees. Only the host's own can be loaded; the bases of FS and GS are kept
 * apart from them.
 */
#define HOST_USER_SS 0x2b
#define HOST_USER_CS32 0x23
#define HOST_USER_CS 0x33

#define SEGMENT_REGISTER(name)						\
static inline void load_##name##_selector(u32 selector)			\
{									\
	__asm__ volatile("movl %0, %%" #name : : "r"(selector));	\
}									\
static inline u32 read_##name##_selector(void)				\
{									\
	u32 selector;							\
									\
	__asm__ volatile("movl %%" #name ", %0" : "=r"(selector));	\
	return selector;						\
}
SEGMENT_REGISTER(ds)
SEGMENT_REGISTER(es)
SEGMENT_REGISTER(fs)
SEGMENT_REGISTER(gs)

static inline u64 rdtsc(void)
{
	u32 low, high;

	/*
	 * The lfence keeps the read after earlier loads: a sample must not be older than one that
	 * came from another vCPU.
	 */
	__asm__ volatile("lfence\n\trdtsc" : "=a"(low), "=d"(high) : : "memory");
	return (u64)high << 32 | low;
}

/* The time-stamp counter, for uses that tolerate a few cycles of disorder. */
static inline u64 rdtsc_rough(void)
{
	u32 low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (u64)high << 32 | low;
}

static inline void fence(void)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void cpu_relax(void)
{
	__asm__ volatile("pause");
}

#endif
