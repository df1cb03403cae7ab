/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Shared by the files of this program. */
#ifndef EXITS_H
#define EXITS_H

#include "micro.h"

/* mark.c: the number that distinguishes this program's marks from those of others. 0: no marks. */
extern uint32_t mark_number;

/* Counting begins after begin() and ends with end(). Both return what they take for an error. */
void begin(void);
void end(void);

/* The operations of a batch. */
extern unsigned long operations;

/* rows.c: on the CPU of this number; the calling thread. */
void pin(unsigned int cpu);

/* Rows, each with begin() and end() around its operations. */
void row_idle(void);
void row_ticks(void);
void row_lock(void);
void row_contend(void);
void row_ipi(void);
void row_flush(void);
void row_pipe(void);
void row_pipe_across(void);
void row_fork(void);
void row_hackbench(void);

#endif
