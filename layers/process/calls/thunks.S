/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* An entry point for each call that is not in crossing/. */
#include "common/asm.h"
#include "state/offsets.h"

	.section .thunks, "awx", @progbits

#define THUNK(S, s, N, n, num, class, since) THUNK_##class(s, n, num)

/*
 * A function of C. Functions that may be called with any GS base, or before core.init, run on the
 * guest's stack. They use little of it and hold nothing that an interrupt must not see.
 */
#define THUNK_SYSV(s, n, num)					\
	.if num >> 8 != VMI_SECTION_STATS && num != VMI_CALL_CPU_STOP;	\
	ENTRY(thunk_##s##_##n);					\
	movl $process_##s##_##n, %eax;				\
	.if num == VMI_CALL_CORE_PROBE || num == VMI_CALL_CORE_INIT ||		\
		num == VMI_CALL_CORE_VERSION || num == VMI_CALL_CORE_CONSOLE_WRITE ||	\
		num == VMI_CALL_CPU_SET_GS_BASE;		\
	jmp ph_any_gs;						\
	.else;							\
	jmp ph_sysv;						\
	.endif;							\
	END(thunk_##s##_##n);					\
	.endif;

/* Written by hand in crossing/, or a function of C that must preserve all registers. */
#define THUNK_PRIMITIVE(s, n, num)				\
	.if num > VMI_CALL_CPU_IRQ_SAVE && num != VMI_CALL_CPU_PAUSE &&		\
		num != VMI_CALL_CPU_READ_TSC && num != VMI_CALL_CPU_SWAPGS &&	\
		num != VMI_CALL_CPU_IO_DELAY && num != VMI_CALL_CPU_WBINVD;	\
	ENTRY(thunk_##s##_##n);					\
	movl $process_##s##_##n, %eax;				\
	jmp ph_primitive;					\
	END(thunk_##s##_##n);					\
	.endif;

#define THUNK_JUMP(s, n, num)

	VMI_FOR_EACH_CALL(THUNK)

	.section .note.GNU-stack, "", @progbits
