/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Calls of core.init that must fail. They are possible only before the one that succeeds. */
#ifndef TESTS_CORE_INIT_H
#define TESTS_CORE_INIT_H

#include "../kernel/types.h"

/* Makes them, each with one field of good changed, and notes the results for core.init.errors. */
void try_core_init(const struct vmi_init *good);

#endif
