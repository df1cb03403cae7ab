/* SPDX-License-Identifier: GPL-2.0-only */
/* A text: the second page cache of a file, in which sites are replaced for all its mappings. */
#ifndef ARCH_X86_VMI_USERTEXT_TEXT_H
#define ARCH_X86_VMI_USERTEXT_TEXT_H

#include <linux/fs.h>
#include <linux/fsnotify_backend.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include "shape.h"
#include "stats.h"

#define CHANGES_MAX 512
#define STUB_ALIGN 8
/* A stub of a system call has more than 16 bytes. */
#define STUBS_MAX (PAGE_SIZE / (2 * STUB_ALIGN))

/* Bytes that differ from the file's. */
struct change {
	u32 offset;
	u8 length;
	u8 old[JUMP_SIZE], new[JUMP_SIZE];
	/* A jump in padding: a thread that has executed the first jump may be at it. */
	bool cave;
};

/* The stub of a system call. Offsets are the file's. */
struct text_stub {
	u32 at, start;		/* the stub; the first byte that it replaces */
	u32 cave;		/* of the jump to it in padding, or 0 */
	u8 length;		/* of the stub */
	u8 prefix;		/* bytes from start to the syscall instruction */
};

struct text {
	struct fsnotify_mark mark;
	/* NULL once the mark is destroyed. The shadow holds a reference to the text. */
	spinlock_t shadow_lock;
	struct inode *shadow;
	/* The shadow's mapping; valid for holders of a reference to the shadow. */
	struct address_space *pages;
	/* Protects the members below. */
	struct mutex lock;
	/* The text gets no more sites and no new mappings. Also set without the lock. */
	bool dead;
	/*
	 * The file's, when the text was created. Not every change of a file passes through this
	 * kernel's write path.
	 */
	struct timespec64 mtime, ctime;
	loff_t size;
	/* The executable segment, as offsets in the file. */
	u32 start, end;
	/* The next free stub after the segment's end; the body that all cpuid stubs share, or 0. */
	u32 next_stub, body;
	/* The last page of the segment, valid after its end: the stubs. */
	u8 tail[PAGE_SIZE];
	unsigned int changes, sites, stubs;
	/* Not sorted: a text has few. */
	struct change change[CHANGES_MAX];
	/* Offsets of the sites' instructions, including those that cannot be replaced. */
	u32 site[CHANGES_MAX];
	/* Without the lock, those below stubs may be read. They do not change. */
	struct text_stub stub[STUBS_MAX];
};

/* Whether texts work at all, and the administrator allows them. */
bool text_enabled(void);
/* Whether texts get no new mappings any more, and the switch to that: true for the first caller. */
bool text_refused(void);
bool text_refuse(void);

/* The text of a file, with a reference, or NULL. */
struct text *text_find(struct inode *inode);
void text_put(struct text *text);
/* Whether the file is still the one that the text was made from. If not, the text is dead. */
bool text_current(struct text *text, const struct inode *inode);
/* The text's shadow, with a reference; NULL once the text has been destroyed. */
struct inode *text_shadow(struct text *text);

/*
 * Replaces the site at @offset of @file in the file's text, which is created if there is none.
 * @regs are the registers with which the instruction was executed; @cpuid says which instruction.
 */
enum outcome text_claim(struct file *file, loff_t offset, const struct pt_regs *regs, bool cpuid);

int text_init(void);

#endif
