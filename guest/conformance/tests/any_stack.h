/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Programs whose stack pointer nobody else may use: any_stack.c. */
#ifndef TESTS_ANY_STACK_H
#define TESTS_ANY_STACK_H

#include "../kernel/types.h"

/*
 * On a vCPU with a space loaded, until until() says so: system calls of u_any_stack, which the kernel answers slowly and without a
 * stack. Returns how many of the runs showed something to the program, or wrote below its stack pointer.
 */
u64 any_stack_calls(bool (*until)(void));

#endif
