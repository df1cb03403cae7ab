// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Section patch: system-call and cpuid sites in user text become jumps to stubs.
 *
 * The site `mov $nr,%eax; syscall` (7 bytes) becomes `jmp *stub` (7 bytes: ff 24 25 and a 32-bit
 * address). The stub knows the number and the return address, and jumps to ph_injected_syscall: no
 * host call, no signal. A jump to the old syscall instruction lands on the last two bytes of the
 * address. Areas lie where bits 16 to 23 of the address are 06, an invalid opcode, which
 * patch.fixup recognises.
 *
 * The kernel may make its own way to the stub (VMI_SITE_ENTRY): then the stub is only code and may
 * lie anywhere. Or the kernel places the stub itself (patch.code), and the layer only writes its
 * code, from here and stubs.S.
 */
#include "calls/patch.h"
#include "calls/calls.h"
#include "common/faults.h"
#include "crossing/crossing.h"
#include "host/cpuid.h"
#include "state/state.h"

#define STUB_SIZE 64
#define SITE_LENGTH 7

/* Second bytes of the instructions at sites. */
#define SYSCALL 0x05
#define CPUID 0xa2

struct stub {
	u64 target;		/* user address of code */
	u64 site;		/* user address of the site; 0: free */
	u8 code[48];
};
_Static_assert(sizeof(struct stub) == STUB_SIZE, "STUB_SIZE");

extern u8 layer_section_table[];
extern const u8 ph_injected_syscall[];
extern const u8 ph_cpuid_stub[], ph_cpuid_stub_body[], ph_cpuid_stub_back[], ph_cpuid_stub_end[];
extern const u8 ph_cpuid_body[], ph_cpuid_body_end[];
extern u8 ph_which_vcpu_0[], ph_which_vcpu_1[];

/*
 * Whether stubs for cpuid can be made. The host must be able to make cpuid fault, which is how a
 * kernel finds the sites that are worth one.
 */
static bool cpuid_stubs;

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
		section->features |= VMI_PATCH_SLOTS | VMI_PATCH_ENTRIES | VMI_PATCH_CODE;
	cpuid_stubs = shared->thread_descriptors && shared->s.cpuid_faulting &&
		cpuid_stubs_prepare();
	if (cpuid_stubs)
		section->features |= VMI_PATCH_CPUID;
}

static bool area_bad(const struct vmi_patch_area *area)
{
	return !area->size || (area->size & (PAGE_SIZE - 1)) || (area->user & (PAGE_SIZE - 1)) ||
	       (area->kernel & (PAGE_SIZE - 1)) || area->size > 0x10000 ||
	       (area->user & 0xffff) + area->size > 0x10000 || kernel_address(area->user) ||
	       !kernel_address(area->kernel);
}

/*
 * Whether user code can reach the area by jmp *abs32, and a jump into the address meets an invalid
 * opcode.
 */
static bool area_low(const struct vmi_patch_area *area)
{
	return (area->user >> 16 & 0xff) == VMI_PATCH_BYTE && !(area->user >> 31);
}

static struct stub *stubs_of(const struct vmi_patch_area *area)
{
	return to_pointer(area->kernel);
}

static void put32(u8 *at, u64 value)
{
	u32 low = (u32)value;

	__builtin_memcpy(at, &low, 4);
}

static bool site_bad(const struct vmi_syscall_site *site, u8 instruction)
{
	u32 offset = site->syscall_offset;

	return offset > sizeof(site->code) - 2 || site->length < offset + 2 ||
	       site->length > sizeof(site->code) ||
	       site->code[offset] != 0x0f || site->code[offset + 1] != instruction ||
	       kernel_address(site->addr) ||
	       !site->addr;
}

/* mov $nr,%eax; syscall, in one page. */
static bool shape_bad(const struct vmi_syscall_site *site)
{
	return site->syscall_offset != 5 || site->code[0] != 0xb8 ||
	       (site->addr & ~PAGE_MASK) > PAGE_SIZE - SITE_LENGTH;
}

/* A stub that is being written. */
struct writer {
	u8 code[VMI_PATCH_BODY_MAX];
	u32 length;
	u64 user;		/* where the code will be */
	bool far;		/* a displacement does not fit */
};

static void write_bytes(struct writer *w, const u8 *bytes, u64 length)
{
	__builtin_memcpy(w->code + w->length, bytes, length);
	w->length += (u32)length;
}

/* Stores the displacement at offset at of an instruction that ends after it. */
static void set_distance(struct writer *w, u64 at, u64 to)
{
	s64 distance = (s64)(to - (w->user + at + 4));

	w->far |= distance != (s32)distance;
	put32(w->code + at, (u64)distance);
}

static u64 behind(const struct vmi_syscall_site *site)
{
	return site->addr + site->syscall_offset + 2;
}

/*
 * Writes the site's instructions before its syscall instruction, the return address, and the jump.
 * The return address is relative if all of it may move, and absolute otherwise, which fits any
 * distance. A system call changes r11 anyway.
 */
static void write_syscall(struct writer *w, const struct vmi_syscall_site *site, bool moves)
{
	static const u8 lea_rcx[] = { 0x48, 0x8d, 0x0d, 0, 0, 0, 0 };
	static const u8 movabs_rcx[] = { 0x48, 0xb9, 0, 0, 0, 0, 0, 0, 0, 0 };
	/* mov $ph_injected_syscall,%r11d; jmp *%r11 */
	static const u8 on[] = { 0x41, 0xbb, 0, 0, 0, 0, 0x41, 0xff, 0xe3 };
	u64 back = behind(site);

	write_bytes(w, site->code, site->syscall_offset);
	if (moves) {
		write_bytes(w, lea_rcx, sizeof(lea_rcx));
		set_distance(w, w->length - 4, back);
	} else {
		write_bytes(w, movabs_rcx, sizeof(movabs_rcx));
		__builtin_memcpy(w->code + w->length - 8, &back, 8);
	}
	write_bytes(w, on, sizeof(on));
	put32(w->code + w->length - 7, (u64)ph_injected_syscall);
}

