/* SPDX-License-Identifier: GPL-2.0-only */
/* How a system-call site, or a cpuid instruction, can be replaced. */
#ifndef ARCH_X86_VMI_SHAPE_H
#define ARCH_X86_VMI_SHAPE_H

#include <linux/types.h>

struct pt_regs;

/* The longest part of a site before its syscall instruction: what a slot has room for. */
#define SHAPE_PREFIX_MAX 14

/* All offsets are in the page. */
struct shape {
	u16 start;		/* of what the slot does: from here to the syscall instruction */
	u16 syscall;		/* or the cpuid instruction */
	u16 cave;		/* where a jump of 5 bytes fits that a jump of 2 at start reaches; 0 for none */
	u16 relative;		/* of a distance of 4 bytes, from start, that must be another one elsewhere; 0 for none */
};

/*
 * Whether the syscall instruction at this offset of the page can be replaced; regs are those of the
 * system call that it made.
 */
bool shape_find(const u8 *page, unsigned int syscall, const struct pt_regs *regs, struct shape *shape);

/* Whether the code alone says that instructions begin where the shape has them, whatever made the system call. */
bool shape_proven(const u8 *page, const struct shape *shape);

/* The same for the cpuid instruction there; proven. */
bool shape_find_cpuid(const u8 *page, unsigned int cpuid, struct shape *shape);

#endif
