/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * The section .thunks: entry points of the calls, and the ways back into the guest.
 *
 * The section is mapped from the shared area in every process, because core.init edits it:
 * edit_thunks() in calls/core.c replaces each displacement GS(field) by the kernel's. While this
 * code runs, the GS base is the kernel's, except in the last instructions of a return to user mode.
 *
 * A signal that finds the instruction pointer in the layer does not enter the kernel. It sets
 * F_PENDING. So every way back into guest code ends in a critical section: a test of F_PENDING and
 * the few instructions after it. A signal that hits one completes the return in its frame:
 * entry/fixup.c knows the state of registers and stack at each instruction. The test itself leads
 * to a hlt, whose signal does the same. So nothing is lost in between. (hlt is used because an
 * invalid opcode costs three times as much under some hypervisors of the host.)
 *
 * A call that returns to the kernel while an interrupt is pending needs no signal: ph_deliver
 * enters the interrupt's gate. Each interrupt that ends a halt takes this way.
 */
#include "common/asm.h"
#include "state/offsets.h"

	.section .thunks.short, "awx", @progbits

/*
 * The code up to ph_layer_code counts as the guest's own: at no instruction is anything half done
 * that an interrupt must not see, so signals are delivered here as anywhere in the guest.
 *
 * The flag is the kernel's own memory, and each store to it is one instruction. So a kernel that
 * moves to another vCPU between two of them still does the right thing.
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

/*
 * Critical section: all registers are as the caller gets them, and the return address is on top of
 * the stack.
 */
	.globl	ph_layer_code, ph_tail, ph_tail_signal, ph_tail_end
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
	jne	4f
3:	ret
ph_tail_signal:
2:	hlt
ph_tail_end:
4:	jmp	ph_deliver

	.section .note.GNU-stack, "", @progbits
