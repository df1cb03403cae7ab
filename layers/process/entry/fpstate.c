// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Vector and floating-point registers in a host signal frame.
 *
 * The host's kernel puts x87 and SSE state into every frame and marks it as in use, whatever it
 * holds. Loading it puts it in use, which then costs time at each hand-over (vcpu/registers.c) and
 * each later return. So initial state is removed from the frame. The host loads the initial state
 * from a frame without state, and does so faster.
 */
#include "entry/fpstate.h"
#include "host/cpuid.h"
#include "host/signals.h"

#define MAGIC 0x46505853	/* FP_XSTATE_MAGIC1 */
#define FP_SSE 3ULL
#define PKRU (1ULL << 9)

struct host_fpstate {
	u16 fcw, fsw, ftw, fop;
	u64 fip, fdp;
	u32 mxcsr, mxcsr_mask;
	u64 registers[48];	/* st0 to st7, xmm0 to xmm15 */
	u64 available[6];
	u32 magic, extended_size;
	u64 features;
	u64 reserved[4];
	u64 in_use;		/* XSTATE_BV */
};
_Static_assert(offsetof(struct host_fpstate, magic) == 464, "sw_reserved");
_Static_assert(offsetof(struct host_fpstate, in_use) == 512, "xstate_header");

static u32 pkru_offset;

void fpstate_prepare(void)
{
	struct vmi_cpuid regs;

	cpuid_host(0xd, 9, &regs);
	pkru_offset = regs.ebx;
}

/*
 * A guest has no protection keys, but the host may have them, and then nothing keeps a program from
 * loading PKRU. It could take its own memory away from the guest kernel and the layer. The handler
 * runs with the host's default, and everything goes on with that.
 */
static void pkru_reset(struct host_fpstate *f)
{
	u32 *pkru = (u32 *)((u8 *)f + pkru_offset), now, edx;

	if (!(f->features & PKRU))
		return;
	__asm__ volatile("rdpkru" : "=a"(now), "=d"(edx) : "c"(0));
	if ((f->in_use & PKRU) && *pkru == now)
		return;
	*pkru = now;
	f->in_use |= PKRU;
}

void fpstate_trim(struct host_registers *regs)
{
	struct host_fpstate *f = to_pointer(regs->fpstate);
	u64 any = 0;
	u32 i;

	if (!f || f->magic != MAGIC)
		return;
	pkru_reset(f);
	if ((f->in_use & ~(FP_SSE | PKRU)) || f->mxcsr != 0x1f80)
		return;
	/* The most likely first: copying memory leaves something in xmm0. */
	if (f->registers[16] || f->fcw != 0x37f || f->fsw || f->ftw || f->fop || f->fip || f->fdp)
		return;
	for (i = 0; i < ARRAY_SIZE(f->registers); i++)
		any |= f->registers[i];
	if (!any)
		regs->fpstate = 0;
}
