/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Helpers for assembler files. */
#ifndef LAYER_ASM_H
#define LAYER_ASM_H

#include <paravane/vmi.h>

#include "faults.h"

/* Macros for cpp lists expand to one line, so they use semicolons between statements. */
#define ENTRY(name) .globl name; .hidden name; .type name, @function; .balign 16; name:
#define END(name) .size name, . - name

/*
 * The entry of a call. Kernels call it by a pointer, and with indirect branch tracking on, such a
 * branch must end at an endbr64.
 */
#define CALL_ENTRY_POINT(name) ENTRY(name) endbr64;

#define STRING_(x...) #x
#define STRING(x...) STRING_(x)

#endif
