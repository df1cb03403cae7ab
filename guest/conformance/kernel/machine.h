/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The machine as it was found, and its end. */
#ifndef KERNEL_MACHINE_H
#define KERNEL_MACHINE_H

#include "types.h"
#include "../boot/boot.h"

struct machine {
	struct vmi_boot_info info;	/* a copy: the original may be anywhere */
	char command_line[1024];
	bool pvh;			/* bare metal: no hypervisor started us */
	u32 vcpu_count;
	u32 vcpus_online;
	u32 apic_ids[MAX_VCPUS];
	u64 apic;			/* linear address of the APIC page, or 0 */
	u64 low_page;			/* for starting APs, or 0 */
};

extern struct machine machine;

/* The value of "name=value" on the command line, or of a bare word ""; NULL. */
const char *option(const char *name, char *buffer, size_t size);

/* Ends the machine: passed or not. */
noreturn void finish(bool passed);
/* For what the kernel cannot go on after. */
noreturn void panic(const char *fmt, ...) printf_like(1, 2);

#endif
