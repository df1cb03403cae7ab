/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Whether another vCPU has a processor. */
#ifndef PROCESS_LOOK_H
#define PROCESS_LOOK_H

#include "state/state.h"

/*
 * Whether a vCPU wants to run and has no processor, as far as me, the calling vCPU, can know. Makes
 * host calls if the last answer is old, so not in an NMI.
 */
bool look_preempted(struct vcpu *me, struct vcpu *v);
/* Whether both are bound to the same host CPU. */
bool look_same_cpu(const struct vcpu *me, const struct vcpu *v);
/* The CPU time of its thread, ns, if that is in the calling process. Makes a host call. */
bool look_cpu_ns(const struct vcpu *v, u64 *ns);
/* Answers look_preempted(v) in another process, as that vCPU's parked thread. */
void look_answer(struct vcpu *v);

#endif
