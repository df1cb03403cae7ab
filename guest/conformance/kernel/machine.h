/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The machine as the boot code found it, and the words of the command line. */
#ifndef KERNEL_MACHINE_H
#define KERNEL_MACHINE_H

#include "types.h"

#define MAX_VCPUS	64

struct machine {
	struct vmi_boot_info info;	/* a copy */
	const struct vmi_boot_info *info_at; /* the original */
	char command_line[1024];
	bool pvh;			/* bare metal: no hypervisor started this kernel */
	u32 vcpu_count;
	u32 vcpus_online;
	u32 apic_ids[MAX_VCPUS];
	u64 apic;			/* linear address of the APIC page, or 0 */
	u64 low_page;			/* conventional memory to start APs with, or 0 */
};

extern struct machine machine;

/* Bounds of the kernel image, from the linker script. */
extern char image_start[], image_end[];

/*
 * Fills in `machine`. apic_ids is NULL when a hypervisor started the kernel;
 * on bare metal it holds an APIC ID for each vCPU. Does not return when info is
 * not valid boot information.
 */
void machine_init(const struct vmi_boot_info *info, const u32 *apic_ids);

/*
 * Finds "name=value" or a bare "name" on the command line. Returns buffer, which
 * holds the value ("" for a bare word), or NULL when the name is absent.
 */
const char *option(const char *name, char *buffer, size_t size);
/* The decimal value of "name=123", 0 when absent. */
u64 option_number(const char *name);

#endif
