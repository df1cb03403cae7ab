/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Decodes store instructions. */
#ifndef PROCESS_STORE_H
#define PROCESS_STORE_H

#include "host/signals.h"

#define CODE_MAX 15

/* A store, as its instruction describes it. */
struct store {
	u32 length;	/* of the instruction */
	u32 width;	/* bytes stored */
	u64 value;
};

/*
 * Decodes the plain stores: mov of a register or of an immediate, movnti. Bytes of code after
 * length are zero.
 */
bool store_decode(const struct host_registers *regs, const u8 *code, u32 length, struct store *s);

#endif
