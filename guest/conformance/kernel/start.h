/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Brings up the machine. */
#ifndef KERNEL_START_H
#define KERNEL_START_H

#include "types.h"

/*
 * Everything from the boot information to running vCPUs: layer, descriptor tables,
 * page tables, APIC. The arguments are those of machine_init() and of layer_init().
 */
void kernel_start(const struct vmi_boot_info *info, const u32 *apic_ids,
		  void (*before_init)(const struct vmi_init *good));

#endif
