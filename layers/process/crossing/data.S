/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Data at the start of the section that core.init edits. */
#include "common/asm.h"

	.section .thunks.data, "awx", @progbits

	/*
	 * Displacement of struct vmi_percpu from the GS base, for C code. core.init stores it; it
	 * has no pattern.
	 */
	.globl	gs_displacement
gs_displacement:
	.quad	0
	/* vmi_init.kernel_cs */
	.globl	ph_kernel_cs
ph_kernel_cs:
	.quad	0
	/* vmi_init.user_cs, user_ss */
	.globl	ph_user_selectors
ph_user_selectors:
	.quad	0

	/* What ph_deliver calls; core.init stores it. */
	.globl	ph_deliver_with
ph_deliver_with:
	.quad	0

	.section .note.GNU-stack, "", @progbits
