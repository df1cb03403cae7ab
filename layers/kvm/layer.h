/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The KVM layer for common/header.S: assembler only. */
#ifndef KVM_LAYER_H
#define KVM_LAYER_H

#include "features.h"
#include "own.h"

/* The host's clock is in the page after the next call. */
#undef LAYER_FEATURES_TIME
#define LAYER_FEATURES_TIME 0

#define LAYER_NAME "kvm"
#define LAYER_PERCPU_SIZE KVM_PERCPU_SIZE

/* All sections but statistics and lines. Where there is no bridge, section bus finds none. */
#define LAYER_SECTIONS \
	(((1 << VMI_SECTION_COUNT) - 1) & ~(1 << VMI_SECTION_STATS | 1 << VMI_SECTION_LINE))

#define LAYER_ENTRY(s, n) KVM_ENTRY(s, n)

/*
 * As the native layer, except for calls that a kernel should only make if the host has the feature:
 * core.init completes their records (core.c). A flush of everything needs CR4, and to read it is an
 * exit: a kernel knows it, or has an instruction for the flush. An alarm is a deadline of the
 * counter, as a kernel's own timer is.
 */
#define LAYER_RELOC(S, s, N, n, num, class)						\
	.set layer_reloc, VMI_RELOC_NONE;						\
	.ifeqs STRING(VMI_NATIVE_##S##_##N), STRING_(VMI_NATIVE_##S##_##N);		\
	.set layer_reloc, VMI_RELOC_CALL;						\
	.endif;										\
	.if num >> 8 == VMI_SECTION_LOCK || num == VMI_CALL_APIC_SEND_IPI ||		\
	    num == VMI_CALL_APIC_EOI || num == VMI_CALL_MMU_FLUSH_TLB ||		\
	    num == VMI_CALL_TIME_READ || num == VMI_CALL_TIME_SET_ALARM;		\
	.set layer_reloc, VMI_RELOC_NONE;						\
	.endif

#endif
