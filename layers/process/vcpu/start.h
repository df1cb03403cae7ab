/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Starts and stops vCPUs. */
#ifndef PROCESS_START_H
#define PROCESS_START_H

#include "state/state.h"

/*
 * STARTUP: starts a vCPU that is off in the state v->ap. One that is about to stop starts
 * afterwards. The caller must hold no lock.
 */
void vcpu_startup(struct vcpu *v);
/* Stops the calling vCPU, on its host or signal stack. */
noreturn void vcpu_stop(struct vcpu *v);

#endif
