/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The program's start. */
#include "common/asm.h"

	.text
/* The host enters here with nothing that we want on its stack, which does for the first two host calls. */
ENTRY(_start)
	xorl	%ebp, %ebp
	call	zygote_stack
	movq	%rax, %rsp
	call	zygote_main
	ud2
END(_start)

	.section .note.GNU-stack, "", @progbits
