/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The end of the machine. */
#ifndef PROCESS_FATAL_H
#define PROCESS_FATAL_H

#include "state/state.h"

/* Ends the virtual machine with a message; the monitor prints it. */
noreturn void fatal(const char *message, u64 value);
noreturn void fatal_at(const char *message, u64 value, u64 rip);

#endif
