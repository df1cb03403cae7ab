// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Jumps to the process layer's host-call instruction with arbitrary registers. */
#include <paravane/process.h>

#include "hostile.h"
#include "harness.h"
#include "test.h"
#include "user_mode.h"

static u64 instruction;

/* syscall; ret: the only such pair in the layer. */
u64 host_call_address(void)
{
	const volatile u8 *p;

	if (instruction)
		return instruction;
	for (p = (const u8 *)PHV_LAYER_BASE; p < (const u8 *)PHV_LAYER_BASE + 0x40000; p++)
		if (p[0] == 0x0f && p[1] == 0x05 && p[2] == 0xc3)
			return instruction = (u64)p;
	panic("the layer has no host call");
}

u64 host_call(u64 number, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f)
{
	register u64 r10 asm("r10") = d;
	register u64 r8 asm("r8") = e;
	register u64 r9 asm("r9") = f;

	asm volatile("call *%[target]" : "+a"(number), "+r"(current_rsp)
		     : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9),
		     [target] "b"(host_call_address())
		     : "rcx", "r11", "memory", "cc");
	return number;
}

/* What the filter admits, twice as often as all others together. Then the most dangerous calls. */
static const u16 numbers[] = {
	202, 9, 10, 11, 234, 228, 15, 28, 24, 158, 219, 202, 9, 10, 11, 234, 228, 28, 24, 158,
	0, 1, 2, 3, 13, 14, 16, 21, 25, 32, 33, 39, 41, 42, 56, 57, 58, 59, 61, 62, 63, 72, 80, 82,
	86, 90,
	101, 102, 105, 109, 112, 155, 157, 165, 175, 186, 200, 231, 250, 257, 272, 298, 308, 310,
	311,
	317, 319, 321, 322, 323, 329, 425, 434, 435, 438, 440, 467,
};

static u64 argument(u64 *seed)
{
	static const u64 places[] = {
		0, 1, 2, 3, 5, 9, 17, 22, 23, 0x11, 0x8011, 0x32, 0x1012, 4096, 1 << 21,
		PHV_LAYER_BASE, PHV_SHARED,
		PHV_ARENA, PHV_STACKS, PHV_DIRECT_MAP, PHV_DIRECT_MAP_WIDE, PHV_USER_START,
		PHV_HOLE_START, PHV_KERNEL_END, 0x7fffffffe000, 0x7ffff7000000, 0xffffffffff600000,
		~0ull,
		1ull << 47, 1ull << 63, 0x100000000, 0x7fffffff, 0xffffffff,
	};
	u64 value = places[random64(seed) % ARRAY_SIZE(places)];

	switch (random64(seed) >> 5 & 7) {
	case 0:
		return random64(seed);
	case 1:
		return random64(seed) & 0xfff;
	case 2:
		return value + (random64(seed) & 0x3fffff & -8ull);
	case 3:
		return value + (random64(seed) & 0x3fffff000);
	default:
		return value;
	}
}

void hostile_calls(u64 *seed, bool user)
{
	u64 a[6],
		number = random64(seed) % 16 ?
			 numbers[(random64(seed) >> 9) % ARRAY_SIZE(numbers)] :
						 random64(seed) & 0x3ff;
	u32 i;

	for (i = 0; i < 6; i++)
		a[i] = argument(seed);
	/* A call that never returns would end the attack: half of the waits find another value. */
	if (number == 202 && (a[1] & 0x7f) == 0 && random64(seed) % 16)
		a[2] = ~0ull;
	if (user) {
		struct user_context context;

		user_init(&context, u_nop);
		context.in.rip = host_call_address();
		context.in.rsp = USER_STACK_TOP - 8;
		*(u64 *)context.in.rsp = USER_ADDRESS(u_nop);
		context.in.rax = number;
		context.in.rdi = a[0];
		context.in.rsi = a[1];
		context.in.rdx = a[2];
		context.in.r10 = a[3];
		context.in.r8 = a[4];
		context.in.r9 = a[5];
		user_run(&context);
	} else {
		host_call(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	}
}
