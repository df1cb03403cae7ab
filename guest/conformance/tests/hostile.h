/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Modes of the guest that do not test a layer: hostile=MODE and idle=SECONDS on the command line.
 */
#ifndef TESTS_HOSTILE_H
#define TESTS_HOSTILE_H

#include "../kernel/types.h"

/*
 * Attacks the process hypervisor. Returns if the machine survives; false if there is no such mode.
 */
bool run_hostile(const char *mode);
/* All vCPUs halt for this time. */
void run_idle(u64 seconds);

/* hostile_queue.c: a disk queue that feeds itself. Returns, or with `stay` never does. */
void feed(bool stay);
/* In that file, too: breaks the rules of a queue repeatedly. */
void break_queues(void);

/* hostile_calls.c: host calls, through the layer's instruction. */
u64 host_call_address(void);
u64 host_call(u64 number, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f);
void hostile_calls(u64 *seed, bool user);

/* hostile_signals.c: signals to other programs of the host. */
void hostile_signals(void);

/* hostile_attack.c: attacks through the zygote. False if there is no such mode. */
bool hostile_attack(const char *mode);
/* Asks the zygote for this many more processes. */
void hostile_wish(u32 more);
/* Guesses the process id of the zygote by trial, 0 if it is not found. */
u64 hostile_zygote(void);

/* hostile_random.c: all attacks at random, on every vCPU. */
void hostile_random(void);

#endif
