// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * What cpuid returns: the zygote reads it once and all processes inherit it. The instruction is an
 * expensive exit where the host is a virtual machine, and faults where the guest kernel wants it
 * to.
 */
#include "host/cpuid.h"
#include "host/call.h"
#include "host/fatal.h"
#include "state/cpu.h"
#include "state/state.h"

#define ARCH_SET_CPUID 0x1012

#define EXTENDED 0x80000000U
#define LEAVES_MAX 0x100	/* of each range; the manuals define no more */
#define SUBLEAVES_MAX 64

/*
 * All leaves of the host, and those that stubs know, in the order in which they search. Only the
 * zygote writes here.
 */
static struct cpuid_entry host[512];
static u32 host_count, host_extended;
static u32 basic_max, extended_max;
extern struct cpuid_entry cpuid_stub_table[];
struct cpuid_entry cpuid_stub_table[ARRAY_SIZE(host) + 1];

static void execute(u32 leaf, u32 subleaf, struct vmi_cpuid *regs)
{
	__asm__ volatile("cpuid" : "=a"(regs->eax), "=b"(regs->ebx), "=c"(regs->ecx),
			 "=d"(regs->edx)
			 : "a"(leaf), "c"(subleaf));
}

static void zero(struct vmi_cpuid *regs)
{
	regs->eax = regs->ebx = regs->ecx = regs->edx = 0;
}

static bool is_zero(const struct vmi_cpuid *regs)
{
	return !(regs->eax | regs->ebx | regs->ecx | regs->edx);
}

static bool same(const struct vmi_cpuid *a, const struct vmi_cpuid *b)
{
	return a->eax == b->eax && a->ebx == b->ebx && a->ecx == b->ecx && a->edx == b->edx;
}

static bool add(u32 leaf, u32 subleaf, const struct vmi_cpuid *regs)
{
	if (host_count == ARRAY_SIZE(host))
		return false;
	host[host_count++] =
		(struct cpuid_entry){ leaf, subleaf, regs->eax, regs->ebx, regs->ecx, regs->edx };
	return true;
}

/* How the end of a leaf's subleaves is known (SDM volume 2A, CPUID; APM volume 3, appendix E). */
enum kind {
	SINGLE,		/* no subleaves */
	COUNTED,	/* eax of subleaf 0 is the last subleaf */
	TYPED,		/* the type in the low bits of eax is 0 after the last subleaf */
	LEVELS,		/* the type in bits 8 to 15 of ecx is 0 after the last subleaf */
	MASKED,		/* the subleaves whose bits are set (mask_of) */
	UNKNOWN,	/* all zero after the last subleaf; or all subleaves are the same */
};

static enum kind kind_of(u32 leaf)
{
	switch (leaf) {
	case 0 ... 3: case 5: case 6: case 8 ... 0xa: case 0xc: case 0xe: case 0x11: case 0x13:
	case 0x15: case 0x16: case 0x19: case 0x1a: case 0x1c: case 0x21:
	case EXTENDED ... EXTENDED + 0x1c: case EXTENDED + 0x1e: case EXTENDED + 0x1f:
	case EXTENDED + 0x21 ... EXTENDED + 0x25:
		return SINGLE;
	case 7: case 0x14: case 0x17: case 0x18: case 0x1d: case 0x20: case 0x24:
		return COUNTED;
	case 4: case 0x1b: case EXTENDED + 0x1d:
		return TYPED;
	case 0xb: case 0x1f: case EXTENDED + 0x26:
		return LEVELS;
	case 0xd: case 0xf: case 0x10: case 0x23: case EXTENDED + 0x20:
		return MASKED;
	default:
		return UNKNOWN;
	}
}

/* Executing cpuid for each of 64 subleaves would take longer than all other leaves together. */
static u64 mask_of(u32 leaf, const struct vmi_cpuid *first)
{
	struct vmi_cpuid second;

	switch (leaf) {
	case 0xd:
		/* Components of XCR0 and of XSS. */
		execute(leaf, 1, &second);
		return (u64)(first->edx | second.edx) << 32 | first->eax | second.ecx | 2;
	case 0xf:
		return first->edx;
	case 0x23:
		return first->eax;
	default:
		return first->ebx;
	}
}

static bool read_leaf(u32 leaf)
{
	enum kind kind = kind_of(leaf);
	u32 subleaf, last = SUBLEAVES_MAX - 1;
	struct vmi_cpuid first, regs;
	u64 mask = ~0ULL;

	execute(leaf, 0, &first);
	if (kind == SINGLE)
		return add(leaf, CPUID_ANY, &first);
	if (kind == UNKNOWN) {
		execute(leaf, last, &regs);
		if (same(&regs, &first))
			return add(leaf, CPUID_ANY, &first);
	}
	if (!add(leaf, 0, &first))
		return false;
	if (kind == COUNTED && first.eax < last)
		last = first.eax;
	if (kind == MASKED)
		mask = mask_of(leaf, &first);
	regs = first;
	for (subleaf = 1; subleaf <= last; subleaf++) {
		/* The previous subleaf was the end, which is recorded too. */
		if ((kind == TYPED && !(regs.eax & 0x1f)) ||
		    (kind == LEVELS && !(regs.ecx & 0xff00)))
			break;
		if (!(mask >> subleaf & 1))
			continue;
		execute(leaf, subleaf, &regs);
		if (kind == UNKNOWN && is_zero(&regs))
			break;
		if (!add(leaf, subleaf, &regs))
			return false;
	}
	return true;
}

