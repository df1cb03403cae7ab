/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
#ifndef LAYER_ADDRESS_H
#define LAYER_ADDRESS_H

#include "types.h"

/* The guest-physical address of something that is mapped. */
u64 linear_gpa(const void *pointer, u64 direct_map, u64 direct_map_size);

#endif
