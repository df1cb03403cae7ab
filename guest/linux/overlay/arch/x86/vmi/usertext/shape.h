/* SPDX-License-Identifier: GPL-2.0-only */
/* How the instructions before a syscall or cpuid instruction allow it to be replaced. */
#ifndef ARCH_X86_VMI_USERTEXT_SHAPE_H
#define ARCH_X86_VMI_USERTEXT_SHAPE_H

#include <linux/string.h>
#include <linux/types.h>

struct pt_regs;

/* The most bytes of a site before its syscall instruction: the room in a stub. */
#define SHAPE_PREFIX_MAX 14

/* All offsets are from the start of the page. */
struct shape {
	u16 start;		/* the stub does what stands from here to the syscall instruction */
	u16 syscall;		/* the syscall or cpuid instruction */
	u16 cave;		/* room for a 5-byte jump, near enough for a 2-byte jump; or 0 */
	u16 relative;		/* 4-byte displacement to adjust, from start; or 0 */
};

#define JUMP_SIZE 5

/* The longest instruction. */
#define INSN_BYTES 15
/* The most bytes before an instruction that a proof of its beginning looks at. */
#define SHAPE_BEFORE_MAX (9 * INSN_BYTES)

/* Encodes a jump from one address to another. */
static inline void jump_to(u8 *bytes, unsigned long from, unsigned long to)
{
	s32 distance = to - (from + JUMP_SIZE);

	bytes[0] = 0xe9;
	memcpy(bytes + 1, &distance, 4);
}

/*
 * Whether the syscall instruction at this offset of the page can be replaced. @regs are the
 * registers of a system call that it has made. The @before bytes before the page are code, too, so
 * that the first instructions of a page can be proven; they are at most SHAPE_BEFORE_MAX.
 */
bool shape_find(const u8 *page, unsigned int before, unsigned int syscall,
		const struct pt_regs *regs, struct shape *shape);

/* Whether the code alone proves that instructions begin where @shape says. */
bool shape_proven(const u8 *page, unsigned int before, const struct shape *shape);

/* Whether the cpuid instruction at this offset can be replaced. The result is proven. */
bool shape_find_cpuid(const u8 *page, unsigned int before, unsigned int cpuid,
		      struct shape *shape);

#endif
