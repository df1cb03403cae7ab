// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Section cpu: registers that are only stored, and the effects of those that have one. */
#include "calls/calls.h"
#include "crossing/crossing.h"
#include "host/cpuid.h"
#include "mm/flush.h"
#include "state/cpu.h"
#include "state/state.h"
#include "vcpu/irq.h"
#include "vcpu/percpu.h"
#include "vcpu/wait.h"

#define CR0_PE 1ULL
#define CR0_TS 8ULL
#define CR0_PG 0x80000000ULL
#define CR4_PAE 0x20ULL
#define CR4_PGE 0x80ULL

void process_cpu_halt(void)
{
	struct vcpu *v = this_vcpu();

	FAST(v, F_IRQ) = 1;
	irq_wait(v, false, true);
}

u64 process_cpu_get_cr0(void)
{
	return this_vcpu()->cr0;
}

void process_cpu_set_cr0(u64 value)
{
	this_vcpu()->cr0 = value | CR0_PE | CR0_PG;
}

void process_cpu_clts(void)
{
	this_vcpu()->cr0 &= ~CR0_TS;
}

u64 process_cpu_get_cr2(void)
{
	return this_vcpu()->cr2;
}

void process_cpu_set_cr2(u64 value)
{
	this_vcpu()->cr2 = value;
}

u64 process_cpu_get_cr4(void)
{
	return this_vcpu()->cr4;
}

void process_cpu_set_cr4(u64 value)
{
	struct vcpu *v = this_vcpu();
	u64 changed = v->cr4 ^ value;

	v->cr4 = value | CR4_PAE;
	if (changed & CR4_PGE) {
		__atomic_fetch_add(&shared->kernel_generation, 1, __ATOMIC_SEQ_CST);
		tlb_flush(v, PHV_USER_START, PHV_KERNEL_END);
	}
}

u64 process_cpu_get_cr8(void)
{
	return this_vcpu()->cr8;
}

void process_cpu_set_cr8(u64 value)
{
	struct vcpu *v = this_vcpu();

	v->cr8 = value & 15;
	irq_refresh(v);
}

/*
 * Debug registers cannot be set inside the sandbox. A breakpoint must fail visibly instead of never
 * being hit.
 */
int process_cpu_get_dr(u32 number, u64 *value)
{
	struct vcpu *v = this_vcpu();

	if (number > 7 || number == 4 || number == 5)
		return -VMI_EINVAL;
	if (number < 4)
		return -VMI_ENOSYS;
	*value = v->dr[number];
	return 0;
}

int process_cpu_set_dr(u32 number, u64 value)
{
	struct vcpu *v = this_vcpu();

	if (number > 7 || number == 4 || number == 5 || (number > 5 && value >> 32))
		return -VMI_EINVAL;
	if (number < 4 || (number == 7 && (value & 0xff)))
		return -VMI_ENOSYS;
	v->dr[number] = number == 6 ? (value & 0xe00f) | 0xffff0ff0 : 0x400;
	return 0;
}

int process_cpu_read_pmc(u32 counter, u64 *value)
{
	(void)counter;
	*value = 0;
	return -VMI_EFAULT;
}

void process_cpu_set_gdt(const struct vmi_table_register *table)
{
	struct vcpu *v = this_vcpu();

	v->gdt_base = table->base;
	v->gdt_limit = table->limit;
}

void process_cpu_get_gdt(struct vmi_table_register *table)
{
	struct vcpu *v = this_vcpu();

	table->base = v->gdt_base;
	table->limit = (u16)v->gdt_limit;
}

void process_cpu_set_idt(const struct vmi_table_register *table)
{
	struct vcpu *v = this_vcpu();

	v->idt_base = table->base;
	v->idt_limit = table->limit;
}

void process_cpu_get_idt(struct vmi_table_register *table)
{
	struct vcpu *v = this_vcpu();

	table->base = v->idt_base;
	table->limit = (u16)v->idt_limit;
}

/* The first word of the GDT descriptor that a selector names, or 0. */
static u64 descriptor_of(const struct vcpu *v, u32 selector)
{
	if ((selector & 4) || !(selector & ~7U) || selector > 0xffff ||
	    (selector | 7) > v->gdt_limit)
		return 0;
	return *(const u64 *)to_pointer(v->gdt_base + (selector & ~7U));
}

#define DESCRIPTOR_PRESENT (1ULL << 47)
#define DESCRIPTOR_TYPE(d) ((d) >> 40 & 0x1f)

static int load_system(struct vcpu *v, u32 selector, u32 type, u32 *where)
{
	u64 descriptor = descriptor_of(v, selector);

	if (!(descriptor & DESCRIPTOR_PRESENT) || DESCRIPTOR_TYPE(descriptor) != type)
		return -VMI_EFAULT;
	*where = selector;
	return 0;
}

int process_cpu_set_ldt(u32 selector)
{
	struct vcpu *v = this_vcpu();

	if (!(selector & ~3U)) {
		v->ldt = selector;
		return 0;
	}
	return load_system(v, selector, 2, &v->ldt);
}

u64 process_cpu_get_ldt(void)
{
	return this_vcpu()->ldt;
}

int process_cpu_set_tr(u32 selector)
{
	struct vcpu *v = this_vcpu();
	int r = load_system(v, selector, 9, &v->tr);

	/* A processor marks the descriptor busy. */
	if (!r) {
		u64 *descriptor = to_pointer(v->gdt_base + (selector & ~7U));

		*descriptor |= 1ULL << 41;
		v->rsp0 = 0;
	}
	return r;
}

u64 process_cpu_get_tr(void)
{
	return this_vcpu()->tr;
}

