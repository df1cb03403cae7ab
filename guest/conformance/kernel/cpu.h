/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Descriptor tables and control registers of a vCPU. */
#ifndef KERNEL_CPU_H
#define KERNEL_CPU_H

#include "percpu.h"
#include "types.h"

#define CR0_TS		(1ull << 3)
#define CR0_WP		(1ull << 16)
#define CR4_PGE		(1ull << 7)
#define CR4_OSFXSR	(1ull << 9)
#define CR4_OSXMMEXCPT	(1ull << 10)
#define CR4_FSGSBASE	(1ull << 16)
#define CR4_OSXSAVE	(1ull << 18)

/* Writes GDT, IDT and TSS of any vCPU; the boot vCPU does it for all. After core.init. */
void cpu_init_tables(struct percpu *cpu);
/* Loads GDT, IDT, TR and LDT of this vCPU. */
void cpu_load_tables(struct percpu *cpu);
/* Loads GDT and IDT again, after a test has loaded others. */
void cpu_load_tables_again(void);
/* Sets the system-call MSRs, CR0, CR4 and XCR0 of this vCPU. */
void cpu_init_registers(void);
/* The values with which every test starts. */
u64 cpu_cr0(void);
u64 cpu_cr4(void);
u64 cpu_efer(void);
/* The call cpu.cpuid. */
struct vmi_cpuid cpuid(u32 leaf, u32 subleaf);

/* The stack of this vCPU for entries from user mode. */
void set_kernel_stack(u64 rsp);

#endif
