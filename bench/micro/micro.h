/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the files of this program share. */
#ifndef MICRO_H
#define MICRO_H

#include <stddef.h>
#include <stdint.h>

#define PAGE 4096UL

/*
 * If this variable is set, now() is the time-stamp counter: where that counts instructions (QEMU's -icount shift=0), so do
 * the measurements.
 */
#define COUNTER "micro_tsc"
uint64_t ticks(void);

/* Nanoseconds of the monotonic clock. */
uint64_t now(void);

/* Ends the program with "micro: WHAT: why" if this is an error, and hands the result on if not. */
long must(long result, const char *what);

/* How long a measurement may take: batches, and ns that one should at least take. */
extern unsigned int batches;
#define BATCH_NS 200000ULL

/*
 * Nanoseconds for one operation: the median over the batches, whose size is found out first. batch() does so many
 * operations.
 */
double timed(void (*batch)(unsigned long operations));

/* The same for what reads the clock itself: returns the ns that its operations took. */
double timed_by(uint64_t (*batch)(void), unsigned long operations, unsigned int count);

/* Measurements: ns for an operation. */
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
