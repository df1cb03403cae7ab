/* SPDX-License-Identifier: GPL-2.0-only */
/* Entry from a hypervisor, system calls, and the ways back to user mode. */
#include <linux/elfnote.h>
#include <linux/init.h>
#include <linux/linkage.h>
#include <asm/asm.h>
#include <asm/asm-offsets.h>
#include <asm/nospec-branch.h>
#include <asm/percpu.h>
#include <asm/processor-flags.h>
#include <asm/segment.h>
#include <asm/thread_info.h>
#include <asm/unwind_hints.h>
#include <paravane/vmi.h>
#include "../entry/calling.h"

	__INIT
/* rdi: struct vmi_boot_info, linear; 64-bit mode, interrupts off, no GS base yet. */
SYM_CODE_START(vmi_entry)
	UNWIND_HINT_END_OF_STACK
	ANNOTATE_NOENDBR
	leaq	__top_init_kernel_stack(%rip), %rsp
	xorl	%ebp, %ebp
	leaq	INIT_PER_CPU_VAR(fixed_percpu_data)(%rip), %rsi
	call	vmi_start_kernel
	ud2
SYM_CODE_END(vmi_entry)

/*
 * rdi: CR3, rsi: struct boot_params, rdx: startup_64, all physical. Invariant: both tables map this
 * code at this address, and the new ones map the entry. The entry takes rsi and sets the rest.
 */
SYM_CODE_START(vmi_enter_again)
	UNWIND_HINT_END_OF_STACK
	ANNOTATE_NOENDBR
	movq	%rdi, %cr3
	ANNOTATE_RETPOLINE_SAFE
	jmp	*%rdx
SYM_CODE_END(vmi_enter_again)
	__FINIT

	.text
/* smp.set_ap_state leads here, with the kernel's GS base and stack. */
SYM_CODE_START(vmi_ap_entry)
	UNWIND_HINT_END_OF_STACK
	ANNOTATE_NOENDBR
	xorl	%ebp, %ebp
	call	vmi_ap_start
	ud2
SYM_CODE_END(vmi_ap_entry)

	.section .entry.text, "ax"

/* As entry_SYSCALL_64 on a processor, but the GS base is the kernel's already. */
SYM_CODE_START(vmi_entry_SYSCALL_64)
	UNWIND_HINT_ENTRY
	ENDBR
	movq	%rsp, PER_CPU_VAR(cpu_tss_rw + TSS_sp2)
	movq	PER_CPU_VAR(pcpu_hot + X86_top_of_stack), %rsp
	pushq	$__USER_DS
	pushq	PER_CPU_VAR(cpu_tss_rw + TSS_sp2)
	pushq	%r11
	pushq	$__USER_CS
	pushq	%rcx
	jmp	entry_SYSCALL_64_after_hwframe
SYM_CODE_END(vmi_entry_SYSCALL_64)

#ifdef CONFIG_VMI_USER_TEXT
/*
 * The same for a syscall instruction that was not replaced. The return path looks at it
 * (usertext/sites.c).
 */
SYM_CODE_START(vmi_entry_SYSCALL_64_trapped)
	UNWIND_HINT_ENTRY
	ENDBR
	movq	%rsp, PER_CPU_VAR(cpu_tss_rw + TSS_sp2)
	movq	PER_CPU_VAR(pcpu_hot + X86_top_of_stack), %rsp
	pushq	$__USER_DS
	pushq	PER_CPU_VAR(cpu_tss_rw + TSS_sp2)
	pushq	%r11
	pushq	$__USER_CS
	pushq	%rcx
	movq	PER_CPU_VAR(pcpu_hot + X86_current_task), %rcx
	lock orl $_TIF_SYSCALL_TRAPPED, (%rcx)			/* thread_info.flags */
	movq	(%rsp), %rcx
	jmp	entry_SYSCALL_64_after_hwframe
SYM_CODE_END(vmi_entry_SYSCALL_64_trapped)
#endif

/* All registers but rdi and rsp hold the user's values; rdi is on top of the stack. */
SYM_CODE_START(vmi_return_via_sysret)
	UNWIND_HINT_REGS offset=RDI partial=1
	ANNOTATE_NOENDBR
	popq	%rdi
	movq	(RSP - ORIG_RAX)(%rsp), %rsp
	UNWIND_HINT_END_OF_STACK
	ANNOTATE_RETPOLINE_SAFE
	jmp	*vmi_sysret_target(%rip)
SYM_CODE_END(vmi_return_via_sysret)

SYM_CODE_START(vmi_restore_regs_and_return_to_usermode)
	UNWIND_HINT_REGS
	ANNOTATE_NOENDBR
	POP_REGS
	addq	$8, %rsp			/* orig_ax */
	jmp	vmi_iret
SYM_CODE_END(vmi_restore_regs_and_return_to_usermode)

SYM_CODE_START(vmi_iret)
	UNWIND_HINT_IRET_REGS
	ANNOTATE_NOENDBR
	ANNOTATE_RETPOLINE_SAFE
	jmp	*vmi_iret_target(%rip)
SYM_CODE_END(vmi_iret)

/*
 * The layer has refused the frame that it was given for cpu.iret. The frame is on top of the stack
 * again, and all registers are as they were. As on a processor (fixup_bad_iret()), it becomes the
 * frame of a #GP in user mode.
 */
SYM_CODE_START(vmi_bad_iret)
	UNWIND_HINT_IRET_REGS
	ANNOTATE_NOENDBR
	pushq	PER_CPU_VAR(vmi_bad_iret_error)
	jmp	asm_vmi_exc_general_protection
SYM_CODE_END(vmi_bad_iret)

ELFNOTE(VMI, VMI_NOTE_ENTRY, .quad vmi_entry; .long VMI_API_VERSION; .long VMI_NOTE_COMPACT)

	.text
/*
 * For get_user() and put_user(): turns a pointer into the kernel's image, which lies in the user
 * range, into one that faults. They change only the register that their callers do not need.
 */
SYM_FUNC_START(vmi_check_get_user)
	movq	%rax, %rdx
	subq	kernel_hole_start(%rip), %rdx
	cmpq	kernel_hole_size(%rip), %rdx
	jae	1f
	movq	$-1, %rax
1:	RET
SYM_FUNC_END(vmi_check_get_user)

SYM_FUNC_START(vmi_check_put_user)
	movq	%rcx, %rbx
	subq	kernel_hole_start(%rip), %rbx
	cmpq	kernel_hole_size(%rip), %rbx
	jae	1f
	movq	$-1, %rcx
1:	RET
SYM_FUNC_END(vmi_check_put_user)
