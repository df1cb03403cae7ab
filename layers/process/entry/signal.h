/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The handlers of the host's signals. */
#ifndef PROCESS_SIGNAL_H
#define PROCESS_SIGNAL_H

#include "state/state.h"

#define ARCH_X86_64 0xc000003e

/* Installs the handlers for all threads of the process. */
s64 signals_install(void);

#endif
