/* SPDX-License-Identifier: GPL-2.0-only */
/* A program's text with replaced sites, shared by whoever maps it. */
#ifndef ARCH_X86_VMI_TEXT_H
#define ARCH_X86_VMI_TEXT_H

#include <linux/mm_types.h>
#include <linux/types.h>

struct pt_regs;
struct seq_file;

/* What became of an attempt to replace a site. */
enum outcome {
	CLAIMED,
	SHARED,			/* in the text that all who map it share */
	AGAIN,			/* the text had gone, and came back */
	PUT_BACK,
	IN_PLACE,		/* its instruction was executed all the same */
	NO_SHAPE,
	NO_CAVE_OR_PAGE,	/* across a page boundary */
	NOT_TEXT,		/* not private, not of a file, writable */
	WRITTEN,		/* the page was written to by somebody else */
	NO_SLOT,
	NO_MEMORY,
	BUSY,
	OUTCOMES,
};

#define JUMP_SIZE 5

/* The bytes of a jump from one address to another. */
static inline void jump_to(u8 *bytes, unsigned long from, unsigned long to)
{
	s32 distance = to - (from + JUMP_SIZE);

	bytes[0] = 0xe9;
	memcpy(bytes + 1, &distance, 4);
}

/* sites.c */
bool vmi_sites_allowed(void);
bool vmi_is_private_text(const struct vm_area_struct *vma);
int vmi_text_write(struct vm_area_struct *vma, unsigned long address, const u8 *bytes, unsigned int length);
void vmi_sites_texts_revert(struct mm_struct *mm, unsigned long start, unsigned long end);
/*
 * cpuid.c: the current process is to show where it executes cpuid, for its start, unless that is
 * over. And how often that has been so.
 */
void vmi_cpuid_learn(void);
void vmi_cpuid_show(struct seq_file *file);
/* sites.c: it has done so at ip; false if there is no more to learn from that. And how often something has been counted lately. */
bool vmi_cpuid_trapped(const struct pt_regs *regs, unsigned long ip);
unsigned int vmi_file_heat_add(u64 key);

/* Whether a mapping is one of a text with sites, not of the file itself. */
bool text_is(const struct vm_area_struct *vma);
/* A mapping of the file itself again. With the mmap lock held for writing. */
void text_revert(struct vm_area_struct *vma);
/* Replaces a site for everybody. regs are those with which its instruction was executed. */
enum outcome text_claim(struct file *file, loff_t offset, const struct pt_regs *regs, bool cpuid);
/* The same, found by its address in the current process. */
enum outcome text_claim_at(unsigned long ip, const struct pt_regs *regs, bool cpuid);
/* Which place of which file is at an address of the current process; 0: of none. */
u64 text_place(unsigned long ip);
int text_init(void);

#endif
