/* SPDX-License-Identifier: GPL-2.0-only */
/* What the rest of the kernel calls in arch/x86/vmi/. */
#ifndef _ASM_X86_VMI_H
#define _ASM_X86_VMI_H

#include <linux/jump_label.h>
#include <asm/ptrace.h>
#include <asm/set_memory.h>

struct mm_struct;
struct task_struct;

#ifdef CONFIG_VMI_GUEST

/* On bare metal or full virtualization: finds a layer among the option ROMs and starts it. */
void vmi_find_rom(void);

/*
 * What the layer puts at a site of pv_ops that calls *op and has @length bytes. Returns how many
 * bytes of @code it has set, or a negative number: the site calls what pv_ops contains.
 */
int vmi_site(const void *op, u8 *code, unsigned int length);

/* Clears the execute permission from start to end, except for a layer that was loaded there. */
void vmi_set_memory_nx(unsigned long start, unsigned long end);

/* The layer flushes a space on all CPUs. On bare metal without a layer this is one nop. */
DECLARE_STATIC_KEY_FALSE(vmi_flush_key);

static __always_inline bool vmi_flushes_spaces(void)
{
	return static_branch_unlikely(&vmi_flush_key);
}

/*
 * If vmi_flushes_spaces(): flushes a part of an mm's user range on all CPUs and tells the layer
 * the mm's new generation. @end may be TLB_FLUSH_ALL. Interrupts must be enabled.
 */
void vmi_flush_mm(struct mm_struct *mm, unsigned long start, unsigned long end);

/* Flushes a part of the kernel's range on this CPU. */
void vmi_flush_kernel(unsigned long start, unsigned long end);

/*
 * The same on all CPUs. @end may be TLB_FLUSH_ALL. False: the layer cannot, and the caller
 * interrupts the CPUs.
 */
bool vmi_flush_kernel_everywhere(unsigned long start, unsigned long end);

/*
 * After such a flush, before page tables of the kernel are freed: waits for walks of them with
 * interrupts off, as an interrupt for the flush would have.
 */
void vmi_wait_for_walks(void);

#ifdef CONFIG_PARAVIRT_SPINLOCKS
/*
 * A CPU waits until *flags has no bit of @mask, which @cpu clears in an interrupt. Returns when
 * spinning is as good as anything, perhaps earlier.
 */
void vmi_csd_wait(int cpu, const unsigned int *flags, unsigned int mask);
#else
static inline void vmi_csd_wait(int cpu, const unsigned int *flags, unsigned int mask)
{
}
#endif

/* Handles a fault that the layer expects: its exception table says where to continue. */
int vmi_fixup_exception(struct pt_regs *regs);

/* Prepares the new program of a process, which begins at ip, before it enters user mode. */
void vmi_exec_fill(unsigned long ip);

/* Makes paravirt_steal_clock() say what was stolen from this CPU until now. */
void vmi_sample_stolen(void);

/* Whether the CPU has debug registers. Without them, no breakpoint would ever be hit. */
bool vmi_has_breakpoints(void);

/* Whether a grace period of RCU is to interrupt the CPUs, and not to wait for their ticks. */
bool vmi_expedite_grace_period(void);

#ifdef CONFIG_SMP
/* Whether the scheduler is to ask vmi_wake_here(). */
extern bool vmi_wakes_here;

/*
 * Whether a task that slept on CPU @prev is better woken on this CPU, where @running tasks want to
 * run. The current task's CPU time was accounted about @since ns ago. Preemption is off.
 */
bool vmi_wake_here(const struct task_struct *task, int prev, unsigned int running, s64 since);
#endif

#else

static inline bool vmi_has_breakpoints(void)
{
	return true;
}

static inline bool vmi_expedite_grace_period(void)
{
	return false;
}

static inline void vmi_find_rom(void)
{
}

static inline int vmi_site(const void *op, u8 *code, unsigned int length)
{
	return -1;
}

static inline void vmi_set_memory_nx(unsigned long start, unsigned long end)
{
	set_memory_nx(start, (end - start) >> PAGE_SHIFT);
}

static inline bool vmi_flushes_spaces(void)
{
	return false;
}

static inline void vmi_flush_mm(struct mm_struct *mm, unsigned long start, unsigned long end)
{
}

static inline void vmi_flush_kernel(unsigned long start, unsigned long end)
{
}

static inline bool vmi_flush_kernel_everywhere(unsigned long start, unsigned long end)
{
	return false;
}

static inline void vmi_wait_for_walks(void)
{
}

static inline int vmi_fixup_exception(struct pt_regs *regs)
{
	return 0;
}

static inline void vmi_exec_fill(unsigned long ip)
{
}

#endif

#ifdef CONFIG_VMI_USER_TEXT

/* Executes a program's cpuid instruction that has faulted; false if the fault is not its. */
bool vmi_fixup_cpuid(struct pt_regs *regs);

/*
 * The current program reads or sets whether cpuid faults for it (ARCH_GET_CPUID, ARCH_SET_CPUID):
 * it stops to show where it executes cpuid.
 */
void vmi_cpuid_learnt(void);

/* A new task returns from its parent's system call, and may be a copy of one that learns. */
void vmi_sites_fork(struct task_struct *task);

/* A signal is about to be delivered to a thread that may be in the stub of a replaced site. */
void vmi_leave_stub(struct pt_regs *regs);

/* arch_prctl(ARCH_SYSCALL_SITES) */
long vmi_sites_prctl(unsigned long argument);

#else

static inline bool vmi_fixup_cpuid(struct pt_regs *regs)
{
	return false;
}

static inline void vmi_cpuid_learnt(void)
{
}

static inline void vmi_sites_fork(struct task_struct *task)
{
}

#endif
#endif
