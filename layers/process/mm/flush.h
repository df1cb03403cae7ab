/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Flushes, and what a process keeps for its next space. */
#ifndef PROCESS_FLUSH_H
#define PROCESS_FLUSH_H

#include "state/state.h"

/*
 * A released space's process keeps its mappings until it is used again, if that is few: waking it costs more than they do. Many are
 * a lot of the host's memory, 200 bytes for each and its tables, which no budget of the monitor sees but for the tables.
 */
#define KEEP_MAPPINGS 256
#define KEEP_TABLES 64

/* Makes the host mappings of start to end - 1 agree with the guest's tables, or go. */
void tlb_flush(struct vcpu *v, u64 start, u64 end);
/* The same for who has the process's lock. */
void tlb_flush_held(struct vcpu *v, u64 start, u64 end);
void tlb_flush_user(struct vcpu *v);
/*
 * The same for a space's new generation, which the process is good for afterwards: only the range where the generation is the next one,
 * everything where others are missing, nothing where it is past.
 */
void tlb_flush_space(struct vcpu *v, u64 generation, u64 start, u64 end);
/* The same for what all spaces share; processes that are loaded later compare all of it (space.c). */
void tlb_flush_kernel(struct vcpu *v, u64 start, u64 end);
void tlb_flush_kernel_all(struct vcpu *v);
/*
 * Kernels clear accessed bits without a flush, to see which pages are in use. A page that stays mapped would look unused for ever;
 * so now and then everything is compared: at most once a second, on behalf of a vCPU that has the space loaded. now: TSC.
 */
void tlb_age(struct vcpu *v, u64 now);

/*
 * The same for a space that this process did not have, except that what is in its tables as it was mapped for the one before stays: most
 * often that is the text of a program that forks again and again. Of a space that is expected to become like the one before, what is only
 * read stays until tlb_kernel_done().
 */
void tlb_take_over(struct vcpu *v);

#endif
