// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "user_mode.h"
#include "test.h"

#define MSR_PLATFORM_INFO	0xce
#define MSR_MISC_FEATURES_ENABLES 0x140

bool cpuid_faulting(bool on)
{
	u64 info;

	if (vmi.cpu_read_msr(MSR_PLATFORM_INFO, &info) || !(info >> 31 & 1))
		return false;
	CHECK_RESULT(vmi.cpu_write_msr(MSR_MISC_FEATURES_ENABLES, on), 0);
	return true;
}

void user_init(struct user_context *context, const char *label)
{
	memset(context, 0, sizeof(*context));
	context->in.rip = USER_ADDRESS(label);
	context->in.cs = USER_CS;
	context->in.ss = USER_SS;
	context->in.rflags = FLAGS_FIXED | FLAGS_IF;
	context->in.rsp = USER_STACK_TOP;
}

u32 user_try(struct user_context *context, const char *label, u64 rdi, u64 rsi)
{
	user_init(context, label);
	context->in.rdi = rdi;
	context->in.rsi = rsi;
	user_run(context);
	if (context->out.vector == VECTOR_SYSCALL)
		return 0;
	return context->out.vector + 1;
}

u64 user_call(const char *label, u64 rdi, u64 rsi)
{
	struct user_context context;

	if (user_try(&context, label, rdi, rsi))
		FAIL("user code took exception %llu error %llx at %llx, cr2 %llx",
		     context.out.vector, context.out.error, context.out.rip,
		     context.cr2);
	return context.out.rax;
}
