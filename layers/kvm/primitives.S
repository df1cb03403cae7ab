/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
#include "asm.h"

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

	.section .note.GNU-stack, "", @progbits
