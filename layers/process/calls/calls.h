/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Prototypes of the functions that implement the calls. */
#ifndef PROCESS_CALLS_H
#define PROCESS_CALLS_H

#include "state/state.h"

#define CALL_PROTOTYPE(S, s, N, n, num, class, since) CALL_PROTOTYPE_##class(s, n)
#define CALL_PROTOTYPE_SYSV(s, n) vmi_##s##_##n##_fn process_##s##_##n;
#define CALL_PROTOTYPE_PRIMITIVE(s, n) vmi_##s##_##n##_fn process_##s##_##n;
#define CALL_PROTOTYPE_JUMP(s, n)

VMI_FOR_EACH_CORE_CALL(CALL_PROTOTYPE)
VMI_FOR_EACH_CPU_CALL(CALL_PROTOTYPE)
VMI_FOR_EACH_MMU_CALL(CALL_PROTOTYPE)
VMI_FOR_EACH_APIC_CALL(CALL_PROTOTYPE)
VMI_FOR_EACH_SMP_CALL(CALL_PROTOTYPE)
VMI_FOR_EACH_TIME_CALL(CALL_PROTOTYPE)
VMI_FOR_EACH_LOCK_CALL(CALL_PROTOTYPE)
VMI_FOR_EACH_PATCH_CALL(CALL_PROTOTYPE)
VMI_FOR_EACH_LINE_CALL(CALL_PROTOTYPE)

#endif
