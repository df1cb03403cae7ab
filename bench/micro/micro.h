/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Shared by the files of this program. */
#ifndef MICRO_H
#define MICRO_H

#include <stddef.h>
#include <stdint.h>

#define PAGE 4096UL

/*
 * If this variable is set, now() is the time-stamp counter. If the clock counts instructions
 * (QEMU's -icount shift=0), the measurements do, too.
 */
#define COUNTER "micro_tsc"
uint64_t ticks(void);

/* Nanoseconds of the monotonic clock. */
uint64_t now(void);

/* Returns the result. If it is an error, ends the program with "micro: WHAT: why". */
long must(long result, const char *what);

/* The length of a measurement: batches, and the least ns of one batch. */
extern unsigned int batches;
#define BATCH_NS 200000ULL

/*
 * Nanoseconds for one operation: the median over the batches. The size of a batch is determined
 * first. batch() makes this many operations.
 */
double timed(void (*batch)(unsigned long operations));

/*
 * Times an operation that reads the clock itself: `batch` returns the ns that its operations took.
 */
double timed_by(uint64_t (*batch)(void), unsigned long operations, unsigned int count);

/* Measurements: ns for one operation. */
double anonymous_fault(void);
double cow_fault(void);
double protection_fault(void);
double divide_by_zero(void);
double file_fault(void);
double mmap_munmap(void);
double pipe_switch(void);
double ring_switch(void);
double fork_exit(void);
double fork_exec(void);
double shell(void);
double compile(void);
double hackbench(void);
double tcp_round_trip(void);
double select_tcp(void);

#endif
