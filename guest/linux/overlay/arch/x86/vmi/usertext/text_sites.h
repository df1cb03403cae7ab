/* SPDX-License-Identifier: GPL-2.0-only */
/* The sites of a text. */
#ifndef ARCH_X86_VMI_USERTEXT_TEXT_SITES_H
#define ARCH_X86_VMI_USERTEXT_TEXT_SITES_H

#include "text.h"

/*
 * Finds the executable segment that holds an offset of the file. Returns false if there is none.
 * Needs no lock, and waits for I/O.
 */
bool text_segment_find(struct file *file, u32 offset, u32 *start, u32 *end);

/*
 * Whether the file holds only zeros from the segment's end to the end of that page, so that no
 * other segment uses them. Needs no lock, and waits for I/O.
 */
bool text_tail_free(struct file *file, u32 end);

/*
 * Replaces the site at this offset of the file, unless that has been tried. The caller holds the
 * text's lock and a reference to its shadow.
 */
enum outcome text_add(struct text *text, struct file *file, u32 offset, const struct pt_regs *regs,
		      bool cpuid);

/*
 * For the offset of an instruction in a system call's stub: the offset of the instruction of the
 * site where a thread in the same state would be. The same offset for any other. Needs no lock.
 */
u32 text_leave_stub(const struct text *text, u32 at);

#endif
