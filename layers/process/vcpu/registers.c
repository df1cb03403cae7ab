// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Registers that go along with a hand-over. */
#include "vcpu/registers.h"
#include "common/faults.h"
#include "state/cpu.h"
#include "state/state.h"

/*
 * State components that are not in their initial state. Only valid if shared->xgetbv_in_use is set.
 */
static u64 components_in_use(void)
{
	u32 low, high;

	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
	return ((u64)high << 32 | low) & shared->components;
}

/*
 * The vector registers go along unless the kernel says that it has saved them (vectors is false).
 * If neither the kernel nor its program uses them, they are in their initial state and only MXCSR
 * remains, which belongs to no component; that saves a tenth of a switch. Components of features
 * that are hidden from the kernel stay with each thread: the host keeps PKRU out of its initial
 * state, for example.
 */
void state_save(struct vcpu *v, bool vectors)
{
	v->ds_selector = read_ds_selector();
	v->es_selector = read_es_selector();
	v->fs_selector = read_fs_selector();
	v->gs_selector = read_gs_selector();
	v->fs_base = rdfsbase();
	v->vectors = vectors;
	if (!vectors)
		return;
	v->in_use = shared->xgetbv_in_use ? components_in_use() : 1;
	__asm__ volatile("stmxcsr %0" : "=m"(v->mxcsr));
	if (!v->in_use)
		return;
	/*
	 * Invariant: the area is 64-byte aligned and has 16 KiB, more than any x86 processor needs.
	 */
	__asm__ volatile("xsavec64 %0" : "=m"(v->xsave) : "a"(shared->components),
			 "d"(shared->components >> 32) : "memory");
}

void state_load(struct vcpu *v)
{
	/* XSTATE_BV has no component, so all become initial. MXCSR must be a legal value. */
	static const struct {
		u32 legacy[128];
		u64 header[8];
	} initial __attribute__((aligned(64))) = { .legacy = { [6] = 0x1f80 } };
	u64 components = shared->components;
	u32 mxcsr;

	if (!v->vectors)
		return;
	if (v->in_use)
		__asm__ volatile("xrstor64 %0" : : "m"(v->xsave), "a"(components),
				 "d"(components >> 32) : "memory");
	else if (components_in_use())
		__asm__ volatile("xrstor64 %0" : : "m"(initial), "a"(components),
				 "d"(components >> 32) : "memory");
	/* Loading MXCSR counts as a use of the SSE component. */
	__asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
	if (mxcsr != v->mxcsr)
		__asm__ volatile("ldmxcsr %0" : : "m"(v->mxcsr));
}

/*
 * A kernel reads the selectors of the program that it leaves after it has loaded the space of the
 * next.
 */
void segments_load(struct vcpu *v)
{
	if (read_ds_selector() != v->ds_selector && !FAULT(SWITCH_KEEPS_SEGMENTS))
		load_ds_selector(v->ds_selector);
	if (read_es_selector() != v->es_selector && !FAULT(SWITCH_KEEPS_SEGMENTS))
		load_es_selector(v->es_selector);
	if (read_fs_selector() != v->fs_selector)
		load_fs_selector(v->fs_selector);
	if (read_gs_selector() != v->gs_selector)
		load_gs_selector(v->gs_selector);
	wrfsbase(v->fs_base);
	wrgsbase(v->kernel_gs);
}
