/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * A layer for bare metal, written as docs/writing-a-layer.md says. A kernel must not assume the
 * properties of the native layer that this layer lacks. It has records of each kind, inline code
 * that it completes in core.init, large layer data, a large image, addresses that it keeps, and no
 * section that a kernel can do without. It counts what a kernel uses, and a test can have it steal
 * time and move the wall clock.
 */
#ifndef OUTSIDER_LAYER_H
#define OUTSIDER_LAYER_H

#include "features.h"
#include "outsider.h"

/* core.init takes it back where there are other processors, which it could not flush. */
#undef LAYER_FEATURES_MMU
#define LAYER_FEATURES_MMU (VMI_MMU_USER_ISOLATION | VMI_MMU_FLUSH_SPACE)

#define LAYER_NAME "outsider"
#define LAYER_PERCPU_SIZE OUTSIDER_PERCPU_SIZE
/* Between the halves, with four levels of page tables and with five. */
#define LAYER_RESERVE_START 0x0100000000000000
#define LAYER_RESERVE_END 0x0100000040000000

/* The layer has no sections lock, patch, stats, line and bus. */
#define LAYER_SECTIONS								\
	(1 << VMI_SECTION_CORE | 1 << VMI_SECTION_CPU | 1 << VMI_SECTION_MMU |	\
	 1 << VMI_SECTION_APIC | 1 << VMI_SECTION_SMP | 1 << VMI_SECTION_TIME)

/* A call of this layer is OUTSIDER_..., the others are the native layer's. */
#define LAYER_ENTRY(s, n) outsider_##s##_##n
#define LAYER_INLINE(s, n) inline_##s##_##n

#define OUTSIDER_RECORD(call, record)			\
	.if outsider_number == call;			\
	.set layer_reloc, record;			\
	.set layer_inline, record == VMI_RELOC_INLINE;	\
	.endif;

/* Calls without a native form are made, those with one that are not named here stay. */
#define LAYER_RELOC(S, s, N, n, num, class)						\
	.set outsider_number, num;							\
	.set layer_reloc, VMI_RELOC_NONE;						\
	.ifeqs STRING(VMI_NATIVE_##S##_##N), STRING_(VMI_NATIVE_##S##_##N);		\
	.set layer_reloc, VMI_RELOC_CALL;						\
	.endif;										\
	OUTSIDER_RECORD(VMI_CALL_CPU_IRQ_DISABLE, VMI_RELOC_INLINE)			\
	OUTSIDER_RECORD(VMI_CALL_CPU_IRQ_ENABLE, VMI_RELOC_INLINE)			\
	OUTSIDER_RECORD(VMI_CALL_CPU_IRQ_FLAG, VMI_RELOC_INLINE)			\
	OUTSIDER_RECORD(VMI_CALL_CPU_GET_CR2, VMI_RELOC_INLINE)				\
	OUTSIDER_RECORD(VMI_CALL_CPU_SET_CR4, VMI_RELOC_INLINE)				\
	OUTSIDER_RECORD(VMI_CALL_MMU_INVALIDATE_PAGE, VMI_RELOC_INLINE)			\
	OUTSIDER_RECORD(VMI_CALL_MMU_GET_CR3, VMI_RELOC_INLINE)				\
	OUTSIDER_RECORD(VMI_CALL_MMU_SET_CR3, VMI_RELOC_CALL)				\
	OUTSIDER_RECORD(VMI_CALL_CPU_IO_DELAY, VMI_RELOC_NOP)				\
	OUTSIDER_RECORD(VMI_CALL_CPU_WBINVD, VMI_RELOC_NOP)

#endif
