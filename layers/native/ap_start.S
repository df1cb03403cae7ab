/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Start of an application processor: copied to AP_CODE of the low page, entered in real mode at the
 * page's first byte, which jumps here. See ap_layout.h.
 *
 * Invariants: the code is position independent, because it does not run where it was linked. It
 * writes nothing after loading the processor's own CR3, and uses no stack before the last
 * instruction, which only reads one. There is no IDT until the processor's own: a fault in here
 * ends the machine.
 */
#include "asm.h"
#include "ap_layout.h"

#define FIELD(name) (AP_STATE + VMI_OFF_AP_STATE_##name)
#define GPR(number) (FIELD(GPR) + 8 * (number))
#define MSR_EFER 0xc0000080
#define MSR_FS_BASE 0xc0000100
#define MSR_GS_BASE 0xc0000101
#define CR0_PE 1
#define CR0_PG 0x80000000
#define EFER_LMA 0x400
#define ENTRY_PRESENT_WRITABLE 3

	.section .rodata
	.balign 16
	.globl	native_ap_start, native_ap_start_32, native_ap_start_64, native_ap_start_end
	.hidden	native_ap_start, native_ap_start_32, native_ap_start_64, native_ap_start_end

	.code16
native_ap_start:
	cli
	cld
	movw	%cs, %ax		/* CS is page >> 4, the offset 0 */
	movw	%ax, %ds
	movl	AP_PAGE, %ebx
	leal	ENTRY_PRESENT_WRITABLE(%ebx), %eax
	movl	%eax, 0			/* entry 0: the page is its own table */
	movl	$0, 4
	lgdtl	AP_BOOT_GDTR
	movl	%cr0, %eax
	orl	$CR0_PE, %eax
	movl	%eax, %cr0
	ljmpl	*AP_FAR32

	.code32
native_ap_start_32:
	movw	$AP_SELECTOR_DATA, %ax
	movw	%ax, %ds
	movl	AP_CR4(%ebx), %eax
	movl	%eax, %cr4
	movl	%ebx, %cr3
	movl	$MSR_EFER, %ecx
	movl	FIELD(EFER)(%ebx), %eax
	movl	FIELD(EFER) + 4(%ebx), %edx
	andl	$~EFER_LMA, %eax	/* the processor sets this bit itself */
	wrmsr
	movl	%cr0, %eax
	orl	$CR0_PG, %eax
	movl	%eax, %cr0
	ljmpl	*AP_FAR64(%ebx)

	.code64
native_ap_start_64:
	movl	%ebx, %ebx		/* the upper half is not defined until now */
	/*
	 * CR4 comes after CR0, as some bits need CR0.WP, and before CR3, as CR4.PCIDE needs PCID 0.
	 */
	movq	FIELD(CR0)(%rbx), %rax
	movq	%rax, %cr0
	movq	FIELD(CR4)(%rbx), %rax
	movq	%rax, %cr4
	movq	FIELD(CR3)(%rbx), %rax
	movq	%rax, %cr3		/* maps this page at its own address too */
	lgdt	AP_GDTR + VMI_OFF_TABLE_REGISTER_LIMIT(%rbx)
	lidt	AP_IDTR + VMI_OFF_TABLE_REGISTER_LIMIT(%rbx)
	xorl	%eax, %eax
	movl	%eax, %fs
	movl	%eax, %gs
	movzwl	FIELD(SS)(%rbx), %eax
#if !FAULT(AP_FORGETS_ES)
	movl	%eax, %es
#endif
	movl	%eax, %ds
	movl	%eax, %ss
	lldt	FIELD(LDTR)(%rbx)
	movzwl	FIELD(TR)(%rbx), %eax
	testl	%eax, %eax
	jz	1f
	ltr	%ax
1:
#if !FAULT(AP_FORGETS_FS_BASE)
	movl	$MSR_FS_BASE, %ecx
	movl	FIELD(FS_BASE)(%rbx), %eax
	movl	FIELD(FS_BASE) + 4(%rbx), %edx
	wrmsr
#endif
	movl	$MSR_GS_BASE, %ecx
	movl	FIELD(GS_BASE)(%rbx), %eax
	movl	FIELD(GS_BASE) + 4(%rbx), %edx
	wrmsr
	movq	GPR(0)(%rbx), %rax
	movq	GPR(1)(%rbx), %rcx
	movq	GPR(2)(%rbx), %rdx
	movq	GPR(5)(%rbx), %rbp
	movq	GPR(6)(%rbx), %rsi
	movq	GPR(7)(%rbx), %rdi
	movq	GPR(8)(%rbx), %r8
	movq	GPR(9)(%rbx), %r9
	movq	GPR(10)(%rbx), %r10
	movq	GPR(11)(%rbx), %r11
	movq	GPR(12)(%rbx), %r12
	movq	GPR(13)(%rbx), %r13
	movq	GPR(14)(%rbx), %r14
#if !FAULT(AP_FORGETS_R15)
	movq	GPR(15)(%rbx), %r15
#endif
	leaq	AP_FRAME(%rbx), %rsp
	movq	GPR(3)(%rbx), %rbx
	iretq				/* rip, cs, rflags, rsp, ss at once */
	.org	native_ap_start + AP_CODE_MAX	/* an error if the code is too long */
native_ap_start_end:

	.section .note.GNU-stack, "", @progbits
