/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Privileged instructions as functions. */
#ifndef LAYER_CPU_H
#define LAYER_CPU_H

#include "extable.h"
#include "types.h"

#define CR0_PE (1ULL << 0)
#define CR0_PG (1ULL << 31)
#define CR3_ADDRESS 0x000ffffffffff000ULL
#define CR4_PAE (1ULL << 5)
#define CR4_PGE (1ULL << 7)
#define CR4_LA57 (1ULL << 12)
#define CR4_FSGSBASE (1ULL << 16)
#define EFER_LME (1ULL << 8)

#define MSR_APIC_BASE 0x1b
#define MSR_SYSENTER_ESP 0x175
#define MSR_SYSENTER_EIP 0x176
#define MSR_TSC_DEADLINE 0x6e0
#define MSR_X2APIC 0x800
#define MSR_EFER 0xc0000080
#define MSR_LSTAR 0xc0000082
#define MSR_CSTAR 0xc0000083
#define MSR_FS_BASE 0xc0000100
#define MSR_GS_BASE 0xc0000101
#define MSR_KERNEL_GS_BASE 0xc0000102

#define APIC_BASE_X2APIC (1ULL << 10)

static inline u64 cpu_irq_save(void)
{
	u64 flags;

	/* The kernel's stack has no red zone, so pushing is safe. */
	__asm__ volatile("pushfq; popq %0; cli" : "=r"(flags) : : "memory");
	return flags;
}

static inline void cpu_irq_restore(u64 flags)
{
	/* flags came from cpu_irq_save on this vCPU, so only IF can differ in what matters. */
	__asm__ volatile("pushq %0; popfq" : : "r"(flags) : "memory", "cc");
}

static inline void cpu_pause(void)
{
	__asm__ volatile("pause" : : : "memory");
}

static inline u64 cpu_cr3(void)
{
	u64 value;

	__asm__ volatile("movq %%cr3, %0" : "=r"(value));
	return value;
}

static inline void cpu_set_cr3(u64 value)
{
	/* The code that runs is mapped in every space. */
	__asm__ volatile("movq %0, %%cr3" : : "r"(value) : "memory");
}

static inline u16 cpu_cs(void)
{
	u16 value;

	__asm__("movw %%cs, %0" : "=r"(value));
	return value;
}

static inline u64 cpu_cr4(void)
{
	u64 value;

	__asm__ volatile("movq %%cr4, %0" : "=r"(value));
	return value;
}

static inline void cpu_set_cr4(u64 value)
{
	/* value is the current one with one bit changed, which the processor supports. */
	__asm__ volatile("movq %0, %%cr4" : : "r"(value) : "memory");
}

static inline void cpu_invlpg(u64 va)
{
	/* invlpg does not access the address: it may be unmapped or not canonical. */
	__asm__ volatile("invlpg (%0)" : : "r"(va) : "memory");
}

/* The counter, not read before earlier instructions are done. */
static inline u64 cpu_tsc(void)
{
	u32 low, high;

	__asm__ volatile("lfence; rdtsc" : "=a"(low), "=d"(high) : : "memory");
	return (u64)high << 32 | low;
}

static inline void cpu_cpuid(u32 leaf, u32 subleaf, u32 *a, u32 *b, u32 *c, u32 *d)
{
	__asm__ volatile("cpuid"
			 : "=a"(*a), "=b"(*b), "=c"(*c), "=d"(*d)
			 : "0"(leaf), "2"(subleaf));
}

/*
 * Calls that may fault load the error into a register first and clear it after the instruction. If
 * that faults, the exception table continues after the clearing.
 */
static inline int cpu_rdmsr(u32 msr, u64 *value)
{
	u32 low = 0, high = 0;
	int error = -VMI_EFAULT;

	__asm__ volatile("1: rdmsr\n\t"
			 "xorl %[error], %[error]\n\t"
			 "2:\n\t" EXTABLE("1b", "2b")
			 : [error] "+&r"(error), "+a"(low), "+d"(high)
			 : "c"(msr)
			 : "cc");
	*value = error ? 0 : (u64)high << 32 | low;
	return error;
}

static inline int cpu_wrmsr(u32 msr, u64 value)
{
	int error = -VMI_EFAULT;

	__asm__ volatile("1: wrmsr\n\t"
			 "xorl %[error], %[error]\n\t"
			 "2:\n\t" EXTABLE("1b", "2b")
			 : [error] "+&r"(error)
			 : "c"(msr), "a"((u32)value), "d"((u32)(value >> 32))
			 : "cc", "memory");
	return error;
}

/* Canonical for the paging mode in cr4: the bits above the highest one repeat it. */
static inline bool canonical(u64 address, u64 cr4)
{
	unsigned int shift = cr4 & CR4_LA57 ? 64 - 57 : 64 - 48;

	return (u64)((s64)(address << shift) >> shift) == address;
}

/* a * b / c; c must not be 0. Saturates where divq would fault. */
static inline u64 mul_div(u64 a, u64 b, u64 c)
{
	u128 product = (u128)a * b;
	u64 high = (u64)(product >> 64), low = (u64)product;

	if (high >= c)
		return U64_MAX;
	/* high < c, so the quotient fits. */
	__asm__("divq %2" : "+a"(low), "+d"(high) : "r"(c) : "cc");
	return low;
}

#endif
