/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Section cpu: descriptor tables, thread-local storage, segment bases, kernel stack. */
#include "native.h"

#define DESCRIPTORS_MAX 8192
#define GATES_MAX 256
#define GATE_PRESENT (1ULL << 47)
#define TLS_MAX 3
#define ACCESS_PRESENT (1u << 15)
#define TSS_RSP0 4
#define FLAGS_ZF 0x40

void native_cpu_set_gdt(const struct vmi_table_register *table)
{
	struct vmi_table_register wide = { .limit = 0xffff, .base = table->base };

	if (FAULT(SET_GDT_WIDE))
		table = &wide;
	/* limit and base are adjacent: ten bytes in the layout of the instruction. */
	__asm__ volatile("lgdt %0" : : "m"(table->limit), "m"(table->base) : "memory");
}

void native_cpu_get_gdt(struct vmi_table_register *table)
{
	__asm__ volatile("sgdt %0" : "=m"(table->limit), "=m"(table->base) : : "memory");
	if (FAULT(GET_GDT_SIZE))
		table->limit++;
}

void native_cpu_set_idt(const struct vmi_table_register *table)
{
	struct vmi_table_register wide = { .limit = 0xffff, .base = table->base };

	if (FAULT(SET_IDT_WIDE))
		table = &wide;
	__asm__ volatile("lidt %0" : : "m"(table->limit), "m"(table->base) : "memory");
}

void native_cpu_get_idt(struct vmi_table_register *table)
{
	__asm__ volatile("sidt %0" : "=m"(table->limit), "=m"(table->base) : : "memory");
	if (FAULT(GET_IDT_SIZE))
		table->limit++;
}

int native_cpu_set_ldt(u32 selector)
{
	int error = -VMI_EFAULT;

	if (selector > 0xffff)
		return error;
	/* A fault leaves LDTR unchanged and continues after the clearing of the error. */
	__asm__ volatile("1: lldt %w[selector]\n\t"
			 "xorl %[error], %[error]\n\t"
			 "2:\n\t" EXTABLE("1b", "2b")
			 : [error] "+&r"(error)
			 : [selector] "r"(selector)
			 : "cc", "memory");
	return FAULT(SET_LDT_NO_ERROR) ? 0 : error;
}

u64 native_cpu_get_ldt(void)
{
	u64 selector;

	__asm__ volatile("sldt %k0" : "=r"(selector));
	return FAULT(GET_LDT_INDEX) ? selector >> 3 & 0x1fff : selector & 0xffff;
}

int native_cpu_set_tr(u32 selector)
{
	int error = -VMI_EFAULT;

	/* A null selector faults on processors, but not on every emulator. */
	if (selector <= 3 || selector > 0xffff)
		return error;
	/* As set_ldt. */
	__asm__ volatile("1: ltr %w[selector]\n\t"
			 "xorl %[error], %[error]\n\t"
			 "2:\n\t" EXTABLE("1b", "2b")
			 : [error] "+&r"(error)
			 : [selector] "r"(selector)
			 : "cc", "memory");
	return FAULT(SET_TR_NO_ERROR) ? 0 : error;
}

u64 native_cpu_get_tr(void)
{
	u64 selector;

	__asm__ volatile("str %k0" : "=r"(selector));
	return FAULT(GET_TR_INDEX) ? selector >> 3 & 0x1fff : selector & 0xffff;
}

int native_cpu_write_gdt(u64 *table, u32 index, const u64 *descriptor, u32 words)
{
	if ((words != 1 && words != 2) || index > DESCRIPTORS_MAX - words)
		return -VMI_EINVAL;
	if (FAULT(WRITE_GDT_ONE_WORD))
		words = 1;
	/* The word with the present bit is written last. */
	while (words--)
		WRITE_ONCE(table[index + words], descriptor[words]);
	return 0;
}

int native_cpu_write_ldt(u64 *table, u32 index, u64 descriptor)
{
	if (index >= DESCRIPTORS_MAX)
		return -VMI_EINVAL;
	if (!FAULT(WRITE_LDT_NOTHING))
		WRITE_ONCE(table[index], descriptor);
	return 0;
}

int native_cpu_write_idt(u64 *table, u32 vector, u64 low, u64 high)
{
	if (vector >= GATES_MAX)
		return -VMI_EINVAL;
	if (FAULT(WRITE_IDT_ONCE) && table[2 * vector] & GATE_PRESENT)
		return 0;
	WRITE_ONCE(table[2 * vector + 1], high);
	WRITE_ONCE(table[2 * vector], low);
	return 0;
}

