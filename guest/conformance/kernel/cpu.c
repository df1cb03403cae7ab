// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "cpu.h"
#include "calls.h"
#include "site.h"
#include "trap.h"

#define MSR_EFER	0xc0000080
#define MSR_STAR	0xc0000081
#define MSR_LSTAR	0xc0000082
#define MSR_SFMASK	0xc0000084
#define EFER_SCE	0x001
#define EFER_LME	0x100
#define EFER_LMA	0x400
#define EFER_NXE	0x800

struct vmi_cpuid cpuid(u32 leaf, u32 subleaf)
{
	struct vmi_cpuid regs = { .eax = leaf, .ecx = subleaf };

	vmi.cpu_cpuid(&regs);
	return regs;
}

u64 cpu_cr0(void)
{
	return 0x80050033;	/* PG AM WP NE ET MP PE */
}

u64 cpu_cr4(void)
{
	u64 cr4 = 0x20 | CR4_OSFXSR | CR4_OSXMMEXCPT;	/* and PAE */
	struct vmi_cpuid features = cpuid(1, 0);

	if (features.edx & 1u << 13)
		cr4 |= CR4_PGE;
	if (features.ecx & 1u << 26)
		cr4 |= CR4_OSXSAVE;
	return cr4;
}

u64 cpu_efer(void)
{
	return EFER_SCE | EFER_LME | EFER_NXE;
}

static void set_gate(u64 (*idt)[2], u32 vector, u64 handler, u32 type, u32 dpl)
{
	u64 low = (handler & 0xffff) | (u64)KERNEL_CS << 16 |
		  (u64)(0x80 | dpl << 5 | type) << 40 |
		  (handler >> 16 & 0xffff) << 48;

	vmi.cpu_write_idt(idt[0], vector, low, handler >> 32);
}

void cpu_init_tables(struct percpu *cpu)
{
	static const u64 flat[] = {
		[KERNEL_CS / 8] = 0x00af9b000000ffff,
		[KERNEL_SS / 8] = 0x00cf93000000ffff,
		[USER_CS32 / 8] = 0x00cffb000000ffff,
		[USER_SS / 8] = 0x00cff3000000ffff,
		[USER_CS / 8] = 0x00affb000000ffff,
	};
	u64 base = (u64)&cpu->tss;
	u64 tss[2] = {
		(sizeof(cpu->tss) - 1) | (base & 0xffffff) << 16 | 0x89ull << 40 |
			(base >> 24 & 0xff) << 56,
		base >> 32,
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(flat); i++)
		vmi.cpu_write_gdt(cpu->gdt, i, &flat[i], 1);
	vmi.cpu_write_gdt(cpu->gdt, TSS_SELECTOR / 8, tss, 2);
	cpu->tss.io_map = sizeof(cpu->tss);
	for (i = 0; i < 256; i++) {
		u64 stub = (u64)vector_stubs + i * VECTOR_STUB_SIZE;
		u32 type = i == VECTOR_TRAP_GATE ? 0xf : 0xe;
		bool user = i == VECTOR_BP || i == VECTOR_OF ||
			    i == VECTOR_USER_GATE;

		set_gate(cpu->idt, i, stub, type, user ? 3 : 0);
	}
}

static void load_gdt_and_idt(struct percpu *cpu)
{
	struct vmi_table_register gdt = {
		.limit = sizeof(cpu->gdt) - 1, .base = (u64)cpu->gdt,
	};
	struct vmi_table_register idt = {
		.limit = PAGE_SIZE - 1, .base = (u64)cpu->idt,
	};

	vmi.cpu_set_gdt(&gdt);
	vmi.cpu_set_idt(&idt);
}

void cpu_load_tables(struct percpu *cpu)
{
	load_gdt_and_idt(cpu);
	vmi.cpu_set_tr(TSS_SELECTOR);
	vmi.cpu_set_ldt(0);
}

void cpu_load_tables_again(void)
{
	load_gdt_and_idt(this_cpu());
}

void cpu_init_registers(void)
{
	struct vmi_cpuid features = cpuid(1, 0);

	vmi.cpu_write_msr(MSR_EFER, cpu_efer() | EFER_LMA);
	vmi.cpu_write_msr(MSR_STAR, (u64)USER_CS32 << 48 | (u64)KERNEL_CS << 32);
	vmi.cpu_write_msr(MSR_LSTAR, (u64)syscall_entry);
	vmi.cpu_write_msr(MSR_SFMASK, FLAGS_IF | FLAGS_TF | FLAGS_DF | FLAGS_NT | FLAGS_AC);
	set_cr0(cpu_cr0());
	set_cr4(cpu_cr4());
	/* x87, SSE, and the vector state that this processor has. */
	if (features.ecx & 1u << 26) {
		u64 offered = cpuid(0xd, 0).eax;
		u64 xcr0 = offered & 3;

		if ((offered & 7) == 7)
			xcr0 = 7;
		if ((offered & 0xe7) == 0xe7)
			xcr0 = 0xe7;
		vmi.cpu_set_xcr(0, xcr0);
	}
}

void set_kernel_stack(u64 rsp)
{
	struct percpu *cpu = this_cpu();

	cpu->kernel_rsp = rsp;
	vmi.cpu_set_kernel_stack(&cpu->tss, rsp);
}
