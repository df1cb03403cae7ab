// SPDX-License-Identifier: GPL-2.0-only
/* pv_ops.cpu on a layer's section cpu. */
#include <linux/smp.h>
#include <asm/desc.h>
#include <asm/io.h>
#include <asm/msr.h>
#include <asm/paravirt.h>
#include <asm/processor.h>
#include <asm/vmi.h>
#include "vmi.h"

static void vmi_cpuid(unsigned int *eax, unsigned int *ebx, unsigned int *ecx, unsigned int *edx)
{
	struct vmi_cpuid regs = { .eax = *eax, .ecx = *ecx };

	vmi.cpu_cpuid(&regs);
	*eax = regs.eax;
	*ebx = regs.ebx;
	*ecx = regs.ecx;
	*edx = regs.edx;
}

static bool has_breakpoints __ro_after_init = true;

bool vmi_has_breakpoints(void)
{
	return has_breakpoints;
}

static noinstr unsigned long vmi_get_debugreg(int number)
{
	u64 value = 0;

	vmi.cpu_get_dr(number, &value);
	return value;
}

static noinstr void vmi_set_debugreg(int number, unsigned long value)
{
	vmi.cpu_set_dr(number, value);
}

static u64 vmi_read_msr_safe(unsigned int msr, int *err)
{
	u64 value = 0;

	*err = vmi.cpu_read_msr(msr, &value) ? -EIO : 0;
	return value;
}

static int vmi_write_msr_safe(unsigned int msr, unsigned int low, unsigned int high)
{
	u64 value = (u64)high << 32 | low;

	switch (msr) {
	case MSR_LSTAR:
		if (vmi_low) {
			value = vmi_sites_lstar();
			vmi_sites_enter();
		}
		break;
	case MSR_GS_BASE:
		/* The per-CPU data of the boot vCPU moves once. */
		vmi_percpu_table[smp_processor_id()] =
			(void *)(value + (unsigned long)&vmi_percpu);
		break;
	}
	return vmi.cpu_write_msr(msr, value) ? -EIO : 0;
}

static u64 vmi_read_msr(unsigned int msr)
{
	int err;

	return vmi_read_msr_safe(msr, &err);
}

static void vmi_write_msr(unsigned int msr, unsigned int low, unsigned int high)
{
	if (vmi_write_msr_safe(msr, low, high))
		pr_debug("vmi: MSR %#x does not take %#x%08x\n", msr, high, low);
}

static u64 vmi_read_pmc(int counter)
{
	u64 value = 0;

	vmi.cpu_read_pmc(counter, &value);
	return value;
}

static void vmi_load_gdt(const struct desc_ptr *table)
{
	struct vmi_table_register reg = { .limit = table->size, .base = table->address };

	vmi.cpu_set_gdt(&reg);
}

unsigned long vmi_idt __ro_after_init;

static void vmi_load_idt(const struct desc_ptr *table)
{
	struct vmi_table_register reg = { .limit = table->size, .base = table->address };

	/*
	 * Linux loads a read-only alias, which hides the table's address from sidt. A layer reads
	 * the table at every exception, so it gets the table itself, which is always mapped.
	 */
	if (!vmi_idt)
		vmi_idt = table->address;
	if (vmi_low && table->address == CPU_ENTRY_AREA_RO_IDT)
		reg.base = vmi_idt;
	vmi.cpu_set_idt(&reg);
}

static unsigned long vmi_store_tr(void)
{
	return GDT_ENTRY_TSS * 8;
}

static void vmi_load_tls(struct thread_struct *t, unsigned int cpu)
{
	u64 *gdt = (u64 *)get_cpu_gdt_rw(cpu);

	BUILD_BUG_ON(sizeof(t->tls_array[0]) != sizeof(u64));
	vmi.cpu_set_tls(gdt, GDT_ENTRY_TLS_MIN, (const u64 *)t->tls_array, GDT_ENTRY_TLS_ENTRIES);
}

static void vmi_load_gs_index(unsigned int selector)
{
	if (vmi.cpu_load_gs(selector))
		vmi.cpu_load_gs(0);
}

static void vmi_write_ldt_entry(struct desc_struct *ldt, int entry, const void *desc)
{
	vmi.cpu_write_ldt((u64 *)ldt, entry, *(const u64 *)desc);
}

static void vmi_write_gdt_entry(struct desc_struct *gdt, int entry, const void *desc, int type)
{
	bool system = type == DESC_TSS || type == DESC_LDT;

	vmi.cpu_write_gdt((u64 *)gdt, entry, desc, system ? 2 : 1);
}

static void vmi_write_idt_entry(gate_desc *idt, int entry, const gate_desc *gate)
{
	gate_desc copy = *gate;
	unsigned long target = vmi_gate_target(entry, gate_offset(gate));
	u64 words[2];

	BUILD_BUG_ON(sizeof(copy) != sizeof(words));
	copy.offset_low = target;
	copy.offset_middle = target >> 16;
	copy.offset_high = target >> 32;
	memcpy(words, &copy, sizeof(words));
	vmi.cpu_write_idt((u64 *)idt, entry, words[0], words[1]);
}

