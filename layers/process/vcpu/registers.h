/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Registers that go along with a hand-over. */
#ifndef PROCESS_REGISTERS_H
#define PROCESS_REGISTERS_H

#include "state/state.h"

/* Saves the owner's registers to the vCPU's memory. vectors: the vector registers too. */
void state_save(struct vcpu *v, bool vectors);
/* Loads them. */
void state_load(struct vcpu *v);
void segments_load(struct vcpu *v);

#endif
