// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Selects, sorts and runs tests, and reports in TAP 14. */
#include "test.h"
#include "user_mode.h"
#include "space.h"

#define MAX_TESTS	768
#define TEST_DEADLINE	(20 * NS_PER_S)

extern const struct test *const tests_start[], *const tests_end[];

static const struct test *selected[MAX_TESTS];
bool suite_is_filtered;

void test_reset_vcpu(void)
{
	struct percpu *cpu = this_cpu();
	u8 zero = 0;

	irq_disable();
	cpu->nesting = 0;
	cpu->catch = NULL;
	cpu->user = NULL;
	if (vmi.mmu_set_lazy_mode)
		vmi.mmu_set_lazy_mode(VMI_LAZY_NONE);
	set_cr0(cpu_cr0());
	set_cr4(cpu_cr4());
	space_load(NULL);
	/* QEMU's emulation of SVM ends if this is written while an interrupt waits. */
	if (get_cr8())
		set_cr8(0);
	cpuid_faulting(false);
	vmi.time_cancel_alarm(VMI_TIME_REAL);
	vmi.time_cancel_alarm(VMI_TIME_AVAILABLE);
	if (vmi.lock_pending(cpu->vcpu) == 1)
		vmi.lock_wait(&zero, 0);
	/* Take pending interrupts now, not in the next test. */
	irq_enable();
	pause();
	irq_disable();
	vmi.time_ack_alarm();
}

static void reset_work(void *argument)
{
	(void)argument;
	test_reset_vcpu();
}

/* After a test: gets every vCPU out of it, by a restart if nothing else helps. */
static void reset_all(bool failed)
{
	u32 i;

	test_reset_vcpu();
	set_deadline(TEST_DEADLINE);
	for (i = 1; failed && i < machine.vcpus_online; i++) {
		u64 end = now() + 2 * NS_PER_S;

		while (!work_done(i) && now() < end)
			pause();
		if (!work_done(i) && !smp_start(i))
			panic("vCPU %u is lost", i);
	}
	test_verdict_clear();
	reset_irq_handlers();
	if (failed)
		run_on_others(machine.vcpus_online, reset_work, NULL);
}

/* A * in the pattern matches any text. */
static bool glob(const char *pattern, const char *s)
{
	for (; *pattern; pattern++, s++) {
		if (*pattern == '*') {
			do {
				if (glob(pattern + 1, s))
					return true;
			} while (*s++);
			return false;
		}
		if (*pattern != *s)
			return false;
	}
	return !*s;
}

static bool matches(const char *pattern, const char *name)
{
	return strstr(pattern, "*") ? glob(pattern, name) :
	       strstr(name, pattern) != NULL;
}

const struct test *const *all_tests(u32 *count)
{
	*count = tests_end - tests_start;
	return tests_start;
}

static bool before(const struct test *a, const struct test *b)
{
	if ((a->flags ^ b->flags) & TEST_LAST)
		return b->flags & TEST_LAST;
	return strcmp(a->name, b->name) < 0;
}

static u32 select_tests(void)
{
	char pattern[128];
	u32 count = 0, total, i, j;
	const struct test *const *tests = all_tests(&total);

	suite_is_filtered = option("filter", pattern, sizeof(pattern));
	for (i = 0; i < total; i++) {
		if (suite_is_filtered && !matches(pattern, tests[i]->name))
			continue;
		if (count == MAX_TESTS)
			panic("too many tests");
		for (j = count++; j && before(tests[i], selected[j - 1]); j--)
			selected[j] = selected[j - 1];
		selected[j] = tests[i];
	}
	return count;
}

/* The boot vCPU returns here when a check fails. */
static void call(const struct test *test)
{
	struct test_jump jump;

	this_cpu()->test_jump = &jump;
	if (!jump_set(&jump))
		test->run(test->argument);
	this_cpu()->test_jump = NULL;
}

/* The first section that the test needs and the layer does not offer; VMI_SECTION_COUNT: none. */
static u32 lacks(const struct test *test)
{
	u32 i;

	for (i = 0; i < test->cover_count; i++)
		if (!layer_offers_section(test->covers[i] >> 8))
			return test->covers[i] >> 8;
	return VMI_SECTION_COUNT;
}

static bool run(u32 number, const struct test *test)
{
	static const char *const sections[] = {
#define Y(SECTION, section, number, version, compat, calls) [number] = #section,
		VMI_FOR_EACH_SECTION(Y)
#undef Y
	};
	const struct test_verdict *verdict = test_verdict();
	bool verbose = option("times", (char[8]){ 0 }, 8);
	u64 start = now();
	bool failed;

	if (test->vcpus > machine.vcpus_online) {
		print("ok %u - %s # SKIP needs %u vCPUs\n", number, test->name,
		      test->vcpus);
		return true;
	}
	if (lacks(test) < VMI_SECTION_COUNT) {
		print("ok %u - %s # SKIP the layer has no section %s\n", number,
		      test->name, sections[lacks(test)]);
		return true;
	}
	if ((test->flags & TEST_ALL) && suite_is_filtered) {
		print("ok %u - %s # SKIP needs the whole suite\n", number,
		      test->name);
		return true;
	}
	set_deadline(TEST_DEADLINE);
	call(test);
	failed = verdict->failed;
	if (verdict->skipped)
		print("ok %u - %s # SKIP %s\n", number, test->name,
		      verdict->message);
	else if (failed)
		print("not ok %u - %s\n# %s\n", number, test->name,
		      verdict->message);
	else
		print("ok %u - %s\n", number, test->name);
	if (verbose)
		print("# %llu us\n", (now() - start) / NS_PER_US);
	reset_all(failed);
	return !failed;
}

bool run_tests(void)
{
	char word[16];
	u32 count = select_tests(), passed = 0, i;

	if (option("list", word, sizeof(word))) {
		for (i = 0; i < count; i++)
			print("# test %s\n", selected[i]->name);
		return true;
	}
	print("TAP version 14\n1..%u\n", count);
	if (!count) {
		print("# no test matches the filter\n");
		return false;
	}
	for (i = 0; i < count; i++)
		passed += run(i + 1, selected[i]);
	print("# %u passed, %u failed\n", passed, count - passed);
	return passed == count;
}
