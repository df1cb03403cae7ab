/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The end of a machine that cannot go on. */
#ifndef PROCESS_FATAL_H
#define PROCESS_FATAL_H

#include "state/state.h"

/* Ends the machine with a message, which the monitor prints. */
noreturn void fatal(const char *message, u64 value);
noreturn void fatal_at(const char *message, u64 value, u64 rip);

#endif
