/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Functions and data that the boot code shares between C and assembler. */
#ifndef BOOT_BOOT_H
#define BOOT_BOOT_H

#include "../kernel/machine.h"

/* APIC IDs by vCPU. */
extern u32 pvh_apic_ids[MAX_VCPUS];

/* NULL when start_gpa is not the start information of PVH. */
const struct vmi_boot_info *pvh_boot_info(u64 start_gpa);

#endif
