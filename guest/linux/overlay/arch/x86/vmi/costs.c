// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the layer says of its costs decides whether the kernel does more at once, or earlier, to
 * have fewer faults, flushes and traps. Without a word of it the kernel does as on a processor.
 *
 * Each is a parameter that the command line or the administrator can change. The thresholds are in
 * asm/vmi_cost.h.
 */
#include <linux/prefault.h>
#include <asm/vmi.h>
#include <asm/vmi_cost.h>
#include "usertext/policy.h"
#include "vmi.h"

struct vmi_costs vmi_costs __ro_after_init;

/* Before the command line is read. */
void __init vmi_init_costs(void)
{
	const struct vmi_costs *c = &vmi_costs;
	bool faults, fork;

	if (!vmi.core_costs || vmi.core_costs(&vmi_costs, sizeof(vmi_costs)))
		return;
	faults = c->page_fault >= VMI_COSTLY_FAULT;
	fork = 2 * (u64)c->page_fault + c->flush >= VMI_COSTLY_SHARE;
	vmi_exec_fills = faults;
	vmi_exec_expects = faults;
	vmi_populate = faults;
	vmi_copy_ahead = faults;
	/* Ticks are few because each is costly, so what waits for some of them waits long. */
	vmi_expedites = faults;
#ifdef CONFIG_SMP
	/* Where a fault is one of a host, a vCPU that sleeps is a thread of the host. */
	vmi_wakes_here = faults;
#endif
	vmi_fork_eager = fork;
	vmi_neighbours = c->run_pages >= VMI_USEFUL_RUN;
#ifdef CONFIG_VMI_USER_TEXT
	vmi_sites_enabled = c->syscall_trap >= VMI_COSTLY_TRAP;
	vmi_texts_enabled = c->syscall_trap >= VMI_COSTLY_TRAP || c->cpuid >= VMI_COSTLY_CPUID;
	vmi_cpuid_enabled = c->cpuid >= VMI_COSTLY_CPUID;
#endif
}
