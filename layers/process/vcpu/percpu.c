// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* The kernel's per-CPU data. */
#include "vcpu/percpu.h"
#include "state/state.h"
#include "vcpu/irq.h"

void percpu_update(struct vcpu *v)
{
	struct vmi_percpu *old = v->percpu;
	u64 pointer = READ_ONCE(((const u64 *)to_pointer(shared->percpu_table))[v->number]);

	if (pointer == (u64)old || !percpu_good(pointer))
		return;
	if (old)
		__builtin_memcpy(((struct vmi_percpu *)to_pointer(pointer))->fast, old->fast,
				 sizeof(old->fast));
	barrier();
	v->percpu = to_pointer(pointer);
	barrier();
	/* A signal may have marked the old place since it was copied. */
	irq_mark(v);
}
