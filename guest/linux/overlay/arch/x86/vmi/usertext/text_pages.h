/* SPDX-License-Identifier: GPL-2.0-only */
/* The pages of a text. */
#ifndef ARCH_X86_VMI_USERTEXT_TEXT_PAGES_H
#define ARCH_X86_VMI_USERTEXT_TEXT_PAGES_H

#include <linux/mm.h>
#include "text.h"

/* Operations of a shadow's mapping. */
extern const struct address_space_operations text_aops;

/*
 * Returns the file's own page, with a reference, or an error. It can be replaced by another page
 * at any time. Takes the file's invalidate lock and waits for I/O.
 */
struct folio *text_original(struct file *file, pgoff_t index);

/*
 * Copies a page of the file, with the text's changes, to @to. Does not need the text's lock: a
 * change that is added during the copy reaches the page when the page is unlocked, its stub first.
 */
int text_page_copy(struct text *text, struct file *file, pgoff_t index, u8 *to);

/*
 * Writes new bytes to a page that is in the text's cache. The page is unmapped everywhere during
 * the write. A thread that faults on it returns by iret, which serializes. The caller holds the
 * text's lock; takes the folio's.
 */
void text_page_update(struct text *text, pgoff_t index, u32 from, const u8 *bytes,
		      unsigned int length);

/* Handles a fault in a mapping of a text. Also reads the pages around the missing one. */
vm_fault_t text_fault(struct vm_fault *vmf);

/*
 * Returns a struct file that shows @file's path and inode and maps the text's pages, or an error.
 * On success it takes over the caller's reference to @shadow. Needs no lock.
 */
struct file *text_file(struct file *file, struct inode *shadow);

#endif
