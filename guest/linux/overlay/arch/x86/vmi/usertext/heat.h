/* SPDX-License-Identifier: GPL-2.0-only */
/* How often something has happened lately. */
#ifndef ARCH_X86_VMI_USERTEXT_HEAT_H
#define ARCH_X86_VMI_USERTEXT_HEAT_H

#include <linux/types.h>

/*
 * Count an event and return how often it has happened, this time included. The tables are small
 * and lossy: a count can begin again at 1. The caller hashes what it counts into @key.
 *
 * By process: on this CPU. By file: for the whole system.
 */
unsigned int heat_by_process(u64 key);
unsigned int heat_by_file(u64 key);

#endif
