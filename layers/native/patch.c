/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Section patch: nothing is faster than the syscall instruction, so no site is replaced. */
#include "native.h"

int native_patch_claim(struct vmi_patch_area *area, struct vmi_syscall_site *site)
{
	(void)area;
	(void)site;
	return FAULT(PATCH_CLAIMS) ? 0 : -VMI_ENOSYS;
}

int native_patch_release(struct vmi_patch_area *area, u64 slot)
{
	(void)area;
	(void)slot;
	return -VMI_ENOSYS;
}

int native_patch_fixup(const struct vmi_patch_area *area, u64 *rip, u64 *rax)
{
	(void)area;
	(void)rip;
	(void)rax;
	return -VMI_ENOSYS;
}

int native_patch_set_entry(u64 entry)
{
	(void)entry;
	return -VMI_ENOSYS;
}

int native_patch_code(const struct vmi_syscall_site *site, u64 body, u8 *code, u32 size)
{
	(void)site;
	(void)body;
	(void)code;
	(void)size;
	return -VMI_ENOSYS;
}
