/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The host's signal frame (x86-64 Linux ABI), signal stacks, and the load of a frame. */
#ifndef PROCESS_SIGNALS_H
#define PROCESS_SIGNALS_H

#include "state/state.h"

struct host_siginfo {
	s32 signo, error, code, pad;
	union {
		struct {
			s32 pid;
			u32 uid;
			s32 status;	/* of SIGCHLD and waitid() */
		} kill;
		struct {
			u64 addr;
		} fault;
		struct {
			u64 call_addr;
			s32 syscall;
			u32 arch;
		} sys;
	};
	u8 rest[96];
};
_Static_assert(sizeof(struct host_siginfo) == 128, "siginfo_t");

/* uc_mcontext: registers as the host saved them. The signal return loads what is written here. */
struct host_registers {
	u64 r8, r9, r10, r11, r12, r13, r14, r15;
	u64 rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, rflags;
	u16 cs, gs, fs, ss;
	u64 error, trap, oldmask, cr2;
	u64 fpstate;
	u64 reserved[8];
};

/* entry/return.S has these as numbers. */
_Static_assert(offsetof(struct host_registers, rdi) == 64, "REGS_RDI");
_Static_assert(offsetof(struct host_registers, rsp) == 120, "REGS_RSP");
_Static_assert(offsetof(struct host_registers, rip) == 128, "REGS_RIP");
_Static_assert(offsetof(struct host_registers, rflags) == 136, "REGS_RFLAGS");
_Static_assert(offsetof(struct host_registers, fpstate) == 184, "REGS_FPSTATE");

#define UC_SIGCONTEXT_SS 2
#define UC_STRICT_RESTORE_SS 4

struct host_ucontext {
	u64 flags;
	u64 link;
	u64 stack[3];
	struct host_registers regs;
	u64 sigmask;
};
_Static_assert(offsetof(struct host_ucontext, regs) == 40, "CONTEXT_REGS");
_Static_assert(offsetof(struct host_registers, rcx) == 14 * 8,
	       "the order in which ph_enter_kernel pops");

/* Gives the calling thread its signal stack. */
s64 signals_stack(struct thread *t);
/*
 * Calls function(t) on the thread's host stack with no signal blocked. This takes a signal return,
 * the only call that changes the mask once the filter is installed. The contents of the thread's
 * stacks are lost. Costs one host call.
 */
noreturn void signals_open(struct thread *t, void (*function)(void *));

#endif
