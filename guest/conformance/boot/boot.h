/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* What the boot paths hand to the kernel. */
#ifndef BOOT_BOOT_H
#define BOOT_BOOT_H

#include "../kernel/types.h"

#define MAX_VCPUS	64

extern char image_start[], image_end[];

/* APIC ids by vCPU; all zero when the boot was not PVH. */
extern u32 pvh_apic_ids[MAX_VCPUS];

const struct vmi_boot_info *pvh_boot_info(u64 start_gpa);
noreturn void kernel_main(const struct vmi_boot_info *info, bool pvh);

#endif