bool cpuid_prepare(void)
{
	struct vmi_cpuid regs;
	u32 i;

	execute(0, 0, &regs);
	basic_max = regs.eax;
	execute(EXTENDED, 0, &regs);
	extended_max = regs.eax;
	for (i = 0; i <= basic_max && i < LEAVES_MAX; i++)
		if (!read_leaf(i))
			return false;
	host_extended = host_count;
	for (i = 0; extended_max >= EXTENDED && i <= extended_max - EXTENDED && i < LEAVES_MAX; i++)
		if (!read_leaf(EXTENDED + i))
			return false;
	return true;
}

u64 cpuid_cycles(void)
{
	struct vmi_cpuid regs;
	u64 start = rdtsc();

	execute(0, 0, &regs);
	return rdtsc() - start;
}

bool cpuid_intel(void)
{
	return host[0].ebx == 0x756e6547 && host[0].edx == 0x49656e69 && host[0].ecx == 0x6c65746e;
}

void cpuid_host(u32 leaf, u32 subleaf, struct vmi_cpuid *regs)
{
	u32 i;

	if (leaf > basic_max && (leaf < EXTENDED || leaf > extended_max)) {
		/*
		 * For an unknown leaf Intel's processors return the last basic leaf, others zeros.
		 */
		if (!cpuid_intel()) {
			zero(regs);
			return;
		}
		leaf = basic_max;
	}
	for (i = leaf < EXTENDED ? 0 : host_extended; i < host_count; i++) {
		const struct cpuid_entry *e = &host[i];

		if (e->leaf != leaf || (e->subleaf != subleaf && e->subleaf != CPUID_ANY))
			continue;
		*regs = (struct vmi_cpuid){ e->eax, e->ebx, e->ecx, e->edx };
		return;
	}
	zero(regs);
	if (kind_of(leaf) == LEVELS)
		regs->ecx = subleaf & 0xff;
}

/* Leaves with the processor's number in them differ between vCPUs. */
static bool of_vcpu(u32 leaf)
{
	return leaf == 1 || leaf == 0xb || leaf == 0x1f || leaf == EXTENDED + 0x1e ||
	       leaf == EXTENDED + 0x26;
}

/* Whether there are cores of more than one kind (SDM volume 2A, CPUID, leaf 7). */
static bool hybrid(void)
{
	struct vmi_cpuid regs;

	if (basic_max < 7)
		return false;
	cpuid_host(7, 0, &regs);
	return regs.edx >> 15 & 1;
}

/*
 * Whether the instruction returns the same whenever and wherever it executes. The processor's
 * number does not count if there is one vCPU: it moves between the host's processors, so any of
 * their numbers will do.
 */
static bool constant(u32 leaf)
{
	if (of_vcpu(leaf) && shared->s.vcpu_count > 1)
		return false;
	switch (leaf) {
	/* turbo, which can be turned off; the processor's row in the hardware feedback table */
	case 6:
	case EXTENDED + 6:	/* AMD's third-level caches may have different sizes */
	case EXTENDED + 0x1d:
	case CPUID_NONE:	/* marks the end of the table */
		return false;
	}
	if (!hybrid())
		return true;
	/* Caches, TLBs, counters and frequencies differ, but not what programs may execute. */
	switch (leaf) {
	case 0: case 1: case 7: case 0xd:
	case EXTENDED ... EXTENDED + 4: case EXTENDED + 7: case EXTENDED + 8:
		return true;
	default:
		return false;
	}
}

static struct cpuid_entry *copy(struct cpuid_entry *to, u32 leaf)
{
	u32 i;

	if (!constant(leaf))
		return to;
	for (i = 0; i < host_count; i++)
		if (host[i].leaf == leaf)
			*to++ = host[i];
	return to;
}

/*
 * The sizes of caches come first: a C library asks for them whenever a program starts. Programs
 * execute cpuid for leaves that are left out.
 */
bool cpuid_stubs_prepare(void)
{
	static const u32 first[] = { 4, 2, 0xd, 7, 0, 1, EXTENDED, EXTENDED + 1, EXTENDED + 8 };
	struct cpuid_entry *to = cpuid_stub_table;
	struct vmi_cpuid regs;
	u32 i, k;

	/* lahf and sahf in 64-bit mode. */
	cpuid_host(EXTENDED + 1, 0, &regs);
	if (!(regs.ecx & 1))
		return false;
	for (k = 0; k < ARRAY_SIZE(first); k++)
		to = copy(to, first[k]);
	for (i = 0; i < host_count; i++) {
		u32 leaf = host[i].leaf;

		for (k = 0; k < ARRAY_SIZE(first) && leaf != first[k]; k++)
			;
		if (k == ARRAY_SIZE(first) && (!i || leaf != host[i - 1].leaf))
			to = copy(to, leaf);
	}
	to->leaf = CPUID_NONE;
	return true;
}

void cpuid_faulting_set(const struct vcpu *v)
{
	struct thread *t = thread_of(v);
	s64 error = host2(arch_prctl, ARCH_SET_CPUID, !v->user_cpuid_faults);

	if (error)
		fatal("the host does not make cpuid fault any more", (u64)-error);
	t->cpuid_faults = v->user_cpuid_faults;
}

u64 xcr0_shown(void)
{
	u32 low, high;

	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	/* PKRU, TILECFG, TILEDATA */
	return ((u64)high << 32 | low) & ~(1ULL << 9 | 3ULL << 17);
}