static void write_cpuid(struct writer *w, const struct vmi_syscall_site *site, u64 body)
{
	u64 start = site->syscall_offset;

	write_bytes(w, site->code, start);
	write_bytes(w, ph_cpuid_stub, (u64)(ph_cpuid_stub_end - ph_cpuid_stub));
	set_distance(w, start + (u64)(ph_cpuid_stub_body - ph_cpuid_stub), body);
	set_distance(w, start + (u64)(ph_cpuid_stub_back - ph_cpuid_stub), behind(site));
}

_Static_assert(14 + 10 + 9 <= sizeof(((struct stub *)0)->code),
	       "the longest code of a claimed stub");

int process_patch_claim(struct vmi_patch_area *area, struct vmi_syscall_site *site)
{
	bool entry = (site->flags & VMI_SITE_ENTRY) != 0;
	struct stub *stubs = stubs_of(area);
	struct writer w = { .length = 0 };
	u64 i, user;

	if (!shared->thread_descriptors)
		return -VMI_ENOSYS;
	if (area_bad(area) || site_bad(site, SYSCALL) ||
	    (!entry && (!area_low(area) || shape_bad(site))))
		return -VMI_EINVAL;
	for (i = 0; i < area->size / STUB_SIZE && stubs[i].site; i++)
		;
	if (i == area->size / STUB_SIZE)
		return -VMI_ENOSPC;
	user = area->user + i * STUB_SIZE;
	w.user = user + offsetof(struct stub, code);
	write_syscall(&w, site, false);
	stubs[i].target = w.user;
	stubs[i].site = site->addr;
	__builtin_memcpy(stubs[i].code, w.code, w.length);
	area->used++;
	site->patch_length = 0;
	site->slot = stubs[i].target;
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

int process_patch_release(struct vmi_patch_area *area, u64 stub)
{
	struct stub *stubs = stubs_of(area);
	u64 offset = stub - area->user, index = offset / STUB_SIZE;

	if (!shared->thread_descriptors)
		return -VMI_ENOSYS;
	/* The address of the stub or of its code, whichever the kernel was given. */
	offset %= STUB_SIZE;
	if (area_bad(area) || stub < area->user ||
	    (offset && offset != offsetof(struct stub, code)) ||
	    index >= area->size / STUB_SIZE ||
	    (!stubs[index].site && !FAULT(PATCH_RELEASE_AGAIN)))
		return -VMI_ENOENT;
	stubs[index].site = 0;
	area->used--;
	return 0;
}

int process_patch_fixup(const struct vmi_patch_area *area, u64 *rip, u64 *rax)
{
	const struct stub *stubs = stubs_of(area);
	u64 i;

	(void)rax;
	if (!shared->thread_descriptors)
		return -VMI_ENOSYS;
	if (area_bad(area) || !area_low(area))
		return -VMI_ENOENT;
	for (i = 0; i < area->size / STUB_SIZE; i++) {
		if (!stubs[i].site || stubs[i].site + 5 != *rip)
			continue;
		*rip += FAULT(PATCH_FIXUP_AT_SITE) ? 0 : 2;
		return 0;
	}
	return -VMI_ENOENT;
}

int process_patch_set_entry(u64 entry)
{
	struct vcpu *v = this_vcpu();

	if (!shared->thread_descriptors)
		return -VMI_ENOSYS;
	if (entry && !kernel_address(entry) && !FAULT(SET_ENTRY_ANYWHERE))
		return -VMI_EINVAL;
	v->stub_entry = entry;
	patch_entry_update(v);
	return 0;
}

int process_patch_code(const struct vmi_syscall_site *site, u64 body, u8 *code, u32 size)
{
	struct writer w = { .user = site->slot };

	if (!shared->thread_descriptors ||
	    ((site->flags & (VMI_SITE_CPUID | VMI_SITE_BODY)) && !cpuid_stubs))
		return -VMI_ENOSYS;
	if (!site->slot || kernel_address(site->slot) ||
	    kernel_address(site->slot + sizeof(w.code)))
		return -VMI_EINVAL;
	switch (site->flags) {
	case 0:
		if (site_bad(site, SYSCALL))
			return -VMI_EINVAL;
		write_syscall(&w, site, !FAULT(STUB_CODE_STAYS));
		break;
	case VMI_SITE_CPUID:
		if (site_bad(site, CPUID) || !body || kernel_address(body))
			return -VMI_EINVAL;
		write_cpuid(&w, site, body);
		break;
	case VMI_SITE_BODY:
		write_bytes(&w, ph_cpuid_body, (u64)(ph_cpuid_body_end - ph_cpuid_body));
		break;
	default:
		return -VMI_EINVAL;
	}
	if (w.far)
		return -VMI_EINVAL;
	if (w.length > size)
		return -VMI_ENOSPC;
	__builtin_memcpy(code, w.code, w.length);
	return (int)w.length;
}

void patch_entry_update(struct vcpu *v)
{
	*(volatile u64 *)((u8 *)v->percpu + F_LSTAR) = v->stub_entry ? v->stub_entry : v->lstar;
}
