/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Enters the guest kernel. */
#ifndef PROCESS_INJECT_H
#define PROCESS_INJECT_H

#include "host/signals.h"
#include "state/state.h"

#define VECTOR_DB 1
#define VECTOR_BP 3
#define VECTOR_NMI 2
#define VECTOR_UD 6
#define VECTOR_NM 7
#define VECTOR_GP 13
#define VECTOR_PF 14
#define VECTOR_AC 17

/* Makes regs enter the kernel's gate. */
void inject(struct vcpu *v, struct host_registers *regs, u32 vector, bool has_error, u64 error);
/* Does what the syscall instruction does, at its place. */
void inject_syscall(struct vcpu *v, struct host_registers *regs);
/* Enters the kernel for a call from a stub, whose entry may be another (patch.set_entry). */
void inject_stub_call(struct vcpu *v, struct host_registers *regs);
/* Enters the gate of the software interrupt at which regs stopped, or the gate of #GP. */
void inject_software(struct vcpu *v, struct host_registers *regs, u32 vector, u32 length);

#endif
