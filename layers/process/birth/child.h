/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* A new process. */
#ifndef PROCESS_CHILD_H
#define PROCESS_CHILD_H

#include "state/state.h"

/*
 * Gives the thread the descriptor by which system calls from stubs find the vCPU that it serves.
 * Works only where 32-bit calls do.
 */
bool thread_descriptor(u32 number);
/*
 * Turns a fork of the zygote into an address-space process. Every signal is blocked until the
 * filter is installed.
 */
noreturn void child_main(u32 index);

#endif
