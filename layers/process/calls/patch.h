/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Stubs of replaced sites. */
#ifndef PROCESS_PATCH_H
#define PROCESS_PATCH_H

#include "state/state.h"

/*
 * Sets the section's feature bits if the host has what stubs need. Called in the zygote, since each
 * process has its own copy of the header that the kernel reads.
 */
void patch_offer(void);

/* Updates F_LSTAR after a change of where system calls enter the kernel. */
void patch_entry_update(struct vcpu *v);

#endif
