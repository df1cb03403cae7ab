// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Classifies instruction pointers. */
#include "entry/where.h"
#include "common/faults.h"
#include "host/signals.h"
#include "state/cpu.h"
#include "state/state.h"

extern const u8 ph_layer_code[], ph_text_end[], thunk_cpu_iret[], ph_sysret_end[];

static bool inside(u64 rip, const u8 *start, const u8 *end)
{
	return rip >= (u64)start && rip < (u64)end;
}

bool in_layer(u64 rip)
{
	return rip >= (FAULT(SHORT_CALLS_MARK) ? PHV_LAYER_BASE : (u64)ph_layer_code) &&
	       rip < (u64)ph_text_end;
}

bool from_user(const struct vcpu *v, u64 rip)
{
	if (!kernel_address(rip))
		return true;
	return !FAULT(USER_BY_ADDRESS) && v->percpu && FAST(v, F_IRQ) && rdgsbase() != v->kernel_gs;
}

static bool on_way_out(u64 rip)
{
	return inside(rip, thunk_cpu_iret, ph_sysret_end);
}

bool strayed(const struct vcpu *v, const struct host_registers *regs)
{
	return in_layer(regs->rip) && from_user(v, regs->rip) &&
	       regs->rsp - (u64)thread_of(v) >= PHV_STACK_SIZE && !on_way_out(regs->rip);
}
