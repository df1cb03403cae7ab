// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * bench=vmi: nanoseconds of each row's operation, one line each, `vmi NAME NS OPS`.
 *
 * The figure is the median over the batches: another process that gets the host's CPU in between
 * affects a few batches, not the result. With the word `prepare` a row does everything except what
 * is timed, so the difference between two runs is the cost of that.
 */
#include "vmi_bench.h"
#include "test.h"

#define MAX_BATCHES	20000
#define ROW_DEADLINE	(3600 * NS_PER_S)

static u64 cycles[MAX_BATCHES];

static u64 number_option(const char *name, u64 otherwise)
{
	char word[16];
	u64 value = 0;
	const char *s;

	if (!option(name, word, sizeof(word)))
		return otherwise;
	for (s = word; *s >= '0' && *s <= '9'; s++)
		value = value * 10 + (*s - '0');
	return value;
}

/* Heap sort: small code, and never slow. */
static void sift(u64 *values, u64 root, u64 count)
{
	u64 child, value = values[root];

	for (; (child = 2 * root + 1) < count; root = child) {
		if (child + 1 < count && values[child + 1] > values[child])
			child++;
		if (values[child] <= value)
			break;
		values[root] = values[child];
	}
	values[root] = value;
}

static u64 median(u64 *values, u64 count)
{
	u64 i, swap;

	for (i = count / 2; i--;)
		sift(values, i, count);
	for (i = count; i-- > 1;) {
		swap = values[0];
		values[0] = values[i];
		values[i] = swap;
		sift(values, 0, i);
	}
	return values[count / 2];
}

static void batch(const struct vmi_row *row, u64 *result, bool only_prepare)
{
	u64 start;

	if (row->prepare)
		row->prepare(row->ops);
	start = read_tsc();
	if (!only_prepare)
		row->run(row->ops);
	*result = read_tsc() - start;
}

static void measure(const struct vmi_row *row)
{
	u64 batches = MIN(number_option("batches", row->batches), MAX_BATCHES);
	bool only_prepare = option("prepare", (char[8]){ 0 }, 8);
	u64 hz = vmi.time_frequency(), hundredths, i;

	if (row->vcpus > machine.vcpus_online || (row->begin && !row->begin())) {
		print("# vmi %s cannot be measured here\n", row->name);
		return;
	}
	set_deadline(ROW_DEADLINE);
	/* The first batch finds caches cold, so do not count it. */
	batch(row, &cycles[0], false);
	for (i = 0; i < batches; i++)
		batch(row, &cycles[i], only_prepare);
	if (row->end)
		row->end();
	if (!batches)
		return;
	hundredths = median(cycles, batches) * 100;
	/* In this order it fits into 64 bits up to minutes for each operation. */
	hundredths = hundredths / row->ops * (NS_PER_S / NS_PER_US) / (hz / NS_PER_US);
	print("vmi %s %llu.%02llu %llu\n", row->name, hundredths / 100,
	      hundredths % 100, batches * row->ops);
}

static void measure_all(const struct vmi_row *rows, u32 count, const char *only)
{
	u32 i;

	for (i = 0; i < count; i++)
		if (!only || !strcmp(only, rows[i].name))
			measure(&rows[i]);
}

void run_vmi_bench(void)
{
	char word[64];
	const char *only = option("row", word, sizeof(word));

	measure_all(vmi_rows_user, vmi_rows_user_count, only);
	measure_all(vmi_rows_memory, vmi_rows_memory_count, only);
	measure_all(vmi_rows_vcpus, vmi_rows_vcpus_count, only);
}
