/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* A new process. */
#ifndef PROCESS_CHILD_H
#define PROCESS_CHILD_H

#include "state/state.h"

/* the descriptor that tells system calls of user code which vCPU this is. Works where 32-bit calls do. */
bool thread_descriptor(u32 number);
/* what a new process does, with every signal blocked until its filter stands. */
noreturn void child_main(u32 index);

#endif
