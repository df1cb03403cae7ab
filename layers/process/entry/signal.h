/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The host's signal frame (x86-64 Linux ABI), and what the handlers do with it. */
#ifndef PROCESS_SIGNAL_H
#define PROCESS_SIGNAL_H

#include "state/state.h"

struct host_siginfo {
	s32 signo, error, code, pad;
	union {
		struct {
			s32 pid;
			u32 uid;
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

/* uc_mcontext: registers as the host saved them; what is written here is loaded by the signal return. */
struct host_registers {
	u64 r8, r9, r10, r11, r12, r13, r14, r15;
	u64 rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, rflags;
	u16 cs, gs, fs, ss;
	u64 error, trap, oldmask, cr2;
	u64 fpstate;
	u64 reserved[8];
};

/* entry.S has these. */
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
_Static_assert(offsetof(struct host_registers, rcx) == 14 * 8, "the order in which ph_enter_kernel pops");

/* vCPUs with an event that came while a call with any GS base was on (thunks.S). This process's own. */
extern u64 ph_any_pending;

#define ARCH_X86_64 0xc000003e

#define FLAG_ZF 0x40ULL
#define FLAG_TF 0x100ULL
#define FLAG_IF 0x200ULL
#define FLAG_DF 0x400ULL
#define FLAG_NT 0x4000ULL
#define FLAG_RF 0x10000ULL
#define FLAG_AC 0x40000ULL
#define FLAG_ID 0x200000ULL
/* What user code's flags may be: cpu.iret takes all of them, cpu.sysret all but RF. */
#define FLAGS_IRET 0x254dd5ULL
#define FLAGS_SYSRET (FLAGS_IRET & ~FLAG_RF)

#define VECTOR_DB 1
#define VECTOR_BP 3
#define VECTOR_NMI 2
#define VECTOR_UD 6
#define VECTOR_NM 7
#define VECTOR_GP 13
#define VECTOR_PF 14
#define VECTOR_AC 17

/* Installs the handlers, for all threads of the process. */
s64 signals_install(void);
/* fpu.c: takes vector state out of the frame if all of it is initial; once in the zygote before that. */
void fpstate_trim(struct host_registers *regs);
void fpstate_prepare(void);
/* Gives the calling thread its signal stack. */
s64 signals_stack(struct thread *t);
/*
 * Calls function(t) on the thread's host stack with no signal blocked. Uses a signal return, the only
 * call that changes the mask once the filter stands. What the thread's stacks hold is lost. One host
 * call.
 */
noreturn void signals_open(struct thread *t, void (*function)(void *));

/*
 * windows.c: the instruction pointer is in the layer. If it is in a window, makes regs the guest's
 * own registers, as they would be after the return, and says so.
 */
bool window_complete(struct vcpu *v, struct host_registers *regs);
/*
 * A signal that is on its way out of another handler: makes regs begin again at ph_sigreturn, which looks at what is marked.
 */
void window_rollback(struct host_registers *regs);
/* Whether the instruction pointer is in the layer; what is as good as guest code (thunks.S) is not. */
bool in_layer(u64 rip);
/* Whether the instruction pointer is in cpu.iret or cpu.sysret. */
bool window_out(u64 rip);
/* Stopped at the hlt of cpu.iret: the frame's selectors are none that a processor would take; error is theirs. */
bool window_bad_frame(const struct host_registers *regs, u64 *error);

/*
 * inject.c. Whether rip, which is not in the layer, is user code: by its address; or user code has jumped to an address of the
 * kernel's, which the GS base tells. User code always has interrupts enabled, so a kernel that has disabled them may have any GS base.
 */
bool from_user(const struct vcpu *v, u64 rip);
/* Makes regs enter the kernel's gate. */
void inject(struct vcpu *v, struct host_registers *regs, u32 vector, bool has_error, u64 error);
void inject_syscall(struct vcpu *v, struct host_registers *regs);
/* Enters the gate of the software interrupt that regs stopped at, or of #GP. */
void inject_software(struct vcpu *v, struct host_registers *regs, u32 vector, u32 length);
/* Delivers what is pending and allowed; regs are the guest's. Whether that was something: then they have the stack of the kernel's entry. */
bool deliver_pending(struct vcpu *v, struct host_registers *regs);

#endif
