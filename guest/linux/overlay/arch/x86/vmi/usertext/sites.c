// SPDX-License-Identifier: GPL-2.0-only
/*
 * The hooks of this folder in the rest of the kernel, and when a site is replaced.
 *
 * A site is replaced after it has trapped a few times: in a text that all mappings of the file
 * share (text_map.c), or in the process's own copy (private.c). It is put back when a debugger
 * attaches to the process, before a write by force to its text, before a core dump, and when the
 * text becomes writable or moves.
 */
#include <linux/entry-common.h>
#include <linux/mm.h>
#include <linux/ptrace.h>
#include <linux/sched/mm.h>
#include <linux/syscall_sites.h>
#include <linux/uaccess.h>
#include <linux/uprobes.h>
#include <asm/mmu_context.h>
#include <asm/vmi.h>
#include <asm/vmi_cost.h>
#include "../vmi.h"
#include "cpuid.h"
#include "heat.h"
#include "policy.h"
#include "private.h"
#include "stats.h"
#include "stubs.h"
#include "text.h"
#include "text_map.h"
#include "write.h"

/* Whether it is time to try to replace a site. */
static bool hot(unsigned int traps)
{
	return traps == VMI_TRAPS_HOT || !(traps % VMI_TRAPS_AGAIN);
}

/*
 * A site has trapped often in this process. If the process maps a text there, the site is replaced
 * in the text. If the text has no room for it, the process goes back to the file itself and gets a
 * copy of its own. If the code does not prove the site, only a process that traps there very often
 * does so: it has to learn all its other sites again.
 *
 * A mapping that is older than the text becomes one of the text. Otherwise the children of a shell
 * that was the first program of the machine would trap for as long as it lives: the copy is of the
 * sites where the shell itself traps.
 */
static void site_hot(const struct pt_regs *regs, unsigned int traps)
{
	struct mm_struct *mm = current->mm;
	enum outcome outcome = NOT_TEXT;
	unsigned long ip = regs->ip - 2;
	struct vm_area_struct *vma;
	bool shared, joins;

	if (mmap_read_lock_killable(mm))
		return;
	vma = vma_lookup(mm, ip);
	shared = vma && text_is(vma);
	joins = vma && !shared && !vma->anon_vma;
	mmap_read_unlock(mm);
	if (shared || joins) {
		outcome = text_claim_at(ip, regs, false);
		joins &= outcome == SHARED || outcome == IN_PLACE;
		if (shared && outcome != NO_STUB && outcome != NOT_TEXT &&
		    (outcome != NO_PROOF || traps < VMI_TRAPS_AGAIN)) {
			sites_note_at(outcome, ip, regs);
			return;
		}
	}
	if (mmap_write_lock_killable(mm))
		return;
	vma = vma_lookup(mm, ip);
	/* A debugger may have attached since. */
	if (vma && text_is_private(vma) && vmi_sites_allowed()) {
		if (joins && (text_is(vma) || text_join(vma))) {
			outcome = JOINED;
		} else {
			outcome = text_is(vma) && text_revert(vma) ? NO_MEMORY :
								     private_claim(vma, regs);
		}
	}
	mmap_write_unlock(mm);
	sites_note_at(outcome, ip, regs);
}

/* A system call came from a trap and returns to user mode. */
void vmi_syscall_trapped(const struct pt_regs *regs)
{
	struct mm_struct *mm = current->mm;
	unsigned int traps;

	/* A signal's delivery has looked at it already. */
	if (!test_and_clear_thread_flag(TIF_SYSCALL_TRAPPED))
		return;
	this_cpu_inc(vmi_syscalls_trapped);
	/*
	 * rt_sigreturn has put other registers there. Its site stays as it is: unwinders recognise
	 * signal frames by the bytes of this system call.
	 */
	if (!mm || (long)regs->orig_ax < 0 || !vmi_sites_allowed())
		return;
	traps = heat_by_process(mm->context.ctx_id << 48 ^ mm->context.ctx_id >> 16 ^ regs->ip);
	if (hot(traps))
		site_hot(regs, traps);
	else if (traps == 1)
		text_warm(regs->ip - 2, regs, false);
}

/* The call that the parent has made is counted once. */
void vmi_sites_fork(struct task_struct *task)
{
	clear_tsk_thread_flag(task, TIF_SYSCALL_TRAPPED);
	cpuid_fork(task);
}

/*
 * Moves a thread that is in a stub to where it would be in its own code: nothing else that the
 * program could use has changed. Signals, debuggers and core dumps then find it there. C libraries
 * decide by that address whether a system call can still be cancelled, and unwinders know no stubs.
 *
 * Not if the text has become the file again since (text_revert()): its stubs are not known any
 * more. So a debugger that attaches in that moment finds the thread in the stub, once. And not for
 * a program that steps itself: it would step from its jump to the stub for ever.
 */
