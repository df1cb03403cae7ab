/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Modes of the guest that are no tests of a layer: hostile=MODE and idle=SECONDS on the command line. */
#ifndef TESTS_HOSTILE_H
#define TESTS_HOSTILE_H

#include "../kernel/types.h"

/* Does its worst to the process hypervisor, then comes back if it still can: false when there is no such mode. */
bool run_hostile(const char *mode);
/* All vCPUs halt. */
void run_idle(u64 seconds);

/* hostile_queue.c: a disk that goes on by itself; comes back, or stays. */
void feed(bool stay);

/* hostile_calls.c: the host's system calls, through the layer's instruction. */
u64 host_call_address(void);
u64 host_call(u64 number, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f);
void hostile_calls(u64 *seed, bool user);

/* hostile_signals.c: signals to other programs of the host. */
void hostile_signals(void);

/* hostile_attack.c: attacks by way of the zygote; false when there is no such mode. */
bool hostile_attack(const char *mode);
/* Wishes for so many more processes. */
void hostile_wish(u32 more);
/* The id of the parent of all processes, found by trying; 0: not found. */
u64 hostile_zygote(void);

/* hostile_random.c: all of it at random, on every vCPU. */
void hostile_random(void);

#endif
