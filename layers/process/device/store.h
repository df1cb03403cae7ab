/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Stores, by their instructions. */
#ifndef PROCESS_STORE_H
#define PROCESS_STORE_H

#include "host/signals.h"

#define CODE_MAX 15

/* A store as an instruction describes it. */
struct store {
	u32 length;	/* of the instruction */
	u32 width;	/* bytes stored */
	u64 value;
};

/* The plain stores: mov of a register or of an immediate, movnti. Bytes of code behind length are zero. */
bool store_decode(const struct host_registers *regs, const u8 *code, u32 length, struct store *s);

#endif
