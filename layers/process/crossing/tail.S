/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Entry points of the calls, and the ways back into the guest.
 *
 * The section is mapped from the shared area in every process, because core.init edits it: each
 * displacement GS(field) becomes the kernel's (edit_thunks in core.c). While one of these runs the GS
 * base is the kernel's, but for the last instructions of a return to user mode.
 *
 * Interrupts and this code. A signal that finds the instruction pointer in the layer never
 * enters the kernel; it notes F_PENDING. So every path back into guest code ends in a *window*: a test
 * of F_PENDING and the few instructions behind it. A signal that hits a window completes the return by
 * itself (fixup.c knows each window's state of registers and stack), and so does the one of the hlt that a
 * window ends in when the test says so. Nothing is lost in between. (Why hlt: under some hypervisors of the
 * host an invalid opcode costs three times as much.)
 */
#include "common/asm.h"
#include "state/offsets.h"

	.section .thunks.short, "awx", @progbits

/*
 * Up to ph_layer_code it is as good as the guest's own code: no instruction has anything half done that an interrupt
 * must not see, so signals are delivered here as everywhere in the guest.
 *
 * Two and a half stores: the flag is the kernel's own memory, one instruction each, so that a kernel
 * that moves to another vCPU between two of them still does the right thing.
 */
ENTRY(thunk_cpu_pause)
	pause
	ret
END(thunk_cpu_pause)

ENTRY(thunk_cpu_read_tsc)
	VMI_NATIVE_CPU_READ_TSC
	ret
END(thunk_cpu_read_tsc)

ENTRY(thunk_cpu_swapgs)
ENTRY(thunk_cpu_io_delay)
ENTRY(thunk_cpu_wbinvd)
	ret
END(thunk_cpu_wbinvd)
END(thunk_cpu_io_delay)
END(thunk_cpu_swapgs)

ENTRY(thunk_cpu_irq_disable)
	movb	$0, GS(F_IRQ)
	ret
END(thunk_cpu_irq_disable)

ENTRY(thunk_cpu_irq_flag)
	movzbl	GS(F_IRQ), %eax
	shll	$9, %eax
	ret
END(thunk_cpu_irq_flag)

ENTRY(thunk_cpu_irq_save)
	movzbl	GS(F_IRQ), %eax
	movb	$0, GS(F_IRQ)
	shll	$9, %eax
	ret
END(thunk_cpu_irq_save)

ENTRY(thunk_cpu_irq_restore)
	testl	$VMI_FLAGS_IF, %edi
	jnz	thunk_cpu_irq_enable
	movb	$0, GS(F_IRQ)
	ret
END(thunk_cpu_irq_restore)

ENTRY(thunk_cpu_irq_enable)
	movb	$1, GS(F_IRQ)
END(thunk_cpu_irq_enable)

	/* fall through */

/* Window: everything is as the caller gets it, the return address on top of the stack. */
	.globl	ph_layer_code, ph_tail, ph_tail_end
ph_layer_code:
ph_tail:
	cmpw	$0, GS(F_PENDING)
	jne	1f
	ret
1:	testb	$FORCE_EVENT, GS(F_FORCE)
	jnz	2f
	cmpb	$0, GS(F_PENDING)
	je	3f
	cmpb	$0, GS(F_IRQ)
	jne	2f
3:	ret
2:	hlt
ph_tail_end:

	.section .note.GNU-stack, "", @progbits
