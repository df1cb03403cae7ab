/* SPDX-License-Identifier: GPL-2.0-only */
/* Declarations that the files of this folder share. */
#ifndef ARCH_X86_VMI_H
#define ARCH_X86_VMI_H

#include <linux/init.h>
#include <linux/linkage.h>
#include <linux/percpu.h>
#include <linux/types.h>
#include <paravane/vmi.h>
#include "vmi_rom.h"

/* The layer's entry points by name, as in vmi.time_read(&times). A missing call is NULL. */
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
/* A hypervisor has entered the kernel, with boot information. */
extern bool vmi_entered;
/*
 * The image lies in the lower half, and the layer does all that needs privilege. As
 * X86_FEATURE_VMI, but valid before CPU features are.
 */
extern bool vmi_low;

DECLARE_PER_CPU_ALIGNED(struct vmi_percpu, vmi_percpu);
/* By vCPU. The layer reads an entry when the vCPU starts or its per-CPU data moves. */
extern struct vmi_percpu *vmi_percpu_table[NR_CPUS];

/* costs.c: what the layer says of its costs; zeros if it says nothing */
extern struct vmi_costs vmi_costs;
void vmi_init_costs(void);

/* Switches that follow from that (exec.c). More are in linux/prefault.h and usertext/policy.h. */
extern bool vmi_exec_fills, vmi_exec_expects;
/* Some grace periods of RCU are expedited. */
extern bool vmi_expedites;

/* layer.c */
enum vmi_rom_error vmi_layer_from_boot_info(const struct vmi_boot_info *info);
int vmi_layer_init(unsigned long gs_base, void *data);
int vmi_percpu_prepare(unsigned int cpu);
/* Takes a layer whose image has been checked: copies it, unless it is IN_PLACE. */
enum vmi_rom_error vmi_layer_load(const struct vmi_rom *rom);
/* place.c: executable memory for a layer, near the image. NULL: none */
void *vmi_layer_space(u64 size);
/* In the upper half: whether the layer keeps linear addresses that the kernel or programs use. */
bool vmi_layer_in_the_way(void);
/* Zeroed memory for the boot vCPU's layer data, before there is an allocator. NULL: none. */
void *vmi_early_data(void);
/* A call that the kernel makes and the layer lacks. NULL: none. */
const char *vmi_layer_lacks(void);
/* The relocation record of a call, VMI_RELOC_...; of an absent call VMI_RELOC_NONE. */
unsigned int vmi_layer_record(u32 call);
/* Whether the layer has a call. */
bool vmi_layer_has(u32 call);
/* The code of a call whose record is VMI_RELOC_INLINE; false if it has none. */
bool vmi_layer_inline(u32 call, struct vmi_inline *insns);
/* The local APIC's page, mapped for a layer in a ROM; 0: none. */
unsigned long vmi_layer_apic(void);
/* A call that is made by a pointer and does not begin with endbr64. NULL: none. */
const char *vmi_layer_unmarked(void);
/* Feature bits of a section; 0 if the layer does not have it. */
u32 vmi_layer_features(u32 section);
/* Whether an address lies in the layer's code or data. */
bool vmi_in_layer(unsigned long ip);
void vmi_print(const char *text);

/* sites.c */
/* Reads the records, which core.init may change, before one is obeyed. Returns what is wrong. */
const char *vmi_read_records(void);
/*
 * Sets a pv_op to a function, unless the call is absent, or its record leaves or erases what is
 * there.
 */
void vmi_use(void *op, u32 call, void *function);
/* Whether a site of a single instruction becomes anything else. */
bool vmi_sites_differ(void);

/* high.c: does not return, unless the boot information is damaged */
void vmi_start_high(const struct vmi_boot_info *info);

/* An older hypervisor knows no more of struct vmi_boot_info. What it does not know is zero. */
#define VMI_BOOT_INFO_LEAST offsetof(struct vmi_boot_info, devices)

/* start.c */
struct boot_params;
void vmi_fill_boot_params(struct boot_params *params, const struct vmi_boot_info *info);
asmlinkage void vmi_start_kernel(const struct vmi_boot_info *info, unsigned long gs_base);

/* smp.c: the first code in C of a new vCPU */
asmlinkage void vmi_ap_start(void);

/* entry.S */
void vmi_entry(void);
/* Does not return: loads CR3, and continues at entry with params in rsi. */
void vmi_enter_again(u64 cr3, u64 params, u64 entry);
void vmi_ap_entry(void);
void vmi_entry_SYSCALL_64(void);
void vmi_entry_SYSCALL_64_trapped(void);
void vmi_iret(void);
void vmi_bad_iret(void);
extern void *vmi_iret_target, *vmi_sysret_target;

/* cpu.c: an address of the IDT that is mapped in every address space */
extern unsigned long vmi_idt;

void vmi_init_cpu_ops(void);
void vmi_init_mmu_ops(void);
void vmi_init_irq_ops(void);
void vmi_init_irqs(void);
void vmi_init_eoi(void);
void vmi_init_ipis(void);
void vmi_init_time(void);
void vmi_init_wallclock(void);
void vmi_init_alarms(void);
void vmi_init_machine(void);
void vmi_init_smp(void);
/* preempted.c */
void vmi_init_flush_preempted(void);
#ifdef CONFIG_PARAVIRT_SPINLOCKS
void vmi_init_locks(void);
#else
static inline void vmi_init_locks(void)
{
}
#endif

/* mmu.c: the layer flushes a space on all CPUs */
extern bool vmi_can_flush;
/* makes the early page tables and returns the root's physical address */
unsigned long vmi_early_page_tables(void);

/* traps.c: the handler for a vector on a layer, in place of the kernel's usual one */
unsigned long vmi_gate_target(unsigned int vector, unsigned long target);
/* exec.c: an mm is about to be loaded for the first time */
struct mm_struct;
void vmi_expect_program(struct mm_struct *mm);

/* line.c */
void vmi_init_lines(void);
void vmi_copy_devices(const struct vmi_boot_info *info);

#ifdef CONFIG_VMI_USER_TEXT
/* usertext/sites.c: where a trapped syscall instruction enters; sets where a stub enters */
unsigned long vmi_sites_lstar(void);
void vmi_sites_enter(void);
#else
static inline unsigned long vmi_sites_lstar(void)
{
	return (unsigned long)vmi_entry_SYSCALL_64;
}

static inline void vmi_sites_enter(void)
{
}
#endif

/* run_state.c: what a CPU does, for any CPU to read; NULL where the layer does not follow that */
const struct vmi_run_state *vmi_run_state(unsigned int cpu);

/* debugfs.c: the folder, created by the first caller */
struct dentry *vmi_debugfs(void);

/* time.c */
void vmi_setup_clockevent(void);
/* Beside the kernel's own timers: stolen time is accounted once there is some. */
void vmi_look_for_steal(void);
u64 vmi_real_ns(void);
/* Corrects the kernel's clocks if it is time to. Called in interrupts (clock.c). */
void vmi_clock_check(void);

#endif
