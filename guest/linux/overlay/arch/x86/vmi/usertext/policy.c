// SPDX-License-Identifier: GPL-2.0-only
/* Who may have sites replaced: the administrator's switch, the opt-outs, and debuggers. */
#include <linux/cache.h>
#include <linux/moduleparam.h>
#include <linux/sched.h>
#include <linux/syscall_sites.h>
#include <linux/thread_info.h>
#include "policy.h"

#undef MODULE_PARAM_PREFIX
#define MODULE_PARAM_PREFIX "vmi."

bool vmi_sites_enabled __read_mostly;
module_param_named(sites, vmi_sites_enabled, bool, 0644);
MODULE_PARM_DESC(sites, "rewrite system-call sites of user programs");

bool vmi_sites_offered __ro_after_init;

bool vmi_sites_allowed(void)
{
	return vmi_sites_enabled && vmi_sites_offered && !current->ptrace &&
	       !test_thread_flag(TIF_SYSCALL_SITES_OFF) &&
	       !test_bit(MM_CONTEXT_SITES_OFF, &current->mm->context.flags);
}