void vmi_leave_stub(struct pt_regs *regs)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	u8 jump[JUMP_SIZE] = {};
	bool known = false;

	/* A system call returns to its site. */
	if (!mm || (long)regs->orig_ax >= 0 || regs->flags & X86_EFLAGS_TF ||
	    (!READ_ONCE(mm->context.vmi.sites) && !test_bit(MM_CONTEXT_TEXTS, &mm->context.flags)))
		return;
	vma = lock_vma_under_rcu(mm, regs->ip);
	if (vma) {
		known = !stub_area_is(vma);
		regs->ip = text_leave(vma, regs->ip);
		vma_end_read(vma);
	}
	/* Stubs of this process need the mmap lock, and so does a jump in padding. */
	if (known && (!READ_ONCE(mm->context.vmi.sites) ||
		      copy_from_user(jump, (const u8 __user *)regs->ip, JUMP_SIZE) ||
		      jump[0] != 0xe9))
		return;
	if (mmap_read_lock_killable(mm))
		return;
	vma = vma_lookup(mm, regs->ip);
	if (vma && stub_area_is(vma))
		regs->ip = private_leave_stub(mm, regs->ip);
	else if (vma && text_is(vma))
		regs->ip = text_leave(vma, regs->ip);
	else if (vma)
		regs->ip = private_leave_cave(mm, regs->ip, jump);
	mmap_read_unlock(mm);
}

void __syscall_sites_map(struct vm_area_struct *vma)
{
	/* The rest of an execve that trapped is about the new program. */
	if (current->in_execve)
		clear_thread_flag(TIF_SYSCALL_TRAPPED);
	if (!text_enabled())
		return;
	/* Learning is useless where no cpuid instruction could be replaced. */
	if (current->in_execve && vmi_sites_allowed() && !text_refused())
		cpuid_count_exec(vma);
	if (!text_is_read(vma->vm_mm))
		text_map(vma);
}

void __syscall_sites_put_back_range(struct mm_struct *mm, unsigned long start, unsigned long end)
{
	text_revert_range(mm, start, end);
	private_put_back(mm, start, end);
}

void __syscall_sites_put_back(struct mm_struct *mm)
{
	if (!vmi_sites_offered || test_and_set_bit(MM_CONTEXT_SITES_OFF, &mm->context.flags))
		return;
	mmap_write_lock(mm);
	/* The next debugger tries again what the end of this one has prevented. */
	if (text_revert_range(mm, 0, ULONG_MAX))
		clear_bit(MM_CONTEXT_SITES_OFF, &mm->context.flags);
	private_put_back(mm, 0, ULONG_MAX);
	mmap_write_unlock(mm);
}

void syscall_sites_put_back_task(struct task_struct *task)
{
	struct mm_struct *mm = get_task_mm(task);

	if (!mm)
		return;
	syscall_sites_put_back(mm);
	mmput(mm);
}

#ifdef CONFIG_UPROBES
/*
 * Replaces a weak function. A thread must reach a breakpoint on a syscall instruction, so the sites
 * there are put back first. The caller holds the mmap lock for writing.
 */
int set_swbp(struct arch_uprobe *auprobe, struct mm_struct *mm, unsigned long vaddr)
{
	set_bit(MM_CONTEXT_SITES_OFF, &mm->context.flags);
	syscall_sites_put_back_range(mm, vaddr & PAGE_MASK, PAGE_ALIGN(vaddr + 1));
	return uprobe_write_opcode(auprobe, mm, vaddr, UPROBE_SWBP_INSN);
}
#endif

long vmi_sites_prctl(unsigned long argument)
{
	if (argument > 1)
		return -EINVAL;
	if (argument) {
		clear_thread_flag(TIF_SYSCALL_SITES_OFF);
	} else {
		set_thread_flag(TIF_SYSCALL_SITES_OFF);
		syscall_sites_put_back(current->mm);
	}
	return 0;
}

void vmi_sites_enter(void)
{
	if (vmi.patch_set_entry)
		vmi.patch_set_entry((u64)vmi_entry_SYSCALL_64);
}

unsigned long vmi_sites_lstar(void)
{
	return (unsigned long)(vmi.patch_set_entry ? vmi_entry_SYSCALL_64_trapped :
						     vmi_entry_SYSCALL_64);
}

static int __init sites_init(void)
{
	u32 features;
	s64 version;

	/* entry.S sets TIF_SYSCALL_TRAPPED at offset 0 of the task. */
	BUILD_BUG_ON(offsetof(struct task_struct, thread_info.flags));
	if (!vmi_low || !vmi.patch_set_entry)
		return 0;
	version = vmi.core_version(VMI_SECTION_PATCH);
	features = version >= 0 ? version >> 32 : 0;
	vmi_sites_offered = features & VMI_PATCH_ENTRIES;
	if (vmi_sites_offered && features & VMI_PATCH_CODE && text_init())
		pr_warn("vmi: replaced sites are not shared\n");
	sites_stats_init();
	return 0;
}
late_initcall(sites_init);
