/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* An idle process returns memory to the host. */
#ifndef PROCESS_TRIM_H
#define PROCESS_TRIM_H

#include "state/state.h"

void mm_trim(void);

#endif
