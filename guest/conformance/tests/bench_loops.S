/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Loops for bench.c: name(rounds in rdi, argument in rsi). The operation has its argument in rdi.
 * The plain loops are in .bare.text, where no site is patched, and only run on bare metal.
 */
#include "../kernel/layout.h"
#include "../kernel/site.h"

	/* rbx counts, so that the operation may change every register that it is allowed to. */
	.macro	BEGIN name
	.balign	64
	.globl	\name
\name:
	pushq	%rbx
	movq	%rdi, %rbx
	movq	%rsi, %rdi
	.balign	64
8:
	.endm

	.macro	END
	decq	%rbx
	jnz	8b
	popq	%rbx
	ret
	.endm

	.text
	BEGIN	site_empty
	END
	BEGIN	plain_empty
	END

#define PAIR(name, NAME)			\
	.text;					\
	BEGIN	site_##name;			\
	SITE_CALL(NAME);			\
	END;					\
	.section .bare.text, "ax";		\
	BEGIN	plain_##name;			\
	VMI_NATIVE_##NAME;			\
	END

PAIR(irq_disable, CPU_IRQ_DISABLE)
PAIR(irq_enable, CPU_IRQ_ENABLE)
PAIR(irq_flag, CPU_IRQ_FLAG)
PAIR(irq_restore, CPU_IRQ_RESTORE)
PAIR(irq_save, CPU_IRQ_SAVE)
PAIR(pause, CPU_PAUSE)
PAIR(get_cr0, CPU_GET_CR0)
PAIR(set_cr0, CPU_SET_CR0)
PAIR(clts, CPU_CLTS)
PAIR(get_cr2, CPU_GET_CR2)
PAIR(set_cr2, CPU_SET_CR2)
PAIR(get_cr4, CPU_GET_CR4)
PAIR(set_cr4, CPU_SET_CR4)
PAIR(get_cr8, CPU_GET_CR8)
PAIR(set_cr8, CPU_SET_CR8)
PAIR(read_tsc, CPU_READ_TSC)
PAIR(io_delay, CPU_IO_DELAY)
PAIR(wbinvd, CPU_WBINVD)
PAIR(get_cr3, MMU_GET_CR3)
PAIR(invalidate_page, MMU_INVALIDATE_PAGE)

	/* Twice, so that the GS base is the kernel's again; interrupts are off. */
	.text
	BEGIN	site_swapgs_twice
	SITE_CALL(CPU_SWAPGS)
	SITE_CALL(CPU_SWAPGS)
	END
	.section .bare.text, "ax"
	BEGIN	plain_swapgs_twice
	swapgs
	swapgs
	END

	/* Class sysv: the call may change rdi. The stack is aligned here. */
	.text
	BEGIN	site_set_cr3
	movq	%rsi, %rdi
	SITE_CALL(MMU_SET_CR3)
	END
	.section .bare.text, "ax"
	BEGIN	plain_set_cr3
	movq	%rsi, %rdi
	movq	%rdi, %cr3
	END

	/* Both include the frame: five pushes and so on. */
	.macro	FRAME to
	pushq	$KERNEL_SS
	pushq	%rsp
	addq	$8, (%rsp)
	pushfq
	pushq	$KERNEL_CS
	pushq	$\to
	.endm
	.text
	BEGIN	site_iret
	FRAME	1f
	SITE_CALL(CPU_IRET)
1:	END
	.section .bare.text, "ax"
	BEGIN	plain_iret
	FRAME	1f
	iretq
1:	END

	/* A call through its entry: rsi points to a block with the entry and its arguments. */
	.text
	.globl	call_loop
call_loop:
	pushq	%rbx
	pushq	%r12
	subq	$8, %rsp
	movq	%rdi, %rbx
	movq	%rsi, %r12
1:	movq	8(%r12), %rdi
	movq	16(%r12), %rsi
	movq	24(%r12), %rdx
	movq	32(%r12), %rcx
	movq	40(%r12), %r8
	call	*(%r12)
	decq	%rbx
	jnz	1b
	addq	$8, %rsp
	popq	%r12
	popq	%rbx
	ret

	.section .note.GNU-stack, "", @progbits
