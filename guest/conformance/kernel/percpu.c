// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "percpu.h"
#include "mm.h"

struct percpu *percpus[MAX_VCPUS];
struct vmi_percpu *vmi_percpus[MAX_VCPUS + 1];

void percpu_init(void)
{
	u32 i;

	for (i = 0; i < machine.vcpu_count; i++) {
		struct percpu *cpu = alloc_contiguous(sizeof(*cpu));

		cpu->self = cpu;
		cpu->vcpu = i;
		cpu->vmi.vcpu = i;
		cpu->vmi.apic_id = machine.apic_ids[i];
		cpu->idt = alloc_contiguous(PAGE_SIZE);
		cpu->stack = alloc_contiguous(KERNEL_STACK_SIZE);
		percpus[i] = cpu;
		vmi_percpus[i] = &cpu->vmi;
	}
}
