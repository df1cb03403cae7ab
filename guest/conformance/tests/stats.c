// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* The layer's counters, which also tell which calls the suite has really made. */
#include "test.h"

#define CALLS 137		/* a number that does not come by itself */

static u64 made[VMI_SECTION_COUNT << 8];

static bool offered(void)
{
	return vmi.stats_read && vmi.stats_reset;
}

static void need_stats(void)
{
	if (!offered())
		test_skip("the layer counts nothing");
}

static struct vmi_call_stats stats(u32 call)
{
	struct vmi_call_stats s;

	CHECK_RESULT(vmi.stats_read(call, &s), 0);
	return s;
}

static const u16 calls[] = {
#define X(SECTION, section, CALL, name, number, CLASS, since) number,
	VMI_FOR_EACH_CALL(X)
#undef X
};

void note_call_counts(void)
{
	u32 i;

	if (!offered())
		return;
	for (i = 0; i < ARRAY_SIZE(calls); i++)
		if (layer_entry(calls[i]))
			made[calls[i]] += stats(calls[i]).calls;
}

static void reset(void)
{
	note_call_counts();
	vmi.stats_reset();
}

static bool site_is_patched(u32 call)
{
	struct vmi_call_entry entry;

	return layer.present && vmi_rom_call(&layer.rom, layer.base, call, &entry) &&
	       entry.reloc == VMI_RELOC_CALL;
}

TEST(stats_counts, "stats.read.counts", 1, 0, STATS_READ, STATS_RESET)
{
	u32 i;

	need_stats();
	reset();
	for (i = 0; i < CALLS; i++) {
		get_cr0();
		vmi.cpu_get_cr2();
		vmi.cpu_get_tr();
	}
	if (site_is_patched(CPU_GET_CR0))
		CHECK_EQ(stats(CPU_GET_CR0).calls, CALLS);
	CHECK_EQ(stats(CPU_GET_CR2).calls, CALLS);
	CHECK_EQ(stats(CPU_GET_TR).calls, CALLS);
	CHECK_EQ(stats(CPU_GET_LDT).calls, 0);
}

/* Bucket n holds the calls of 2^n to 2^(n+1)-1 cycles, which bounds the sum. */
TEST(stats_histogram, "stats.read.histogram", 1, 0, STATS_READ)
{
	struct vmi_call_stats s;
	u64 in_buckets = 0, low = 0, high = 0, i;
	u8 text[] = "#\n";

	need_stats();
	reset();
	for (i = 0; i < CALLS; i++)
		vmi.cpu_get_gs_base();
	for (i = 0; i < 3; i++)
		vmi.core_console_write(text, 2);
	s = stats(CPU_GET_GS_BASE);
	for (i = 0; i < VMI_STATS_BUCKETS; i++) {
		in_buckets += s.buckets[i];
		low += i ? s.buckets[i] << i : 0;
		high += s.buckets[i] << (i + 1);
	}
	CHECK_EQ(s.calls, CALLS);
	CHECK_EQ(in_buckets, CALLS);
	CHECK_OP(s.cycles, >=, low);
	if (!s.buckets[VMI_STATS_BUCKETS - 1])
		CHECK_OP(s.cycles, <, high);
	/* Slow calls certainly take some cycles. */
	CHECK_OP(stats(CORE_CONSOLE_WRITE).cycles, >, 100);
}

TEST(stats_reset, "stats.reset.zero", 1, 0, STATS_RESET)
{
	struct vmi_call_stats s;
	u32 i;

	need_stats();
	for (i = 0; i < CALLS; i++)
		vmi.cpu_get_tr();
	CHECK_OP(stats(CPU_GET_TR).calls, >=, CALLS);
	reset();
	s = stats(CPU_GET_TR);
	CHECK_EQ(s.calls, 0);
	CHECK_EQ(s.cycles, 0);
	for (i = 0; i < VMI_STATS_BUCKETS; i++)
		CHECK_EQ(s.buckets[i], 0);
}

TEST(stats_errors, "stats.read.errors", 1, 0, STATS_READ)
{
	/* Not the number after the last: a later version may have it. */
	static const u32 none[] = { 0x0ff, 0x1ff, 0x999, 0xffff, 0xffffffff };
	struct vmi_call_stats s;
	u32 i;

	need_stats();
	for (i = 0; i < ARRAY_SIZE(none); i++)
		CHECK_RESULT(vmi.stats_read(none[i], &s), -VMI_ENOENT);
}

static void call_here(void *argument)
{
	u32 i;

	(void)argument;
	for (i = 0; i < CALLS; i++)
		vmi.cpu_get_fs_base();
}

TEST(stats_sum, "stats.read.all_vcpus", 2, 0, STATS_READ)
{
	need_stats();
	reset();
	run_on_others(machine.vcpus_online, call_here, NULL);
	call_here(NULL);
	CHECK_EQ(stats(CPU_GET_FS_BASE).calls, (u64)CALLS * machine.vcpus_online);
}

/* Calls that end the machine, start or clear the counting, or that one vCPU alone cannot make. */
static bool excused(u32 call)
{
	return call == CORE_SHUTDOWN || call == CORE_INIT || call == STATS_RESET ||
	       (call == CPU_STOP && machine.vcpus_online < 2);
}

TEST(stats_coverage, "stats.coverage", 1, TEST_LAST | TEST_ALL, STATS_READ)
{
	u32 i;

	need_stats();
	note_call_counts();
	for (i = 0; i < ARRAY_SIZE(calls); i++)
		if (layer_entry(calls[i]) && !made[calls[i]] && !excused(calls[i]))
			FAIL("%s was never called", call_name(calls[i]));
}

/* --- the same, by the declarations of the tests --- */

TEST(meta_coverage, "meta.coverage", 1, TEST_LAST)
{
	static bool covered[VMI_SECTION_COUNT << 8];
	const struct test *const *tests;
	u32 count, i, n;

	tests = all_tests(&count);
	for (i = 0; i < count; i++)
		for (n = 0; n < tests[i]->cover_count; n++)
			covered[tests[i]->covers[n]] = true;
	for (i = 0; i < ARRAY_SIZE(calls); i++)
		if (!covered[calls[i]])
			FAIL("no test covers %s", call_name(calls[i]));
}

TEST(meta_names, "meta.names", 1, TEST_LAST)
{
	const struct test *const *tests;
	u32 count, i, n;

	tests = all_tests(&count);
	for (i = 0; i < count; i++)
		for (n = 0; n < i; n++)
			if (!strcmp(tests[i]->name, tests[n]->name))
				FAIL("two tests are named %s", tests[i]->name);
}

/*
 * Every call of the layer's version of a section, or of an earlier one, has an entry. Later calls
 * have none.
 */
TEST(meta_entries, "meta.entries", 1, TEST_LAST)
{
	static const u16 since[] = {
#define X(SECTION, section, CALL, name, number, CLASS, version) version,
		VMI_FOR_EACH_CALL(X)
#undef X
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(calls); i++) {
		bool due = layer_offers_section(calls[i] >> 8) &&
			   (vmi.core_version(calls[i] >> 8) & 0xffffffff) >= since[i];

		if (due != (layer_entry(calls[i]) != NULL))
			FAIL("%s has %s entry", call_name(calls[i]), due ? "no" : "an");
	}
}
