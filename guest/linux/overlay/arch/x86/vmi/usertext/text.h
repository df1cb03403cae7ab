/* SPDX-License-Identifier: GPL-2.0-only */
/* A text, for the files that it is made of: text.c, text_pages.c and text_sites.c. */
#ifndef ARCH_X86_VMI_TEXT_INTERNAL_H
#define ARCH_X86_VMI_TEXT_INTERNAL_H

#include <linux/fs.h>
#include <linux/fsnotify_backend.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include "text_map.h"

#define CHANGES_MAX 512
#define SLOT_ALIGN 8

/* Bytes that are different from the file's. Sorted by nothing: there are few. */
struct change {
	u32 offset;
	u8 length;
	u8 old[JUMP_SIZE], new[JUMP_SIZE];
	/* A jump in padding: somebody may be at it, from another one. */
	bool cave;
};

struct text {
	struct fsnotify_mark mark;
	/* Held as long as the mark is there; the shadow has the text, so that the text does not have it. */
	spinlock_t shadow_lock;
	struct inode *shadow;
	/* The shadow's; for who holds that. */
	struct address_space *pages;
	struct mutex lock;
	/* No more sites, no new mappings. Also set without the lock. */
	bool dead;
	/* The file's, when it was looked at first: not everybody who changes a file does it here. */
	struct timespec64 mtime, ctime;
	loff_t size;
	/* Of the executable segment, in the file. */
	u32 start, end;
	/* Behind it: slots. */
	u32 slots, body;
	u8 tail[PAGE_SIZE];
	unsigned int changes, sites;
	struct change change[CHANGES_MAX];
	/* Of their instruction; also those that cannot be replaced. */
	u32 site[CHANGES_MAX];
};

/*
 * text_pages.c: the file's own page, with a reference, or an error. It stays locked in memory by nobody, so it may be another one next time. Takes the
 * file's invalidate lock, and waits for the page.
 */
struct folio *text_original(struct file *file, pgoff_t index);
/*
 * A page of the file, and the changes, into a page of the caller's. Does not need the text's lock: what is added meanwhile is added to the page when it
 * is unlocked, its slot first.
 */
int page_with_sites(struct text *text, struct file *file, pgoff_t index, u8 *to);
/*
 * As the text now says, where the page is in the cache: nobody maps it meanwhile, and who faults on it comes back by an iret, which serializes. With the
 * text's lock; takes the page's.
 */
void text_page_update(struct text *text, pgoff_t index, u32 from, const u8 *bytes, unsigned int length);
/* A fault on a mapping of a text: the pages around the missing one are read, too. With the mmap lock or the mapping's, as any fault. */
vm_fault_t text_fault(struct vm_fault *vmf);
/* A file like this one to whoever asks, with the text's pages; has the caller's reference to the shadow, unless it is an error. Needs no lock. */
struct file *file_with_sites(struct file *file, struct inode *shadow);
/* Of a shadow. */
extern const struct address_space_operations text_aops;

/*
 * text_sites.c: the executable segment around an offset of the file, and so what is left of its last page; false: there is none. Needs no lock, and waits
 * for the page.
 */
bool text_segment_find(struct file *file, u32 offset, u32 *start, u32 *end);
/* Whether nobody else has anything behind the segment's end: zeros, to the page's end. Needs no lock, and waits for the page. */
bool text_tail_free(struct file *file, u32 end);
/* Replaces the site at this offset of the file, unless that has been tried. With the text's lock and a reference to its shadow. */
enum outcome text_add(struct text *text, struct file *file, u32 offset, const struct pt_regs *regs, bool cpuid);

#endif
