/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The native layer for common/header.S: assembler only. */
#ifndef NATIVE_LAYER_H
#define NATIVE_LAYER_H

#include "percpu_size.h"

#define LAYER_NAME "native"
#define LAYER_PERCPU_SIZE NATIVE_PERCPU_SIZE

/* All sections but statistics. */
#define LAYER_SECTIONS (((1 << VMI_SECTION_COUNT) - 1) & ~(1 << VMI_SECTION_STATS))
#define LAYER_FEATURES_CORE 0
#define LAYER_FEATURES_CPU 0
#define LAYER_FEATURES_MMU 0
#define LAYER_FEATURES_APIC 0
#define LAYER_FEATURES_SMP 0
#define LAYER_FEATURES_TIME 0
#define LAYER_FEATURES_LOCK 0
#define LAYER_FEATURES_PATCH 0
#define LAYER_FEATURES_STATS 0

#define LAYER_ENTRY(s, n) native_##s##_##n

/*
 * A call with a native form keeps it. The name VMI_NATIVE_... of a call that has none does
 * not expand: then STRING, which expands, and STRING_, which does not, give the same.
 */
#define LAYER_RELOC(S, s, N, n, num, class)						\
	.set layer_reloc, VMI_RELOC_NONE;						\
	.ifeqs STRING(VMI_NATIVE_##S##_##N), STRING_(VMI_NATIVE_##S##_##N);		\
	.set layer_reloc, VMI_RELOC_CALL;						\
	.endif

#endif