int process_cpu_write_gdt(u64 *table, u32 index, const u64 *descriptor, u32 words)
{
	if (words < 1 || words > 2 || index > 8192 - words)
		return -VMI_EINVAL;
	if (words == 2)
		table[index + 1] = descriptor[1];
	table[index] = descriptor[0];
	return 0;
}

int process_cpu_write_ldt(u64 *table, u32 index, u64 descriptor)
{
	if (index > 8191)
		return -VMI_EINVAL;
	table[index] = descriptor;
	return 0;
}

int process_cpu_write_idt(u64 *table, u32 vector, u64 low, u64 high)
{
	if (vector > 255)
		return -VMI_EINVAL;
	WRITE_ONCE(table[vector * 2 + 1], high);
	WRITE_ONCE(table[vector * 2], low);
	return 0;
}

int process_cpu_set_tls(u64 *table, u32 index, const u64 *descriptors, u32 count)
{
	u32 i;

	if (count < 1 || count > 3 || index > 8192 - count)
		return -VMI_EINVAL;
	for (i = 0; i < count; i++)
		table[index + i] = descriptors[i];
	return 0;
}

int process_cpu_load_gs(u32 selector)
{
	struct vcpu *v = this_vcpu();
	u64 d;

	/*
	 * Loading a selector changes the base, so the kernel's base is loaded again. Selectors that
	 * the host does not have are only stored.
	 */
	v->gs_selector = selector == HOST_USER_SS ? selector : 0;
	load_gs_selector(v->gs_selector);
	wrgsbase(v->kernel_gs);
	if (!(selector & ~3U)) {
		v->user_gs = 0;
		return 0;
	}
	d = descriptor_of(v, selector);
	v->user_gs = 0;
	/* Present, a data segment or a readable code segment. */
	if (!(d & DESCRIPTOR_PRESENT) || !(d >> 44 & 1) || ((d >> 43 & 1) && !(d >> 41 & 1)))
		return -VMI_EFAULT;
	v->user_gs = (d >> 16 & 0xffffff) | (d >> 32 & 0xff000000);
	return 0;
}

static bool canonical(u64 address)
{
	return address + 0x800000000000ULL < 0x1000000000000ULL;
}

u64 process_cpu_get_fs_base(void)
{
	return rdfsbase();
}

int process_cpu_set_fs_base(u64 base)
{
	if (!canonical(base))
		return -VMI_EFAULT;
	wrfsbase(base);
	return 0;
}

u64 process_cpu_get_gs_base(void)
{
	return this_vcpu()->kernel_gs;
}

/* The GS base may be any here. The new base must lead to a vCPU whose per-CPU data is valid. */
int process_cpu_set_gs_base(u64 base)
{
	const u64 *table = to_pointer(shared->percpu_table);
	u32 i;

	if (!canonical(base))
		return -VMI_EFAULT;
	if (!shared->init_done) {
		vcpu_at(0)->kernel_gs = base;
		wrgsbase(base);
		return 0;
	}
	for (i = 0; i < shared->s.vcpu_count && i < PHV_MAX_VCPUS; i++) {
		struct vcpu *v = vcpu_at(i);

		if (!v->percpu || READ_ONCE(table[i]) != base + shared->percpu_gs_offset)
			continue;
		percpu_update(v);
		if ((u64)v->percpu != base + shared->percpu_gs_offset)
			break;
		v->kernel_gs = base;
		wrgsbase(base);
		return 0;
	}
	return -VMI_EFAULT;
}

u64 process_cpu_get_user_gs_base(void)
{
	return this_vcpu()->user_gs;
}

int process_cpu_set_user_gs_base(u64 base)
{
	if (!canonical(base))
		return -VMI_EFAULT;
	this_vcpu()->user_gs = base;
	return 0;
}

void process_cpu_set_kernel_stack(void *tss, u64 rsp0)
{
	/* For the kernel to read. The layer uses its own copy of the stack pointer. */
	__builtin_memcpy((u8 *)tss + 4, &rsp0, 8);
	this_vcpu()->rsp0 = rsp0;
}

static bool port_bad(u32 port, u32 width)
{
	return (width != 1 && width != 2 && width != 4) || port > 65536 - width;
}

/* No port has a device. */
s64 process_cpu_port_in(u32 port, u32 width)
{
	return port_bad(port, width) ? -VMI_EINVAL : (s64)((1ULL << width * 8) - 1);
}

int process_cpu_port_out(u32 port, u32 width, u32 value)
{
	(void)value;
	return port_bad(port, width) ? -VMI_EINVAL : 0;
}

int process_cpu_port_in_string(u32 port, u32 width, void *buffer, u64 count)
{
	if (port_bad(port, width))
		return -VMI_EINVAL;
	__builtin_memset(buffer, 0xff, count * width);
	return 0;
}

int process_cpu_port_out_string(u32 port, u32 width, const void *buffer, u64 count)
{
	(void)buffer;
	(void)count;
	return port_bad(port, width) ? -VMI_EINVAL : 0;
}

/* The host grants its processes no ports. */
int process_cpu_set_io_bitmap(void *tss, const void *bitmap, u32 bytes)
{
	(void)tss;
	(void)bitmap;
	return bytes > 8192 ? -VMI_EINVAL : -VMI_ENOSYS;
}

/*
 * XCR0 stays the host's. A kernel sets the components that it was shown. The others stay enabled,
 * which it cannot see.
 */
int process_cpu_set_xcr(u32 number, u64 value)
{
	return number || value != xcr0_shown() ? -VMI_EFAULT : 0;
}
