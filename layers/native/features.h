/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Feature bits of the sections, for their table in the ROM and for core.version. */
#ifndef NATIVE_FEATURES_H
#define NATIVE_FEATURES_H

#include <paravane/vmi.h>

#define LAYER_FEATURES_CORE 0
/* The processor itself executes everything. */
#define LAYER_FEATURES_CPU (VMI_CPU_TASK_SWITCHED | VMI_CPU_SEGMENTS | VMI_CPU_XCR)
/* Not VMI_MMU_FLUSH_SPACE: interrupts belong to the kernel. */
#define LAYER_FEATURES_MMU VMI_MMU_USER_ISOLATION
#define LAYER_FEATURES_APIC 0
#define LAYER_FEATURES_SMP 0
/* Real time is the counter: no page is ever late. */
#define LAYER_FEATURES_TIME VMI_TIME_PAGE_KEPT
#define LAYER_FEATURES_LOCK 0
#define LAYER_FEATURES_PATCH 0
#define LAYER_FEATURES_STATS 0
#define LAYER_FEATURES_LINE 0
#define LAYER_FEATURES_BUS 0

#endif
