/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Programs whose stack pointer nothing else may use: any_stack.c. */
#ifndef TESTS_ANY_STACK_H
#define TESTS_ANY_STACK_H

#include "../kernel/types.h"

/*
 * On a vCPU with a space loaded, makes system calls of u_any_stack until until() returns true. The
 * kernel answers them slowly and without a stack. Returns how many runs changed something that the
 * program sees, or memory below its stack pointer.
 */
u64 any_stack_calls(bool (*until)(void));

#endif