int native_cpu_set_tls(u64 *table, u32 index, const u64 *descriptors, u32 count)
{
	if (!count || count > TLS_MAX || index > DESCRIPTORS_MAX - count)
		return -VMI_EINVAL;
	if (FAULT(SET_TLS_SHORT))
		count--;
	for (u32 i = 0; i < count; i++)
		WRITE_ONCE(table[index + i], descriptors[i]);
	return 0;
}

/* Whether a data segment register can take the selector at privilege level 0. */
static bool selector_loads(u32 selector)
{
	u32 rights = 0;
	u64 flags;

	if (selector > 0xffff)
		return false;
	if (selector <= 3)
		return true; /* null */
	/* verr and lar examine the descriptor without a fault and report in ZF. */
	__asm__ volatile("verr %w1; pushfq; popq %0" : "=r"(flags) : "r"(selector) : "cc");
	if (!(flags & FLAGS_ZF))
		return false;
	__asm__ volatile("larl %2, %1; pushfq; popq %0"
			 : "=r"(flags), "+r"(rights)
			 : "r"(selector)
			 : "cc");
	return flags & FLAGS_ZF && rights & ACCESS_PRESENT;
}

int native_cpu_load_gs(u32 selector)
{
	/*
	 * Examined before the load, so that a bad selector does not fault there: between the two
	 * swapgs the GS base is the user's, which a fault handler cannot use.
	 */
	int error = selector_loads(selector) ? 0 : -VMI_EFAULT;
	u64 flags = cpu_irq_save();

	if (error)
		selector = 0;
	/*
	 * Interrupts are off, so only an NMI can intervene. If another vCPU changes the
	 * descriptor at this moment, the load can still fault. GS then keeps its selector.
	 */
	__asm__ volatile("swapgs\n\t"
			 "1: movl %0, %%gs\n\t"
			 "2: swapgs\n\t" EXTABLE("1b", "2b")
			 :
			 : "r"(selector)
			 : "memory");
	cpu_irq_restore(flags);
	return FAULT(LOAD_GS_NO_ERROR) ? 0 : error;
}

static u64 read_base_msr(u32 msr)
{
	u64 value;

	cpu_rdmsr(msr, &value); /* every 64-bit processor has it */
	return value;
}

u64 native_cpu_get_fs_base(void)
{
	u64 value;

	if (FAULT(GET_FS_BASE_LOW))
		return (u32)read_base_msr(MSR_FS_BASE);
	if (!(cpu_cr4() & CR4_FSGSBASE))
		return read_base_msr(MSR_FS_BASE);
	__asm__ volatile("rdfsbase %0" : "=r"(value));
	return value;
}

int native_cpu_set_fs_base(u64 base)
{
	u64 cr4 = cpu_cr4();

	if (!canonical(base, cr4))
		return FAULT(SET_FS_BASE_NO_ERROR) ? 0 : -VMI_EFAULT;
	if (!(cr4 & CR4_FSGSBASE))
		return cpu_wrmsr(MSR_FS_BASE, base);
	/* CR4 allows it and the address is canonical. */
	__asm__ volatile("wrfsbase %0" : : "r"(base) : "memory");
	return 0;
}

u64 native_cpu_get_gs_base(void)
{
	u64 value;

	if (FAULT(GET_GS_BASE_USER))
		return read_base_msr(MSR_KERNEL_GS_BASE);
	if (!(cpu_cr4() & CR4_FSGSBASE))
		return read_base_msr(MSR_GS_BASE);
	__asm__ volatile("rdgsbase %0" : "=r"(value));
	return value;
}

int native_cpu_set_gs_base(u64 base)
{
	u64 cr4 = cpu_cr4();

	if (!canonical(base, cr4))
		return FAULT(SET_GS_BASE_NO_ERROR) ? 0 : -VMI_EFAULT;
	if (!(cr4 & CR4_FSGSBASE))
		return cpu_wrmsr(MSR_GS_BASE, base);
	/* CR4 allows it and the address is canonical. */
	__asm__ volatile("wrgsbase %0" : : "r"(base) : "memory");
	return 0;
}

u64 native_cpu_get_user_gs_base(void)
{
	return read_base_msr(FAULT(GET_USER_GS_BASE_KERNEL) ? MSR_GS_BASE : MSR_KERNEL_GS_BASE);
}

int native_cpu_set_user_gs_base(u64 base)
{
	if (!canonical(base, cpu_cr4()))
		return FAULT(SET_USER_GS_BASE_NO_ERROR) ? 0 : -VMI_EFAULT;
	return cpu_wrmsr(MSR_KERNEL_GS_BASE, base);
}

void native_cpu_set_kernel_stack(void *tss, u64 rsp0)
{
	struct unaligned {
		u64 value;
	} __attribute__((packed, may_alias)) *slot = (void *)((u8 *)tss + TSS_RSP0);

	slot->value = FAULT(KERNEL_STACK_LOW) ? rsp0 - 64 : rsp0;
}
