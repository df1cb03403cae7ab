/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Sites of calls of class sysv, each in a function of its own. */
#include "site.h"

	.section .text, "ax"

	/* set_cr3(cr3, context, generation): a call of class sysv with a site. */
	.globl	set_cr3
set_cr3:
	subq	$8, %rsp			/* aligned for a call */
	SITE_CALL(MMU_SET_CR3)
	addq	$8, %rsp
	ret

	.section .note.GNU-stack, "", @progbits
