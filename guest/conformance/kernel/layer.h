/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Finds a layer, loads it and patches this kernel's sites for it. */
#ifndef KERNEL_LAYER_H
#define KERNEL_LAYER_H

#include "calls.h"

/* The largest layer, including the memory that it wants after its image. */
#define LAYER_SPACE (1 * MIB)

extern const struct vmi_site vmi_sites_start[], vmi_sites_end[];

/* Looks for a layer and loads it. Until layer_init() only console output works. */
void layer_find(void);
/*
 * Calls core.init, then patches the sites. Falls back to native on an error. before() gets the
 * argument first, and may make calls of core.init that fail.
 */
void layer_init(void (*before)(const struct vmi_init *good));

#endif
