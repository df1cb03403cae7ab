// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "start.h"
#include "calls.h"
#include "console.h"
#include "cpu.h"
#include "layer.h"
#include "machine.h"
#include "mm.h"
#include "paging.h"
#include "percpu.h"
#include "smp.h"
#include "trap.h"

/* The 8259 may still hold interrupts from the firmware. */
static void mask_8259(void)
{
	vmi.cpu_port_out(0x21, 1, 0xff);
	vmi.cpu_port_out(0xa1, 1, 0xff);
}

void kernel_start(const struct vmi_boot_info *info, const u32 *apic_ids,
		  void (*before_init)(const struct vmi_init *good))
{
	machine_init(info, apic_ids);
	mm_init();
	percpu_init();
	layer_find();
	/* Calls find their vCPU through the GS base, except this one. */
	vmi.cpu_set_gs_base((u64)percpus[0]);
	layer_init(before_init);
	cpu_init_tables(percpus[0]);
	cpu_load_tables(percpus[0]);
	reset_irq_handlers();
	cpu_init_registers();
	paging_init();
	mask_8259();
	apic_init();
	for (u32 i = 1; i < machine.vcpu_count; i++)
		cpu_init_tables(percpus[i]);
	smp_init();
	print("# vcpus: %u\n", machine.vcpus_online);
}
