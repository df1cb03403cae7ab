// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Section patch: system-call sites in user text become jumps through a slot.
 *
 * The site `mov $nr,%eax; syscall` (7 bytes) becomes `jmp *slot` (7 bytes: ff 24 25 and a 32-bit address). The slot
 * knows the number and the return address, and leads to ph_injected_syscall: no host call, no signal. A jump to the old syscall
 * instruction lands on the last two bytes of the address; the areas are where bits 16 to 23 are 06, an invalid opcode, and
 * patch.fixup recognises it.
 *
 * Or the kernel makes its own way to the slot (VMI_SITE_ENTRY): then the slot is only code, wherever it lies.
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
		section->features |= VMI_PATCH_SLOTS | VMI_PATCH_ENTRIES;
}

static bool area_bad(const struct vmi_patch_area *area)
{
	return !area->size || (area->size & (PAGE_SIZE - 1)) || (area->user & (PAGE_SIZE - 1)) ||
	       (area->kernel & (PAGE_SIZE - 1)) || area->size > 0x10000 ||
	       (area->user & 0xffff) + area->size > 0x10000 || kernel_address(area->user) || !kernel_address(area->kernel);
}

/* Where user code can get by jmp *abs32, and a jump into its address meets an invalid opcode. */
static bool area_low(const struct vmi_patch_area *area)
{
	return (area->user >> 16 & 0xff) == VMI_PATCH_BYTE && !(area->user >> 31);
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

static bool site_bad(const struct vmi_syscall_site *site)
{
	u32 offset = site->syscall_offset;

	return offset > sizeof(site->code) - 2 || site->length < offset + 2 || site->length > sizeof(site->code) ||
	       site->code[offset] != 0x0f || site->code[offset + 1] != 0x05 || kernel_address(site->addr) || !site->addr;
}

/* mov $nr,%eax; syscall, in one page. */
static bool shape_bad(const struct vmi_syscall_site *site)
{
	return site->syscall_offset != 5 || site->code[0] != 0xb8 ||
	       (site->addr & ~PAGE_MASK) > PAGE_SIZE - SITE_LENGTH;
}

/* The code of a slot: what the site did before its syscall instruction, the return address, and on. */
static void write_code(u8 *at, const struct vmi_syscall_site *site)
{
	u64 back = site->addr + site->syscall_offset + 2, target = (u64)ph_injected_syscall;

	__builtin_memcpy(at, site->code, site->syscall_offset);
	at += site->syscall_offset;
	/* movabs $return,%rcx; jmp *0(%rip); the address */
	*at++ = 0x48;
	*at++ = 0xb9;
	__builtin_memcpy(at, &back, 8);
	at += 8;
	*at++ = 0xff;
	*at++ = 0x25;
	put32(at, 0);
	__builtin_memcpy(at + 4, &target, 8);
}
_Static_assert(14 + 10 + 14 <= sizeof(((struct slot *)0)->code), "the longest code");

int process_patch_claim(struct vmi_patch_area *area, struct vmi_syscall_site *site)
{
	bool entry = (site->flags & VMI_SITE_ENTRY) != 0;
	struct slot *slots = slots_of(area);
	u64 i, user;

	if (!shared->thread_descriptors)
		return -VMI_ENOSYS;
	if (area_bad(area) || site_bad(site) || (!entry && (!area_low(area) || shape_bad(site))))
		return -VMI_EINVAL;
	for (i = 0; i < area->size / SLOT_SIZE && slots[i].site; i++)
		;
	if (i == area->size / SLOT_SIZE)
		return -VMI_ENOSPC;
	user = area->user + i * SLOT_SIZE;
	slots[i].target = user + offsetof(struct slot, code);
	slots[i].site = site->addr;
	write_code(slots[i].code, site);
	area->used++;
	site->patch_length = 0;
	site->slot = slots[i].target;
	if (entry)
		return 0;
	site->slot = user;
	site->patch[0] = 0xff;
	site->patch[1] = 0x24;
	site->patch[2] = 0x25;
	put32(site->patch + 3, user);
	site->patch_length = SITE_LENGTH;
	return 0;
}

int process_patch_release(struct vmi_patch_area *area, u64 slot)
{
	struct slot *slots = slots_of(area);
	u64 offset = slot - area->user, index = offset / SLOT_SIZE;

	if (!shared->thread_descriptors)
		return -VMI_ENOSYS;
	/* Its own address, or that of its code, whichever the kernel was given. */
	offset %= SLOT_SIZE;
	if (area_bad(area) || slot < area->user || (offset && offset != offsetof(struct slot, code)) ||
	    index >= area->size / SLOT_SIZE || !slots[index].site)
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
	if (area_bad(area) || !area_low(area))
		return -VMI_ENOENT;
	for (i = 0; i < area->size / SLOT_SIZE; i++) {
		if (!slots[i].site || slots[i].site + 5 != *rip)
			continue;
		*rip += 2;
		return 0;
	}
	return -VMI_ENOENT;
}

int process_patch_set_entry(u64 entry)
{
	struct vcpu *v = this_vcpu();

	if (!shared->thread_descriptors)
		return -VMI_ENOSYS;
	if (entry && !kernel_address(entry))
		return -VMI_EINVAL;
	v->slot_entry = entry;
	patch_entry_update(v);
	return 0;
}

void patch_entry_update(struct vcpu *v)
{
	*(volatile u64 *)((u8 *)v->percpu + F_LSTAR) = v->slot_entry ? v->slot_entry : v->lstar;
}