static void vmi_set_ldt(const void *addr, unsigned int entries)
{
	if (!entries) {
		vmi.cpu_set_ldt(0);
	} else {
		unsigned int cpu = smp_processor_id();
		ldt_desc ldt;

		set_tssldt_descriptor(&ldt, (unsigned long)addr, DESC_LDT,
				      entries * LDT_ENTRY_SIZE - 1);
		vmi_write_gdt_entry(get_cpu_gdt_rw(cpu), GDT_ENTRY_LDT, &ldt, DESC_LDT);
		vmi.cpu_set_ldt(GDT_ENTRY_LDT * 8);
	}
}

static void vmi_load_sp0(unsigned long sp0)
{
	vmi.cpu_set_kernel_stack(this_cpu_ptr(&cpu_tss_rw.x86_tss), sp0);
}

void __init vmi_init_cpu_ops(void)
{
	u64 address;

	has_breakpoints = vmi.cpu_get_dr(0, &address) != -VMI_ENOSYS;
	/* Primitive calls keep at least the registers that a function must keep. */
	vmi_use(&pv_ops.cpu.cpuid, VMI_CALL_CPU_CPUID, vmi_cpuid);
	vmi_use(&pv_ops.cpu.get_debugreg, VMI_CALL_CPU_GET_DR, vmi_get_debugreg);
	vmi_use(&pv_ops.cpu.set_debugreg, VMI_CALL_CPU_SET_DR, vmi_set_debugreg);
	vmi_use(&pv_ops.cpu.read_cr0, VMI_CALL_CPU_GET_CR0, vmi.cpu_get_cr0);
	vmi_use(&pv_ops.cpu.write_cr0, VMI_CALL_CPU_SET_CR0, vmi.cpu_set_cr0);
	vmi_use(&pv_ops.cpu.write_cr4, VMI_CALL_CPU_SET_CR4, vmi.cpu_set_cr4);
	vmi_use(&pv_ops.cpu.read_msr, VMI_CALL_CPU_READ_MSR, vmi_read_msr);
	vmi_use(&pv_ops.cpu.read_msr_safe, VMI_CALL_CPU_READ_MSR, vmi_read_msr_safe);
	vmi_use(&pv_ops.cpu.write_msr, VMI_CALL_CPU_WRITE_MSR, vmi_write_msr);
	vmi_use(&pv_ops.cpu.write_msr_safe, VMI_CALL_CPU_WRITE_MSR, vmi_write_msr_safe);
	vmi_use(&pv_ops.cpu.io_delay, VMI_CALL_CPU_IO_DELAY, vmi.cpu_io_delay);
	vmi_use(&pv_ops.cpu.wbinvd, VMI_CALL_CPU_WBINVD, vmi.cpu_wbinvd);
	vmi_use(&pv_ops.cpu.read_pmc, VMI_CALL_CPU_READ_PMC, vmi_read_pmc);
	vmi_use(&pv_ops.cpu.set_ldt, VMI_CALL_CPU_SET_LDT, vmi_set_ldt);
	vmi_use(&pv_ops.cpu.load_gdt, VMI_CALL_CPU_SET_GDT, vmi_load_gdt);
	vmi_use(&pv_ops.cpu.load_idt, VMI_CALL_CPU_SET_IDT, vmi_load_idt);
	vmi_use(&pv_ops.cpu.load_tls, VMI_CALL_CPU_SET_TLS, vmi_load_tls);
	vmi_use(&pv_ops.cpu.load_gs_index, VMI_CALL_CPU_LOAD_GS, vmi_load_gs_index);
	vmi_use(&pv_ops.cpu.write_ldt_entry, VMI_CALL_CPU_WRITE_LDT, vmi_write_ldt_entry);
	vmi_use(&pv_ops.cpu.write_gdt_entry, VMI_CALL_CPU_WRITE_GDT, vmi_write_gdt_entry);
	vmi_use(&pv_ops.cpu.write_idt_entry, VMI_CALL_CPU_WRITE_IDT, vmi_write_idt_entry);
	vmi_use(&pv_ops.cpu.load_sp0, VMI_CALL_CPU_SET_KERNEL_STACK, vmi_load_sp0);
	if (!(vmi_layer.rom.header.flags & VMI_HEADER_PARAVIRT))
		return;
	/* These do nothing at privilege level 3. */
	pv_info.name = "VMI";
	pv_ops.cpu.load_tr_desc = paravirt_nop;
	pv_ops.cpu.store_tr = vmi_store_tr;
#ifdef CONFIG_X86_IOPL_IOPERM
	pv_ops.cpu.invalidate_io_bitmap = paravirt_nop;
	pv_ops.cpu.update_io_bitmap = paravirt_nop;
#endif
}
