// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "harness.h"
#include "test.h"

u64 random64(u64 *seed)
{
	/* xorshift: never 0 for a seed that is not 0. */
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

enum fpu_level fpu_level(void)
{
	u64 xcr0;

	if (!(get_cr4() & CR4_OSXSAVE))
		return FPU_SSE;
	/* As cpu_init_registers() sets it. */
	xcr0 = cpuid(0xd, 0).eax;
	if ((xcr0 & 0xe7) == 0xe7 && cpuid(7, 0).ebx & 1u << 16)
		return FPU_AVX512;
	if ((xcr0 & 7) == 7 && cpuid(1, 0).ecx & 1u << 28)
		return FPU_AVX;
	return FPU_SSE;
}

#define FX_MXCSR	24
#define FX_ST		32
#define FX_XMM		160

void fpu_fill(struct fpu_state *state, u64 seed)
{
	u64 *words = (u64 *)state->zmm;
	u32 i;

	seed |= 1;
	memset(state, 0, sizeof(*state));
	for (i = 0; i < sizeof(state->zmm) / 8; i++)
		words[i] = random64(&seed);
	for (i = 0; i < 8; i++)
		state->k[i] = random64(&seed) & 0xffff;
	for (i = 0; i < 16; i++) {
		memcpy(state->ymm[i], state->zmm[i], 32);
		memcpy(state->fx + FX_XMM + 16 * i, state->zmm[i], 16);
	}
	/* x87: single or extended precision, all registers in use, normal numbers. */
	state->fx[0] = 0x7f;
	state->fx[1] = seed & 8 ? 0x03 : 0x0c;
	state->fx[4] = 0xff;
	for (i = 0; i < 8; i++) {
		u64 mantissa = random64(&seed) | 1ull << 63;

		memcpy(state->fx + FX_ST + 16 * i, &mantissa, 8);
		state->fx[FX_ST + 16 * i + 8] = 0xff;
		state->fx[FX_ST + 16 * i + 9] = 0x3f;
	}
	/* All exceptions masked, a rounding mode that differs from the default. */
	state->fx[FX_MXCSR] = 0x80;
	state->fx[FX_MXCSR + 1] = 0x1f | (seed & 0x60);
}

static void compare(const void *want, const void *got, u32 size,
		    const char *where, const char *what, u32 number)
{
	u64 w = 0, g = 0;

	if (!memcmp(want, got, size))
		return;
	memcpy(&w, want, MIN(size, 8));
	memcpy(&g, got, MIN(size, 8));
	FAIL("%s: %s%u is 0x%llx.., want 0x%llx..", where, what, number, g, w);
}

void fpu_compare(const struct fpu_state *want, const struct fpu_state *got,
		 const char *where)
{
	enum fpu_level level = fpu_level();
	u32 i;

	compare(want->fx, got->fx, 2, where, "x87 control word ", 0);
	compare(want->fx + 2, got->fx + 2, 3, where, "x87 status ", 0);
	compare(want->fx + FX_MXCSR, got->fx + FX_MXCSR, 4, where, "mxcsr ", 0);
	for (i = 0; i < 8; i++)
		compare(want->fx + FX_ST + 16 * i, got->fx + FX_ST + 16 * i, 10,
			where, "st", i);
	for (i = 0; i < 16; i++)
		compare(want->fx + FX_XMM + 16 * i, got->fx + FX_XMM + 16 * i,
			16, where, "xmm", i);
	for (i = 0; level >= FPU_AVX && i < 16; i++)
		compare(want->ymm[i], got->ymm[i], 32, where, "ymm", i);
	for (i = 0; level >= FPU_AVX512 && i < 32; i++)
		compare(want->zmm[i], got->zmm[i], 64, where, "zmm", i);
	/* Every AVX-512 has 16 bits, and the harness moves those. */
	for (i = 0; level >= FPU_AVX512 && i < 8; i++)
		compare(&want->k[i], &got->k[i], 2, where, "k", i);
}

void harness_call(struct harness *harness, u64 target, const u64 *arguments,
		  u32 count)
{
	static const u8 order[] = { RDI, RSI, RDX, RCX, R8, R9 };
	static u64 seed = 0x123456789;
	u32 i;

	harness->target = target;
	harness->level = fpu_level();
	harness->flags_in = random64(&seed);
	for (i = 0; i < 16; i++) {
		harness->in[i] = random64(&seed);
		harness->out[i] = ~harness->in[i];
	}
	for (i = 0; i < count; i++)
		harness->in[order[i]] = arguments[i];
	fpu_fill(&harness->fpu_in, random64(&seed));
	memset(&harness->fpu_out, 0xcc, sizeof(harness->fpu_out));
	harness_run(harness);
}

static const char *const names[] = {
	"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
	"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
};

static void check_registers(const struct harness *h, u32 mask)
{
	u32 i;

	for (i = 0; i < 16; i++)
		if (mask >> i & 1 && h->out[i] != h->in[i])
			FAIL("%s is 0x%llx, was 0x%llx before the call", names[i],
			     h->out[i], h->in[i]);
	if (h->flags_out & FLAGS_DF)
		FAIL("the direction flag is set");
	fpu_compare(&h->fpu_in, &h->fpu_out, "after the call");
}

void harness_check_primitive(const struct harness *harness)
{
	check_registers(harness, 0xffff & ~(1u << RAX));
}

void harness_check_sysv(const struct harness *harness)
{
	check_registers(harness, 1u << RBX | 1u << RSP | 1u << RBP | 1u << R12 |
			1u << R13 | 1u << R14 | 1u << R15);
}
