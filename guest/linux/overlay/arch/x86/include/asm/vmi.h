/* SPDX-License-Identifier: GPL-2.0-only */
/* What the rest of the kernel calls of arch/x86/vmi/. */
#ifndef _ASM_X86_VMI_H
#define _ASM_X86_VMI_H

#include <asm/ptrace.h>
#include <asm/set_memory.h>

struct mm_struct;
struct task_struct;

#ifdef CONFIG_VMI_GUEST

/* On bare metal or full virtualization: looks for a layer among the option ROMs, and starts it. */
void vmi_find_rom(void);

/* Takes the execute permission from start to end, but not from a layer that was loaded there. */
void vmi_set_memory_nx(unsigned long start, unsigned long end);

/*
 * Flushes a part of an mm's user range for all CPUs, with its new generation; or false, and the caller has to. end may be
 * TLB_FLUSH_ALL. Not with interrupts off.
 */
bool vmi_flush_mm(struct mm_struct *mm, unsigned long start, unsigned long end);

/* Flushes a part of the kernel's range for this CPU. */
void vmi_flush_kernel(unsigned long start, unsigned long end);

/* A fault of a layer that it expects: it goes on elsewhere. */
int vmi_fixup_exception(struct pt_regs *regs);

/* A process with a new program that begins at ip is about to see user mode. */
void vmi_exec_fill(unsigned long ip);

/* Carries out a program's cpuid instruction, which the layer has let fault. */
bool vmi_fixup_cpuid(struct pt_regs *regs);

/*
 * The current program asks whether cpuid faults for it, or says so: it shows no more where it
 * executes that (cpuid.c).
 */
void vmi_cpuid_learnt(void);
/* A new task, which is not to show it: its parent is past its start. */
void vmi_cpuid_fork(struct task_struct *task);

/* arch_prctl(ARCH_SYSCALL_SITES): sites.c. */
long vmi_sites_prctl(unsigned long argument);

#else

static inline void vmi_find_rom(void)
{
}

static inline void vmi_set_memory_nx(unsigned long start, unsigned long end)
{
	set_memory_nx(start, (end - start) >> PAGE_SHIFT);
}

static inline bool vmi_flush_mm(struct mm_struct *mm, unsigned long start, unsigned long end)
{
	return false;
}

static inline void vmi_flush_kernel(unsigned long start, unsigned long end)
{
}

static inline int vmi_fixup_exception(struct pt_regs *regs)
{
	return 0;
}

static inline void vmi_exec_fill(unsigned long ip)
{
}

static inline bool vmi_fixup_cpuid(struct pt_regs *regs)
{
	return false;
}

static inline void vmi_cpuid_learnt(void)
{
}

static inline void vmi_cpuid_fork(struct task_struct *task)
{
}

#endif
#endif
