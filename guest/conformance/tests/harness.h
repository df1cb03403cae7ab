/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Calls a function with every register filled, and records every register after it. */
#ifndef TESTS_HARNESS_H
#define TESTS_HARNESS_H

/* Offsets in struct harness, for harness.S. */
#define HARNESS_TARGET	0
#define HARNESS_LEVEL	8
#define HARNESS_ODD	16
#define HARNESS_RSP	24
#define HARNESS_FLAGS_IN 32
#define HARNESS_FLAGS_OUT 40
#define HARNESS_IN	48
#define HARNESS_OUT	176
#define HARNESS_FPU_IN	320
#define FPU_YMM		512
#define FPU_ZMM		1024
#define FPU_K		3072
#define FPU_SIZE	3136
#define HARNESS_FPU_OUT	(HARNESS_FPU_IN + FPU_SIZE)

#ifndef __ASSEMBLER__

#include "../kernel/types.h"

enum { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14,
       R15 };

/* The vector state of this processor. */
enum fpu_level { FPU_SSE, FPU_AVX, FPU_AVX512 };

struct fpu_state {
	u8 fx[512];		/* as fxsave writes it */
	u8 ymm[16][32];
	u8 zmm[32][64];
	u64 k[8];
} __attribute__((aligned(64)));

struct harness {
	u64 target;
	u64 level;
	u64 odd;		/* the stack is 8-byte but not 16-byte aligned */
	u64 rsp;
	u64 flags_in, flags_out;
	u64 in[16], out[16];	/* in the order of the encoding; rsp is not loaded */
	struct fpu_state fpu_in, fpu_out;
} __attribute__((aligned(64)));

_Static_assert(offsetof(struct harness, in) == HARNESS_IN, "in");
_Static_assert(offsetof(struct harness, out) == HARNESS_OUT, "out");
_Static_assert(offsetof(struct harness, fpu_in) == HARNESS_FPU_IN, "fpu_in");
_Static_assert(offsetof(struct harness, fpu_out) == HARNESS_FPU_OUT, "fpu_out");
_Static_assert(offsetof(struct fpu_state, k) == FPU_K, "k");

enum fpu_level fpu_level(void);
/* Random but valid contents. */
void fpu_fill(struct fpu_state *state, u64 seed);
/* Fails the test if the two differ. */
void fpu_compare(const struct fpu_state *want, const struct fpu_state *got,
		 const char *where);
/* harness.S: moves the state between memory and the registers of this vCPU. */
void fpu_load(const struct fpu_state *state, u64 level);
void fpu_store(struct fpu_state *state, u64 level);

void harness_run(struct harness *harness);
/* Fills the registers at random, then calls. The arguments go to rdi to r9. */
void harness_call(struct harness *harness, u64 target, const u64 *arguments,
		  u32 count);
/* Everything but rax and the arithmetic flags must be unchanged. */
void harness_check_primitive(const struct harness *harness);
/* The registers that the System V convention preserves, and all vector state, must be unchanged. */
void harness_check_sysv(const struct harness *harness);

u64 random64(u64 *seed);

/*
 * moments.c: between begin and end, NMIs of this vCPU have an entry of their own. It counts them in
 * k_nmis, needs no GS base, and runs on a stack of the processor's if the layer supports that.
 */
void count_nmis_begin(void);
void count_nmis_end(void);
extern u64 k_nmis;
extern u64 k_nmis_nested;	/* of these, before the iret of another one */
extern u32 k_nmi_depth;
extern u32 k_nmi_spins;		/* how long each one lasts */
/* On another vCPU: sends NMIs, each after the one before was taken. None may be nested. */
void send_nmis(u32 vcpu, u64 count);

/* harness.S: a site of each primitive, followed by a return. */
struct site_stub {
	u64 call;
	u64 target;
};
extern const struct site_stub site_stubs[], site_stubs_end[];
/* Two swapgs through the entry in harness_entry. */
void swapgs_by_entry(void);
/* iret to the next instruction: at a site, and by a jump to harness_entry. */
void iret_by_site(void);
void iret_by_entry(void);
extern u64 harness_entry;

#endif
#endif
