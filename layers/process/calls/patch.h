/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Stubs of rewritten sites. */
#ifndef PROCESS_PATCH_H
#define PROCESS_PATCH_H

#include "state/state.h"

/*
 * sets the section's feature bit where the host gives what slots take. In the zygote: the header that the kernel
 * reads is each process's own.
 */
void patch_offer(void);

/* after a change of where system calls enter the kernel. */
void patch_entry_update(struct vcpu *v);

#endif
