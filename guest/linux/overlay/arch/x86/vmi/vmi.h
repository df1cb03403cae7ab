/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files of this directory share. */
#ifndef ARCH_X86_VMI_H
#define ARCH_X86_VMI_H

#include <linux/init.h>
#include <linux/percpu.h>
#include <linux/types.h>
#include <paravane/vmi.h>
#include "vmi_rom.h"

/* The layer's entry points, by name: vmi.time_read(&times). Absent calls are NULL. */
struct vmi_calls {
#define X(SECTION, section, CALL, name, number, CLASS, since) \
	vmi_##section##_##name##_fn *section##_##name;
	VMI_FOR_EACH_CALL(X)
#undef X
};

extern struct vmi_calls vmi;

struct vmi_layer {
	bool present;
	char name[17];
	struct vmi_rom rom;
	const u8 *base;
};

extern struct vmi_layer vmi_layer;
extern struct vmi_boot_info vmi_boot;
/* Entered by a hypervisor in the lower half; X86_FEATURE_VMI, but for use before there are features. */
extern bool vmi_low;

DECLARE_PER_CPU_ALIGNED(struct vmi_percpu, vmi_percpu);
/* Of every vCPU; the layer reads it when a vCPU starts or its per-CPU data moves. */
extern struct vmi_percpu *vmi_percpu_table[NR_CPUS];

/* layer.c */
enum vmi_rom_error vmi_layer_from_boot_info(const struct vmi_boot_info *info);
int vmi_layer_init(unsigned long gs_base, void *data);
int vmi_percpu_prepare(unsigned int cpu);
enum vmi_rom_error vmi_layer_from_rom(const struct vmi_rom *rom);
/* Whether a call is to be made where a native instruction would do. */
bool vmi_layer_wants(u32 call);
/* Feature bits of a section. */
u32 vmi_layer_features(u32 section);
/* An address of the layer's code or data. */
bool vmi_in_layer(unsigned long ip);
void vmi_print(const char *text);

/* start.c */
asmlinkage void vmi_start_kernel(const struct vmi_boot_info *info, unsigned long gs_base);

/* entry.S */
void vmi_entry(void);
void vmi_entry_SYSCALL_64(void);
void vmi_entry_SYSCALL_64_trapped(void);
void vmi_iret(void);
void vmi_bad_iret(void);
extern void *vmi_iret_target, *vmi_sysret_target;

/* cpu.c: where the IDT is mapped in any case */
extern unsigned long vmi_idt;

void vmi_init_cpu_ops(void);
void vmi_init_mmu_ops(void);
void vmi_init_irq_ops(void);
void vmi_init_irqs(void);
void vmi_init_time(void);
void vmi_init_machine(void);
void vmi_init_smp(void);

/* mmu.c: the early tables; returns the root's physical address */
unsigned long vmi_early_page_tables(void);

/* traps.c: the handler to enter for a vector, in place of the one that the kernel names */
unsigned long vmi_gate_target(unsigned int vector, unsigned long target);
struct pt_regs;

/* A program's text and tables mostly fit, and a fault on what the page cache has costs little more for it. */
#define FILE_PAGES 256

/* exec.c: an mm that is about to be loaded first */
struct mm_struct;
void vmi_expect_program(struct mm_struct *mm);

/* line.c */
void vmi_copy_devices(const struct vmi_boot_info *info);

/* sites.c: the entry for the syscall instruction, and setting the other one, of this vCPU */
unsigned long vmi_sites_lstar(void);
void vmi_sites_enter(void);

/* debugfs.c: the folder */
struct dentry *vmi_debugfs(void);

/* time.c */
void vmi_setup_clockevent(void);
u64 vmi_real_ns(void);

#endif
