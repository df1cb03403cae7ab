// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "check.h"
#include "calls.h"
#include "console.h"
#include "lock.h"
#include "panic.h"
#include "percpu.h"
#include "site.h"

static struct spinlock lock;
static struct test_verdict state;

const struct test_verdict *test_verdict(void)
{
	return &state;
}

void test_verdict_clear(void)
{
	state.failed = state.skipped = false;
}

bool test_failed(void)
{
	return READ_ONCE(state.failed) || READ_ONCE(state.skipped);
}

noreturn void test_abandon(void)
{
	struct percpu *cpu = this_cpu();

	/* Out of interrupt handlers: the APIC waits for their EOIs. */
	for (; cpu->nesting; cpu->nesting--)
		vmi.apic_eoi();
	cpu->catch = NULL;
	cpu->user = NULL;
	if (!cpu->test_jump)
		panic("a check failed outside of a test: %s", state.message);
	jump_to(cpu->test_jump);
}

noreturn void test_fail(const char *file, int line, const char *fmt, ...)
{
	va_list args;
	size_t n;

	irq_disable();
	spin_lock(&lock);
	if (!state.failed && !state.skipped) {
		n = format(state.message, sizeof(state.message),
			   "vCPU %u, %s:%d, ", this_vcpu(), file, line);
		va_start(args, fmt);
		format_args(state.message + n, sizeof(state.message) - n, fmt,
			    args);
		va_end(args);
		WRITE_ONCE(state.failed, true);
	}
	spin_unlock(&lock);
	test_abandon();
}

noreturn void test_skip(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	format_args(state.message, sizeof(state.message), fmt, args);
	va_end(args);
	WRITE_ONCE(state.skipped, true);
	test_abandon();
}
