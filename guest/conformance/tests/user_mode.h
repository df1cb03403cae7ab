/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* User programs of a few instructions (user_text.S), and how to run them. */
#ifndef TESTS_USER_MODE_H
#define TESTS_USER_MODE_H

#include "space.h"
#include "../kernel/user.h"

/* Linear addresses of user programs, the same in every space. */
extern u64 user_base;
#define USER_SIZE	(4 * GIB)
#define USER_TEXT	user_base
#define USER_STACK	(user_base + MIB)
#define USER_STACK_TOP	(USER_STACK + PAGE_SIZE)
#define USER_DATA	(user_base + GIB)	/* 3 GiB for tests */

extern char user_text_start[], user_text_end[];

/* The address at which a program of user_text.S runs. */
#define USER_ADDRESS(label) (USER_TEXT + ((label) - user_text_start))

/* Whether the kernel and its programs must not use [from, to). */
bool in_hole(u64 from, u64 to);

/* A context that enters at the label by iret, with interrupts on and all other registers zero. */
void user_init(struct user_context *context, const char *label);
/*
 * Runs a program that ends with a system call and returns its rax. Fails the test if it ends
 * otherwise.
 */
u64 user_call(const char *label, u64 rdi, u64 rsi);

/*
 * Makes user code's cpuid fault on this vCPU, or not (MSR_MISC_FEATURES_ENABLES). False if the vCPU
 * cannot do it. Each test starts without.
 */
bool cpuid_faulting(bool on);

/*
 * Runs the label as user code. Returns 0, or the vector + 1 of the exception, with error and cr2 in
 * *context.
 */
u32 user_try(struct user_context *context, const char *label, u64 rdi, u64 rsi);

/* user_text.S */
extern char u_nop[], u_load[], u_store[], u_store_load[], u_execute[],
	u_int3[], u_int_gate[], u_int_kernel[], u_ud2[], u_divide[], u_spin[],
	u_add[], u_loop[], u_pushf[], u_popf[], u_cli[], u_sti[], u_hlt[],
	u_rdcr3[], u_invlpg[], u_lgdt[], u_swapgs[], u_rdmsr[], u_inb[], u_in[],
	u_unaligned[], u_fp[], u_x87[], u_xmm_swap[], u_sysret_regs[],
	u_fs_load[], u_gs_load[], u_fs_select[], u_gs_select[],
	u_gs_selector[], u_std[], u_steps[], u_overflow[], u_noncanonical[],
	u_load_xmm[], u_cs[], u_fill[], u_touch[], u_stos[],
	u_keep_below[], u_compatibility[], u_call_loop[], u_call_loop_site[], u_stack[],
	u_cpuid[], u_cpuid_instruction[], u_cpuid_loop[], u_cpuid_loop_site[],
	u_any_stack[], u_any_stack_site[],
	u_wrpkru_load[], u_wrpkru[], u_aligned_load[];

#endif
