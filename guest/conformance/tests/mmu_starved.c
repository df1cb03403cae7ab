// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Flushes of what a vCPU without a processor has loaded: its space, and the kernel's range. */
#include "pages.h"
#include "space.h"
#include "test.h"
#include "user_mode.h"

/* The host may be about to give the vCPU the processor, but hardly each time. */
#define FLUSHES		6
/* A vCPU whose counter stands while another one works for this time is starved. */
#define STANDS_NS	(50 * NS_PER_MS)
/*
 * No flush takes longer. That is much more than it takes to have another thread of the host do it,
 * and much less than the vCPU mostly waits.
 */
#define FLUSH_MOST_NS	(100 * NS_PER_MS)

/* A vCPU that would always run. */
static struct {
	u64 count;
	bool over;
	struct space space;
} starved;

/* Another one, which takes what the first one does not get. */
static void take_the_processor(void *argument)
{
	(void)argument;
	while (!atomic_load(&starved.over))
		pause();
}

static void count_in_space(void *argument)
{
	u64 count = 0;

	(void)argument;
	space_load(&starved.space);
	while (!atomic_load(&starved.over))
		WRITE_ONCE(starved.count, ++count);
	space_load(NULL);
}

/* The time for which the host keeps this vCPU from looking says nothing. */
static void wait_until_it_stands(void)
{
	u64 count = READ_ONCE(starved.count), last = now(), stood = 0;

	while (stood < STANDS_NS) {
		u64 at = now(), counted = READ_ONCE(starved.count);

		stood += MIN(at - last, 10 * NS_PER_US);
		last = at;
		if (counted != count)
			stood = 0;
		count = counted;
		watch("a vCPU that loses its processor");
	}
}

static void flush_space(void)
{
	CHECK_RESULT(vmi.mmu_flush_space(starved.space.root, starved.space.context,
					 atomic_add(&starved.space.generation, 1), USER_DATA,
					 USER_DATA + PAGE_SIZE), 0);
}

static void flush_kernel(void)
{
	CHECK_RESULT(vmi.mmu_flush_kernel_everywhere(kernel_area, kernel_area + PAGE_SIZE), 0);
}

/*
 * On a host that has one processor, and starves vCPU 1 when this asks for it (starve on the command
 * line): a flush of what it has loaded does not wait for it. Between two flushes it gets the
 * processor for a moment, after which the host lets it wait for long again.
 */
static void flush_starved(u32 feature, void (*flush)(void))
{
	u64 longest = 0, i;
	char word[8];

	if (!(layer_features(VMI_SECTION_MMU) & feature))
		test_skip("the layer does not offer it");
	if (!option("starve", word, sizeof(word)))
		test_skip("needs starve on the command line, and a host that does it");
	memset(&starved, 0, sizeof(starved));
	space_create(&starved.space);
	run_on(1, count_in_space, NULL);
	run_on(2, take_the_processor, NULL);
	WAIT_UNTIL(READ_ONCE(starved.count));
	print("# starve vCPU 1\n");
	for (i = 0; i < FLUSHES; i++) {
		u64 start;

		wait_until_it_stands();
		start = now();
		flush();
		longest = MAX(longest, now() - start);
	}
	atomic_store(&starved.over, true);
	print("# the longest flush took %llu us\n", longest / NS_PER_US);
	wait_for(1);
	wait_for(2);
	space_destroy(&starved.space);
	CHECK_OP(longest, <=, patient(FLUSH_MOST_NS));
}

TEST(space_starved, "mmu.flush_space.starved", 3, 0, MMU_FLUSH_SPACE)
{
	flush_starved(VMI_MMU_FLUSH_SPACE, flush_space);
}

TEST(kernel_starved, "mmu.flush_kernel_everywhere.starved", 3, 0, MMU_FLUSH_KERNEL_EVERYWHERE)
{
	flush_starved(VMI_MMU_FLUSH_KERNEL, flush_kernel);
}
