/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Modes of the guest that are no tests of a layer: hostile=MODE and idle=SECONDS on the command line. */
#ifndef TESTS_HOSTILE_H
#define TESTS_HOSTILE_H

#include "../kernel/types.h"

/* Does its worst to the process hypervisor, then comes back if it still can: false when there is no such mode. */
bool run_hostile(const char *mode);
/* All vCPUs halt. */
void run_idle(u64 seconds);
/* "name=123" on the command line, or 0. */
u64 option_number(const char *name);

/* hostile_queue.c: a disk that goes on by itself; comes back, or stays. */
void feed(bool stay);

/* hostile_calls.c: the host's system calls, through the layer's instruction. */
u64 host_call(u64 number, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f);
void hostile_calls(u64 *seed, bool user);

/* hostile_signals.c: signals to other programs of the host. */
void hostile_signals(void);

#endif
