/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The kernel's per-CPU data. */
#ifndef PROCESS_PERCPU_H
#define PROCESS_PERCPU_H

#include "state/state.h"

/* Looks up where the kernel keeps a vCPU's per-CPU data now, and moves the layer's fields there. */
void percpu_update(struct vcpu *v);

#endif
