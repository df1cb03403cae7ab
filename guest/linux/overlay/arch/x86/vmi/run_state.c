// SPDX-License-Identifier: GPL-2.0-only
/*
 * The run states of all vCPUs, which the layer keeps in memory for every vCPU to read.
 * /sys/kernel/debug/vmi/vcpus has a line for each CPU.
 */
#include <linux/array_size.h>
#include <linux/cpumask.h>
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include "vmi.h"

static const struct vmi_run_state *states[NR_CPUS] __read_mostly;

/*
 * The layer knows a vCPU from the time at which it got its layer data. Its address then never
 * changes, so that several CPUs may find it at once.
 */
const struct vmi_run_state *vmi_run_state(unsigned int cpu)
{
	const struct vmi_run_state *state = READ_ONCE(states[cpu]);

	if (likely(state) || !vmi.lock_run_state ||
	    !(vmi_layer_features(VMI_SECTION_LOCK) & VMI_LOCK_RUN_STATES))
		return state;
	state = (const struct vmi_run_state *)vmi.lock_run_state(cpu);
	WRITE_ONCE(states[cpu], state);
	return state;
}

static int vcpus_show(struct seq_file *file, void *unused)
{
	static const char *const names[] = {
		[VMI_RUN_OFF] = "off",
		[VMI_RUN_RUNNING] = "running",
		[VMI_RUN_HALTED] = "halted",
		[VMI_RUN_READY] = "ready",
	};
	unsigned int cpu;

	for_each_possible_cpu(cpu) {
		const struct vmi_run_state *state = vmi_run_state(cpu);
		u32 run;

		if (!state)
			continue;
		run = READ_ONCE(state->state);
		seq_printf(file, "cpu%u %s preempted %u stolen_ns %llu\n", cpu,
			   run < ARRAY_SIZE(names) ? names[run] : "?",
			   READ_ONCE(state->preempted), READ_ONCE(state->stolen));
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(vcpus);

static int __init run_state_init(void)
{
	if (vmi_run_state(0))
		debugfs_create_file("vcpus", 0444, vmi_debugfs(), NULL, &vcpus_fops);
	return 0;
}
late_initcall(run_state_init);
