/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Flushes what other vCPUs have loaded. */
#ifndef PROCESS_REMOTE_FLUSH_H
#define PROCESS_REMOTE_FLUSH_H

#include "state/state.h"

/* Flushes a part of a space for all vCPUs. generation: the space's new one. */
void space_flush(struct vcpu *v, u64 cr3, u64 context, u64 generation, u64 start, u64 end);
/* Flushes a part of the kernel's range for all vCPUs, in every space. */
void kernel_flush(struct vcpu *v, u64 start, u64 end);

#endif
