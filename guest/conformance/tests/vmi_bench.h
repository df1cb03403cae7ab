/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * The benchmark of the calls that matter most (bench=vmi): what a row is, and where the rows are.
 */
#ifndef TESTS_VMI_BENCH_H
#define TESTS_VMI_BENCH_H

/* A system call that ends a program normally (vmi_bench_text.S). */
#define BENCH_END	0x7fff
#define BENCH_GETPPID	110

#ifndef __ASSEMBLER__

#include "../kernel/types.h"

struct vmi_row {
	const char *name;
	u32 vcpus;
	u32 ops;			/* in a batch: about 100 us, so that few are interrupted */
	u32 batches;			/* the default */
	bool (*begin)(void);		/* NULL: nothing to do; false: cannot be measured here */
	void (*prepare)(u64 ops);	/* before each batch, not timed; or NULL */
	void (*run)(u64 ops);		/* timed */
	void (*end)(void);		/* or NULL */
};

/* By subject. */
extern const struct vmi_row vmi_rows_user[], vmi_rows_memory[], vmi_rows_vcpus[];
extern const u32 vmi_rows_user_count, vmi_rows_memory_count, vmi_rows_vcpus_count;

void run_vmi_bench(void);

/* vmi_bench_text.S */
extern char u_bench_calls[], u_bench_calls_trapped[], u_bench_write[];
void bench_syscall_entry(void);

#endif
#endif
