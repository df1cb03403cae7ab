// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* The data of this process. */
#include "state/state.h"

struct self self;
struct vcpu *ph_vcpu_table[PHV_MAX_VCPUS];
u64 ph_any_pending;
