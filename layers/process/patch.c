// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Section patch: system-call sites in user text become jumps through a slot.
 *
 * The site `mov $nr,%eax; syscall` (7 bytes) becomes `jmp *slot` (7 bytes: ff 24 25 and a 32-bit address). The slot
 * knows the number and the return address, and leads to ph_injected_syscall: no host call, no signal. A jump to the old syscall
 * instruction lands on the last two bytes of the address; the areas are where bits 16 to 23 are 06, an invalid opcode, and
 * patch.fixup recognises it.
 */
#include "calls.h"

#define SLOT_SIZE 64
#define SITE_LENGTH 7

struct slot {
	u64 target;		/* user address of code */
	u64 site;		/* user address of the site; 0: free */
	u8 code[48];
};
_Static_assert(sizeof(struct slot) == SLOT_SIZE, "SLOT_SIZE");

extern u8 layer_section_table[];
extern const u8 ph_injected_syscall[];
extern u8 ph_which_vcpu_0[], ph_which_vcpu_1[];
extern struct vcpu *ph_vcpu_table[];
struct vcpu *ph_vcpu_table[VMI_PH_MAX_VCPUS];

void patch_offer(void)
{
	struct vmi_section *section = (struct vmi_section *)layer_section_table + VMI_SECTION_PATCH;

	/* movl $THREAD_SELECTOR,%r11d; lsll %r11d,%r11d becomes movl $0,%r11d and a nop. */
	static const u8 vcpu_0[] = { 0x41, 0xbb, 0, 0, 0, 0, 0x0f, 0x1f, 0x40, 0 };

	if (!shared->thread_descriptors && shared->s.vcpu_count == 1) {
		__builtin_memcpy(ph_which_vcpu_0, vcpu_0, sizeof(vcpu_0));
		__builtin_memcpy(ph_which_vcpu_1, vcpu_0, sizeof(vcpu_0));
		shared->thread_descriptors = 1;
	}
	if (shared->thread_descriptors)
		section->features |= VMI_PATCH_SLOTS;
}

static bool area_bad(const struct vmi_patch_area *area)
{
	return !area->size || (area->size & (PAGE_SIZE - 1)) || (area->user & (PAGE_SIZE - 1)) ||
	       (area->kernel & (PAGE_SIZE - 1)) || area->size > 0x10000 || (area->user >> 16 & 0xff) != VMI_PATCH_BYTE ||
	       (area->user & 0xffff) + area->size > 0x10000 || area->user >> 31 || kernel_address(area->user) ||
	       !kernel_address(area->kernel);
}

static struct slot *slots_of(const struct vmi_patch_area *area)
{
	return to_pointer(area->kernel);
}

static void put32(u8 *at, u64 value)
{
	u32 low = (u32)value;

	__builtin_memcpy(at, &low, 4);
}

int process_patch_claim(struct vmi_patch_area *area, struct vmi_syscall_site *site)
{
	struct slot *slots = slots_of(area);
	u64 i, user, code;

	if (!shared->thread_descriptors)
		return -VMI_ENOSYS;
	if (area_bad(area) || site->length < SITE_LENGTH || site->syscall_offset != 5 || site->code[0] != 0xb8 ||
	    site->code[5] != 0x0f || site->code[6] != 0x05 ||
	    (site->addr & ~PAGE_MASK) > PAGE_SIZE - SITE_LENGTH || kernel_address(site->addr) || !site->addr)
		return -VMI_EINVAL;
	for (i = 0; i < area->size / SLOT_SIZE && slots[i].site; i++)
		;
	if (i == area->size / SLOT_SIZE)
		return -VMI_ENOSPC;
	user = area->user + i * SLOT_SIZE;
	code = user + offsetof(struct slot, code);
	slots[i].target = code;
	slots[i].site = site->addr;
	/* movabs $return,%rcx; mov $nr,%eax; jmp ph_injected_syscall */
	slots[i].code[0] = 0x48;
	slots[i].code[1] = 0xb9;
	put32(slots[i].code + 2, site->addr + SITE_LENGTH);
	put32(slots[i].code + 6, (site->addr + SITE_LENGTH) >> 32);
	__builtin_memcpy(slots[i].code + 10, site->code, 5);
	slots[i].code[15] = 0xe9;
	put32(slots[i].code + 16, (u64)ph_injected_syscall - (code + 20));
	site->slot = user;
	site->patch[0] = 0xff;
	site->patch[1] = 0x24;
	site->patch[2] = 0x25;
	put32(site->patch + 3, user);
	site->patch_length = SITE_LENGTH;
	area->used++;
	return 0;
}

int process_patch_release(struct vmi_patch_area *area, u64 slot)
{
	struct slot *slots = slots_of(area);
	u64 index = (slot - area->user) / SLOT_SIZE;

	if (!shared->thread_descriptors)
		return -VMI_ENOSYS;
	if (area_bad(area) || slot < area->user || (slot - area->user) % SLOT_SIZE || index >= area->size / SLOT_SIZE ||
	    !slots[index].site)
		return -VMI_ENOENT;
	slots[index].site = 0;
	area->used--;
	return 0;
}

int process_patch_fixup(const struct vmi_patch_area *area, u64 *rip, u64 *rax)
{
	const struct slot *slots = slots_of(area);
	u64 i;

	(void)rax;
	if (!shared->thread_descriptors)
		return -VMI_ENOSYS;
	if (area_bad(area))
		return -VMI_ENOENT;
	for (i = 0; i < area->size / SLOT_SIZE; i++) {
		if (!slots[i].site || slots[i].site + 5 != *rip)
			continue;
		*rip += 2;
		return 0;
	}
	return -VMI_ENOENT;
}
