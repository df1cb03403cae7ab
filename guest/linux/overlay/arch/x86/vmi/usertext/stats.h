/* SPDX-License-Identifier: GPL-2.0-only */
/* What /sys/kernel/debug/vmi shows of replaced sites. */
#ifndef ARCH_X86_VMI_USERTEXT_STATS_H
#define ARCH_X86_VMI_USERTEXT_STATS_H

#include <linux/atomic.h>
#include <linux/percpu.h>

struct pt_regs;

/* The result of an attempt to replace a site, or to put it back. */
enum outcome {
	CLAIMED,		/* replaced in the process's own copy */
	SHARED,			/* replaced in the text that all mappings of the file share */
	JOINED,			/* the same, and the process's mapping became one of the text */
	AGAIN,			/* replaced again, after the page had been dropped */
	PUT_BACK,
	IN_PLACE,		/* replaced already: the instruction was executed all the same */
	NO_SHAPE,
	NO_PROOF,		/* only the registers say where its instructions begin */
	NO_CAVE_OR_PAGE,	/* across a page boundary */
	NOT_TEXT,		/* not private, not of a file, or writable */
	WRITTEN,		/* something else has written to the page */
	NO_STUB,
	NO_MEMORY,
	BUSY,
	OUTCOMES,
};

DECLARE_PER_CPU(unsigned long, vmi_syscalls_trapped);
DECLARE_PER_CPU(unsigned long, vmi_cpuids_trapped);
/* Program starts that were observed (cpuid.c), and those of them that a bound has ended. */
extern atomic_long_t vmi_cpuid_runs, vmi_cpuid_runs_cut;

void sites_note(enum outcome outcome);
/*
 * The same for an instruction of the current process that traps often. Remembers its place if it
 * was refused. The caller does not hold the mmap lock.
 */
void sites_note_at(enum outcome outcome, unsigned long ip, const struct pt_regs *regs);
/* Creates the files in debugfs. */
void sites_stats_init(void);

#endif
