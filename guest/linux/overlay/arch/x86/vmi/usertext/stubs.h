/* SPDX-License-Identifier: GPL-2.0-only */
/* Stubs of one address space, near the text that jumps to them. */
#ifndef ARCH_X86_VMI_USERTEXT_STUBS_H
#define ARCH_X86_VMI_USERTEXT_STUBS_H

#include "mm.h"

/*
 * Finds a stub within reach of @site and has the layer fill it. The caller holds the mmap lock for
 * writing and the only reference to @sites.
 *
 * Returns 0; -ENOSPC if there is no stub within reach; -ENOMEM; or -EINVAL if the layer refuses
 * the site.
 */
int stub_claim(struct mm_struct *mm, struct vmi_sites *sites, struct vm_area_struct *text,
	       struct vmi_syscall_site *site);

/* Whether a mapping holds stubs. */
bool stub_area_is(const struct vm_area_struct *vma);

#endif
