/* SPDX-License-Identifier: GPL-2.0-only */
/* Writing to a process's own copy of its text. */
#ifndef ARCH_X86_VMI_USERTEXT_WRITE_H
#define ARCH_X86_VMI_USERTEXT_WRITE_H

#include <linux/mm_types.h>
#include <linux/types.h>

/* Bytes to write to one page of text. */
struct piece {
	unsigned long address;
	const u8 *bytes;
	unsigned int length;
};

/* A private, executable mapping of a file, or of the vDSO, that the process cannot write to. */
bool text_is_private(const struct vm_area_struct *vma);

/*
 * Writes @count pieces, all in one page, to the process's own copy of that page. The caller holds
 * the mmap lock for writing. Returns 0; -EAGAIN if the page changed and the caller may try again;
 * or another error.
 */
int text_write(struct vm_area_struct *vma, const struct piece *pieces, unsigned int count);

#endif
