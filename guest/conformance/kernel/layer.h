/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The layer in use, or the built-in native implementation where there is none. */
#ifndef KERNEL_LAYER_H
#define KERNEL_LAYER_H

#include "types.h"
#include "../../common/vmi_rom.h"

/* The entry points, by name: vmi.time_read(&times). Absent calls are NULL. */
struct vmi_calls {
#define X(SECTION, section, CALL, name, number, CLASS, since) \
	vmi_##section##_##name##_fn *section##_##name;
	VMI_FOR_EACH_CALL(X)
#undef X
};

extern struct vmi_calls vmi;

/* The largest ROM with what it wants behind its image. */
#define LAYER_SPACE (1 * MIB)

struct layer {
	bool present;		/* false: native instructions, built-in calls */
	char name[17];		/* "none" without a layer */
	struct vmi_rom rom;
	const u8 *base;		/* linear address of the image that runs */
	u32 sites, patched;	/* annotated sites, and how many were changed */
};

extern struct layer layer;

extern const struct vmi_site vmi_sites_start[], vmi_sites_end[];

/* Looks for a layer and loads it; until layer_init() it only writes to the console. */
void layer_find(void);
/* core.init, then the sites. Falls back to native on an error. */
void layer_init(void);

/* The entry point of a call, NULL where it is absent. */
void *layer_entry(u32 call);
/* Feature bits of a section; 0 where it is absent. */
u32 layer_features(u32 section);
bool layer_offers_section(u32 section);
/* Where to go on after a fault at rip, if that is the layer's affair; else 0. */
u64 layer_fault_fixup(u64 rip);
/* "section.call" */
const char *call_name(u32 call);

#endif
