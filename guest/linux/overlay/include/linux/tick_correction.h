/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Corrections of all clocks that NTP adjusts. A hypervisor that knows how the clock source runs
 * against the host's clock asks for them, in addition to what adjtimex() asks for.
 */
#ifndef _LINUX_TICK_CORRECTION_H
#define _LINUX_TICK_CORRECTION_H

#include <linux/types.h>

/*
 * Changes the length of a tick from the next tick on. The clocks do not jump. @correction is in ns,
 * with NTP_SCALE_SHIFT binary places.
 */
void ntp_correct_tick(s64 correction);

/*
 * Puts CLOCK_MONOTONIC and the wall clock forward, by ns. Timers expire as the clock events that
 * are set say, which is right if those follow the hypervisor's time.
 */
void timekeeping_step_ahead(u64 ns);

/*
 * Whether programs adjust the clocks, by adjtimex(): they say that the clocks are synchronized, or
 * have set another rate or an offset.
 */
bool ntp_is_used(void);

#endif
