/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The program's start. */
#include "common/asm.h"

	.text
/* The host's stack is only used for the first two host calls. Nothing on it is needed. */
ENTRY(_start)
	xorl	%ebp, %ebp
	call	zygote_stack
	movq	%rax, %rsp
	call	zygote_main
	ud2
END(_start)

	.section .note.GNU-stack, "", @progbits
