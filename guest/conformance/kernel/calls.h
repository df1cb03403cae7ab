/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * The table of VMI entry points, and the layer that they belong to. Without a
 * layer, calls go to the native layer's code, which is linked into this kernel.
 */
#ifndef KERNEL_CALLS_H
#define KERNEL_CALLS_H

#include "types.h"
#include "../../common/vmi_rom.h"

/* Entry points by name: vmi.time_read(&times). A call that is absent is NULL. */
struct vmi_calls {
#define X(SECTION, section, CALL, name, number, CLASS, since) \
	vmi_##section##_##name##_fn *section##_##name;
	VMI_FOR_EACH_CALL(X)
#undef X
};

extern struct vmi_calls vmi;

struct layer {
	bool present;		/* false: native instructions and built-in calls */
	char name[17];		/* "none" without a layer */
	struct vmi_rom rom;
	const u8 *base;		/* linear address of the layer's code */
	u32 sites, patched;	/* annotated sites, and how many were changed */
};

extern struct layer layer;

/* Fills `vmi` from `layer`. Called again after either of the two changes. */
void calls_fill(void);

/* The entry point of a call, NULL when it is absent. */
void *layer_entry(u32 call);
/* The feature bits of a section, 0 when it is absent. */
u32 layer_features(u32 section);
bool layer_offers_section(u32 section);
/* Where to continue after a fault at rip in the layer, 0 if the layer has no fixup. */
u64 layer_fault_fixup(u64 rip);
/* Whether the layer was made for an API version before 1.minor. */
bool layer_older_than(u32 minor);
/* "section.call" */
const char *call_name(u32 call);

#endif
