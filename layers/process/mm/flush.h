/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Flushes, and what a process keeps for its next space. */
#ifndef PROCESS_FLUSH_H
#define PROCESS_FLUSH_H

#include "state/state.h"

/*
 * The process of a released space keeps its mappings until it is used again, if they are few:
 * waking it costs more than they do. Many of them would take much of the host's memory: 200 bytes
 * for each and their tables. The monitor's budget sees only the tables.
 */
#define KEEP_MAPPINGS 256
#define KEEP_TABLES 64

/* Makes the host mappings of start to end - 1 agree with the guest's tables, or removes them. */
void tlb_flush(struct vcpu *v, u64 start, u64 end);
/* tlb_flush() for a caller that holds the process's lock. */
void tlb_flush_held(struct vcpu *v, u64 start, u64 end);
void tlb_flush_user(struct vcpu *v);
/* Flushes user addresses by the tables with this root, in a thread that owns no vCPU. */
void tlb_flush_root(u64 root);
/*
 * Flushes for a new generation of a space, which the process has afterwards. Flushes only the
 * range if the generation is the next one, everything if some are missing, and nothing if it is
 * old.
 */
void tlb_flush_space(struct vcpu *v, u64 generation, u64 start, u64 end);
/*
 * Flushes what all spaces share. Processes that are loaded later compare all of it (mm_sync).
 */
void tlb_flush_kernel(struct vcpu *v, u64 start, u64 end);
void tlb_flush_kernel_all(u64 root);
/*
 * Kernels clear accessed bits without a flush to see which pages are in use. A page that stays
 * mapped would look unused for ever. So this compares everything, at most once a second, for a vCPU
 * that has the space loaded. now: TSC.
 */
void tlb_age(struct vcpu *v, u64 now);

/*
 * Prepares the process for a space that it did not have. Mappings that agree with the new tables
 * stay; most often they are the text of a program that forks again and again. For a space with the
 * same exec hint, read-only mappings stay uncompared until tlb_kernel_done().
 */
void tlb_take_over(struct vcpu *v);

#endif
