/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* A vCPU goes on and off. */
#ifndef PROCESS_START_H
#define PROCESS_START_H

#include "state/state.h"

/* STARTUP: a vCPU that is off starts in v->ap; one that is just going off starts then. Under no lock. */
void vcpu_startup(struct vcpu *v);
/* The calling vCPU goes off; on its host or signal stack. */
noreturn void vcpu_stop(struct vcpu *v);

#endif
