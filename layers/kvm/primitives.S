/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
#include "asm.h"
#include "own.h"

	.text
/*
 * Invariant of primitives: every register but rax is preserved. Any GS base: the flag is the
 * machine's.
 */
CALL_ENTRY_POINT(kvm_cpu_io_delay)
	cmpb	$0, kvm_no_io_delay(%rip)
	jne	1f
	outb	%al, $0x80
1:	ret
END(kvm_cpu_io_delay)

/*
 * Says that the vCPU is halted while it is. The interrupt that ends the halt comes before its end;
 * the first call in its handler says the same (kvm_awake). Interrupts are off until the halt, so
 * none comes between the store and that. Invariant: all registers are preserved; the kernel's GS
 * base.
 */
CALL_ENTRY_POINT(kvm_cpu_halt)
	cmpb	$0, kvm_follow(%rip)
	je	1f
	cli
	pushq	%rax
	movq	kvm_data_at(%rip), %rax
	movq	%gs:(%rax), %rax
#if !FAULT(RUN_STATE_NEVER_HALTED)
	movl	$VMI_RUN_HALTED, KVM_OFF_RUN_STATE(%rax)
#endif
	sti
	hlt
	movl	$VMI_RUN_RUNNING, KVM_OFF_RUN_STATE(%rax)
	popq	%rax
	ret
1:	sti
	hlt
	ret
END(kvm_cpu_halt)

	.section .note.GNU-stack, "", @progbits
