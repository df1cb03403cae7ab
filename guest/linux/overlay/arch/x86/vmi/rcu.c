// SPDX-License-Identifier: GPL-2.0-only
/*
 * Grace periods of RCU that do not wait for ticks.
 *
 * A normal grace period takes two or three ticks, 10 ms each with this kernel's HZ. What waits for
 * one takes as long: the close of an inotify descriptor, an unmount, the end of a namespace. An
 * expedited one interrupts the CPUs that are not idle, which takes microseconds.
 *
 * Each of these interrupts takes time from what runs there. So only a number of them in each
 * interval of time is expedited without having been asked for, and those beyond it are normal.
 * rcupdate.rcu_normal turns all off.
 */
#include <linux/moduleparam.h>
#include <linux/ratelimit.h>
#include <asm/vmi.h>
#include "vmi.h"

#undef MODULE_PARAM_PREFIX
#define MODULE_PARAM_PREFIX "vmi."

/*
 * In more than one tick, so at most 1600 a second. If an interrupt takes 7 us of a CPU, that is 1 %
 * of its time.
 */
#define EXPEDITED_AT_ONCE 32
#define INTERVAL_TICKS 1

bool vmi_expedites __read_mostly;
module_param_named(rcu_expedite, vmi_expedites, bool, 0644);
MODULE_PARM_DESC(rcu_expedite, "grace periods of RCU interrupt the CPUs and do not wait for ticks");

/* With the flag it prints nothing of what it has refused. */
static struct ratelimit_state limit = RATELIMIT_STATE_INIT_FLAGS(limit, INTERVAL_TICKS,
								 EXPEDITED_AT_ONCE,
								 RATELIMIT_MSG_ON_RELEASE);

bool vmi_expedite_grace_period(void)
{
	return READ_ONCE(vmi_expedites) && __ratelimit(&limit);
}
