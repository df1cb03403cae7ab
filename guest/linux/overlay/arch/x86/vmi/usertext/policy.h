/* SPDX-License-Identifier: GPL-2.0-only */
/* Whether the text of the current process may be rewritten. */
#ifndef ARCH_X86_VMI_USERTEXT_POLICY_H
#define ARCH_X86_VMI_USERTEXT_POLICY_H

#include <linux/types.h>

/* The layer offers stubs. Set once, when the kernel starts. */
extern bool vmi_sites_offered;

/* The parameters vmi.sites, vmi.shared_sites and vmi.cpuid. */
extern bool vmi_sites_enabled, vmi_texts_enabled, vmi_cpuid_enabled;

/* Whether sites may be replaced for the current process, which has a user address space. */
bool vmi_sites_allowed(void);

#endif
