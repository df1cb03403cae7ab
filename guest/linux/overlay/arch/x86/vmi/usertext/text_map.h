/* SPDX-License-Identifier: GPL-2.0-only */
/* Mappings of texts. */
#ifndef ARCH_X86_VMI_USERTEXT_TEXT_MAP_H
#define ARCH_X86_VMI_USERTEXT_TEXT_MAP_H

#include <linux/mm_types.h>
#include <linux/types.h>
#include "stats.h"

struct pt_regs;

/* Whether a mapping shows a text and not the file itself. */
bool text_is(const struct vm_area_struct *vma);

/* The file of a mapping. For a mapping of a text: the file that the text was made from. */
struct file *text_file_of(const struct vm_area_struct *vma);

/* Whether a process may read text in order to write code of its own. The mmap lock is held. */
bool text_is_read(struct mm_struct *mm);

/* Makes a new mapping of a file, which nothing can find yet, one of the file's text if possible. */
void text_map(struct vm_area_struct *vma);

/*
 * The same for a mapping that is in use, if the process has no pages of its own in it. The caller
 * holds the mmap lock for writing.
 */
bool text_join(struct vm_area_struct *vma);

/*
 * Makes mappings show the file itself again. The caller holds the mmap lock for writing. A mapping
 * stays as it is if there is no memory for what must stay of it, or if the caller is being killed;
 * text_revert() then returns an error.
 */
int text_revert(struct vm_area_struct *vma);
int text_revert_range(struct mm_struct *mm, unsigned long start, unsigned long end);

/*
 * private_leave_stub() for stubs of a text. The caller prevents changes of the mapping that holds
 * the address.
 */
unsigned long text_leave(const struct vm_area_struct *vma, unsigned long ip);

/* Replaces the site at an address of the current process in the text of the file (text_claim()). */
enum outcome text_claim_at(unsigned long ip, const struct pt_regs *regs, bool cpuid);

/*
 * Counts a trap at an address of the current process by its place in the file, and replaces the
 * site when it is time. Returns the count; UINT_MAX where no private text is mapped.
 */
unsigned int text_warm(unsigned long ip, const struct pt_regs *regs, bool cpuid);

#endif
