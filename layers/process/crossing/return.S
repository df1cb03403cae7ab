/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* cpu.iret and cpu.sysret. */
#include "common/asm.h"
#include "state/offsets.h"

	.section .thunks, "awx", @progbits

/*
 * Return by an interrupt frame: rip cs rflags rsp ss at the stack pointer. iretq works at privilege
 * level 3 as long as the selectors are the host's. A user frame with other selectors takes the slow
 * path through the hlt, and so does the return from an NMI: another one may be pending.
 */
#if FAULT(IRET_FORGETS_NMI)
#define IRET_LOOKS_AT	FORCE_EVENT
#else
#define IRET_LOOKS_AT	(FORCE_EVENT | FORCE_IRET)
#endif
	.globl	ph_iret_critical, ph_iretq, ph_iret_kernel_changed, ph_iretq_kernel
	.globl	ph_iret_deliver, ph_iret_end
ENTRY(thunk_cpu_iret)
	pushq	%rax
	testb	$3, 16(%rsp)
	jz	3f
	movb	$1, GS(F_IRQ)
	cmpw	$0x33, 16(%rsp)
	jne	2f
	cmpw	$0x2b, 40(%rsp)
	jne	2f
ph_iret_critical:
	cmpw	$0, GS(F_PENDING)
	jne	2f
	movq	GS(F_VCPU), %rax
	movl	$0x33, V_USER_CS(%rax)
	movl	$0x2b, V_USER_CS + 4(%rax)
	movq	V_USER_GS(%rax), %rax
	wrgsbase %rax
	popq	%rax
ph_iretq:
	iretq

	/* Into the kernel: the flag comes from the frame, and the selectors are not the host's. */
3:	movzwl	16(%rsp), %eax
	cmpl	%eax, ph_kernel_cs
	jne	2f
	movl	24(%rsp), %eax
	shrl	$9, %eax
	andl	$1, %eax
	movb	%al, GS(F_IRQ)
	cmpw	$0, GS(F_PENDING)
	jne	4f
5:	movq	$0x33, 16(%rsp)
	/* From here on the frame no longer shows that it is the kernel's. */
ph_iret_kernel_changed:
	movq	$0x2b, 40(%rsp)
	popq	%rax
ph_iretq_kernel:
	iretq
4:	testb	$IRET_LOOKS_AT, GS(F_FORCE)
	jnz	2f
	testb	%al, %al
	jz	5b
	cmpb	$0, GS(F_PENDING)
	je	5b
2:	popq	%rax
ph_iret_deliver:
	hlt
ph_iret_end:
END(thunk_cpu_iret)

/*
 * Return from a system call: rcx has the address, r11 the flags, and rsp is the user's. The user's
 * registers go to struct vcpu first, where a signal in the critical section finds them wherever it
 * hits. The flags are popped from a word there too, since nothing may be written below the user's
 * stack pointer.
 */
	.globl	ph_sysret_critical, ph_sysret_end
ENTRY(thunk_cpu_sysret)
	movq	%rax, GS(F_SCRATCH)
	movq	GS(F_VCPU), %rax
	movq	%rcx, V_USER_RIP(%rax)
	movq	%r11, V_USER_FLAGS(%rax)
	movq	%rsp, V_USER_RSP(%rax)
	movq	GS(F_SCRATCH), %rcx
	movq	%rcx, V_USER_RAX(%rax)
	movq	ph_user_selectors, %rcx
	movq	%rcx, V_USER_CS(%rax)
	movb	$1, GS(F_IRQ)
ph_sysret_critical:
	cmpw	$0, GS(F_PENDING)
	jne	1f
	testl	$0x40100, %r11d		/* TF would trap in here, and AC would act */
	jnz	1f
	leaq	V_SCRATCH(%rax), %rsp
	movq	V_USER_GS(%rax), %rcx
	wrgsbase %rcx
	pushq	%r11
	movq	V_USER_RIP(%rax), %rcx
	popfq
	movq	V_USER_RAX - V_SCRATCH(%rsp), %rax
	movq	V_USER_RSP - V_SCRATCH(%rsp), %rsp
	jmp	*%rcx
1:	hlt
ph_sysret_end:
END(thunk_cpu_sysret)

	.section .note.GNU-stack, "", @progbits
