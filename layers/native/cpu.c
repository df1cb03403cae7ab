/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Section cpu: registers. Primitives are in primitives.S, descriptors in segment.c, ports in
 * port.c.
 */
#include "native.h"

int native_cpu_get_dr(u32 number, u64 *value)
{
	u64 result;

	if (FAULT(GET_DR7_IS_DR6) && number == 7)
		number = 6;
	switch (number) {
	case 0:
		__asm__ volatile("movq %%dr0, %0" : "=r"(result));
		break;
	case 1:
		__asm__ volatile("movq %%dr1, %0" : "=r"(result));
		break;
	case 2:
		__asm__ volatile("movq %%dr2, %0" : "=r"(result));
		break;
	case 3:
		__asm__ volatile("movq %%dr3, %0" : "=r"(result));
		break;
	case 6:
		__asm__ volatile("movq %%dr6, %0" : "=r"(result));
		break;
	case 7:
		__asm__ volatile("movq %%dr7, %0" : "=r"(result));
		break;
	default:
		return -VMI_EINVAL;
	}
	*value = result;
	return 0;
}

int native_cpu_set_dr(u32 number, u64 value)
{
	if (FAULT(SET_DR_CUTS) && number > 5)
		value = (u32)value;
	/* Bits 63:32 of the last two raise #GP: refused below. */
	switch (number) {
	case 0:
		__asm__ volatile("movq %0, %%dr0" : : "r"(value) : "memory");
		return 0;
	case 1:
		__asm__ volatile("movq %0, %%dr1" : : "r"(value) : "memory");
		return 0;
	case 2:
		__asm__ volatile("movq %0, %%dr2" : : "r"(value) : "memory");
		return 0;
	case 3:
		__asm__ volatile("movq %0, %%dr3" : : "r"(value) : "memory");
		return 0;
	case 6:
		if (value >> 32)
			return -VMI_EINVAL;
		__asm__ volatile("movq %0, %%dr6" : : "r"(value) : "memory");
		return 0;
	case 7:
		if (value >> 32)
			return -VMI_EINVAL;
		__asm__ volatile("movq %0, %%dr7" : : "r"(value) : "memory");
		return 0;
	default:
		return -VMI_EINVAL;
	}
}

int native_cpu_read_msr(u32 msr, u64 *value)
{
	int error = cpu_rdmsr(msr, value);

	if (FAULT(READ_MSR_LOW))
		*value = (u32)*value;
	return error;
}

/* Registers that hold a linear address. Not every emulator checks it. */
static bool msr_is_address(u32 msr)
{
	switch (msr) {
	case MSR_SYSENTER_ESP:
	case MSR_SYSENTER_EIP:
	case MSR_LSTAR:
	case MSR_CSTAR:
	case MSR_FS_BASE:
	case MSR_GS_BASE:
	case MSR_KERNEL_GS_BASE:
		return true;
	default:
		return false;
	}
}

int native_cpu_write_msr(u32 msr, u64 value)
{
	int error;

	if (msr_is_address(msr) && !canonical(value, cpu_cr4()))
		return FAULT(WRITE_MSR_NO_ERROR) ? 0 : -VMI_EFAULT;
	error = cpu_wrmsr(msr, value);
	if (msr == MSR_APIC_BASE && native.ready) {
		native_self()->apic_mode = NATIVE_APIC_UNKNOWN;
		native_self()->timer_lvt = 0; /* lost if the APIC was off */
	}
	return FAULT(WRITE_MSR_NO_ERROR) ? 0 : error;
}

int native_cpu_read_pmc(u32 counter, u64 *value)
{
	u32 low = 0, high = 0;
	int error = -VMI_EFAULT;

	/* As in cpu_rdmsr(): the error stays after a fault. */
	__asm__ volatile("1: rdpmc\n\t"
			 "xorl %[error], %[error]\n\t"
			 "2:\n\t" EXTABLE("1b", "2b")
			 : [error] "+&r"(error), "+a"(low), "+d"(high)
			 : "c"(counter)
			 : "cc");
	if (!error || !FAULT(READ_PMC_KEEPS))
		*value = error ? 0 : (u64)high << 32 | low;
	return error;
}

void native_cpu_cpuid(struct vmi_cpuid *regs)
{
	u32 subleaf = FAULT(CPUID_NO_SUBLEAF) ? 0 : regs->ecx;

	cpu_cpuid(regs->eax, subleaf, &regs->eax, &regs->ebx, &regs->ecx, &regs->edx);
}

int native_cpu_set_xcr(u32 number, u64 value)
{
	int error = -VMI_EFAULT;

	/*
	 * As in cpu_wrmsr(). Without CR4.OSXSAVE this is an invalid opcode, and the error stays
	 * too.
	 */
	__asm__ volatile("1: xsetbv\n\t"
			 "xorl %[error], %[error]\n\t"
			 "2:\n\t" EXTABLE("1b", "2b")
			 : [error] "+&r"(error)
			 : "c"(number), "a"((u32)value), "d"((u32)(value >> 32))
			 : "cc", "memory");
	return FAULT(SET_XCR_NO_ERROR) ? 0 : error;
}

void native_cpu_stop(void)
{
	/* An NMI or SMI ends hlt, so repeat it. */
	for (;;) {
		if (FAULT(STOP_TAKES_INTERRUPTS))
			__asm__ volatile("sti; hlt" : : : "memory");
		__asm__ volatile("cli; hlt" : : : "memory");
	}
}
