/* SPDX-License-Identifier: GPL-2.0-only */
/* Finding the cpuid instructions of programs. */
#ifndef ARCH_X86_VMI_USERTEXT_CPUID_H
#define ARCH_X86_VMI_USERTEXT_CPUID_H

#include <linux/mm_types.h>

/* exec maps a file. In a few of its runs the process shows where it executes cpuid. */
void cpuid_count_exec(const struct vm_area_struct *vma);

/* A new task does not show where it executes cpuid: its parent is past its start. */
void cpuid_fork(struct task_struct *task);

#endif
